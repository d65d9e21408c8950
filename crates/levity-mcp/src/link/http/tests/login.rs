//! Servers that want a login.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use serde_json::json;
use url::Url;

use super::raw::{Do, Raw, answer, ok, start};
use super::{Dial, call, end};
use crate::link::authorize::{Authorize, Challenge, Credentials};
use crate::{ErrorKind, Result};

/// Gets a new token for each challenge, as long as it is asked at most so often.
#[derive(Default)]
struct Tokens {
    now: AtomicU32,
    most: u32,
    asked: AtomicU32,
}

impl Tokens {
    fn header(&self) -> Option<String> {
        let now = self.now.load(Ordering::Relaxed);
        (now > 0).then(|| format!("Bearer t{now}"))
    }
}

#[async_trait]
impl Authorize for Tokens {
    async fn credentials(&self, _: &str, _: &Url) -> Result<Option<Credentials>> {
        Ok(self.header().map(|authorization| Credentials {
            authorization,
            proof: None,
        }))
    }

    fn keep_nonce(&self, _: &str) {}

    async fn challenged(&self, challenge: &Challenge<'_>) -> Result<bool> {
        assert_eq!(
            (challenge.status, challenge.text),
            (401, "Bearer realm=\"x\"")
        );
        assert_eq!(challenge.sent.map(str::to_owned), self.header());
        let attempt = challenge.attempt;
        assert_eq!(
            attempt,
            self.asked.fetch_add(1, Ordering::Relaxed) % 100 + 1
        );
        self.now.fetch_add(1, Ordering::Relaxed);
        Ok(attempt <= self.most)
    }
}

/// Wants this token for calls.
async fn wants(token: &'static str) -> Raw {
    start(move |request| match request.header("authorization") {
        Some(login) if login == format!("bearer {token}") => ok(&request.text("in")),
        _ => Do::Say(
            "HTTP/1.1 401 No\r\nwww-authenticate: Bearer realm=\"x\"\r\ncontent-length: 0\r\n\r\n"
                .into(),
        ),
    })
    .await
}

#[tokio::test]
async fn another_login_is_got_and_the_request_sent_again() {
    let server = wants("t2").await;
    let tokens = Arc::new(Tokens {
        most: 9,
        ..Tokens::default()
    });
    let mut dial = Dial::to(server.url());
    dial.authorize = Some(tokens.clone());
    let client = dial.legacy().await;
    assert_eq!(call(&client, "x", json!({})).await.unwrap(), "in");
    assert_eq!(call(&client, "x", json!({})).await.unwrap(), "in");
    assert_eq!(server.posted("tools/call"), 4);
    end(client).await;
}

#[tokio::test]
async fn a_server_that_is_never_content_is_asked_four_times() {
    let server = wants("never").await;
    let mut dial = Dial::to(server.url());
    dial.authorize = Some(Arc::new(Tokens {
        most: 9,
        ..Tokens::default()
    }));
    let client = dial.legacy().await;
    let error = call(&client, "x", json!({})).await.unwrap_err();
    assert_eq!(
        (error.kind(), server.posted("tools/call")),
        (ErrorKind::Auth, 4)
    );
    end(client).await;
}

#[tokio::test]
async fn without_another_login_the_error_says_what_to_do() {
    let server = wants("t1").await;
    let client = Dial::to(server.url()).legacy().await;
    let error = call(&client, "x", json!({})).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Auth);
    assert!(
        error.message().contains("set its header `Authorization`"),
        "{error}"
    );
    end(client).await;
    let client = Dial::to(server.url())
        .header("Authorization", "Bearer t0")
        .legacy()
        .await;
    let error = call(&client, "x", json!({})).await.unwrap_err();
    assert!(error.message().contains("refuses the login"), "{error}");
    end(client).await;
    let client = Dial::to(server.url())
        .header("Authorization", "Bearer t1")
        .legacy()
        .await;
    assert_eq!(call(&client, "x", json!({})).await.unwrap(), "in");
    end(client).await;
}

#[tokio::test]
async fn a_login_at_the_start_is_asked_for_too() {
    let server = super::raw::start_all(|_| Do::Say(answer("403 No", "text/plain", ""))).await;
    let error = Dial::to(server.url()).try_legacy().await.err().unwrap();
    assert!(error.contains("forbids this (HTTP 403)"), "{error}");
}
