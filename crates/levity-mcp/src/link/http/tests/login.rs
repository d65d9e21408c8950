//! Tests with servers that require a login.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use serde_json::json;
use url::Url;

use super::raw_server::{Action, RawServer, answer, ok, start};
use super::{TestConnection, call, end};
use crate::link::authorize::{Authorize, Challenge, Credentials};
use crate::{ErrorKind, Result};

/// A login that returns a new token for each challenge, up to a maximum number of attempts.
#[derive(Default)]
struct Tokens {
    now: AtomicU32,
    max_attempts: u32,
    challenges: AtomicU32,
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

    fn store_nonce(&self, _: &str) {}

    async fn handle_challenge(&self, challenge: &Challenge<'_>) -> Result<bool> {
        assert_eq!(
            (challenge.status, challenge.text),
            (401, "Bearer realm=\"x\"")
        );
        assert_eq!(challenge.sent.map(str::to_owned), self.header());
        let attempt = challenge.attempt;
        assert_eq!(
            attempt,
            self.challenges.fetch_add(1, Ordering::Relaxed) % 100 + 1
        );
        self.now.fetch_add(1, Ordering::Relaxed);
        Ok(attempt <= self.max_attempts)
    }
}

/// Starts a server that requires this token for calls.
async fn require_token(token: &'static str) -> RawServer {
    start(move |request| match request.header("authorization") {
        Some(login) if login == format!("bearer {token}") => ok(&request.text("in")),
        _ => Action::Send(
            "HTTP/1.1 401 No\r\nwww-authenticate: Bearer realm=\"x\"\r\ncontent-length: 0\r\n\r\n"
                .into(),
        ),
    })
    .await
}

#[tokio::test]
async fn challenge_renews_login_and_repeats_request() {
    let server = require_token("t2").await;
    let tokens = Arc::new(Tokens {
        max_attempts: 9,
        ..Tokens::default()
    });
    let mut connection = TestConnection::to(server.url());
    connection.authorize = Some(tokens.clone());
    let client = connection.legacy().await;
    assert_eq!(call(&client, "x", json!({})).await.unwrap(), "in");
    assert_eq!(call(&client, "x", json!({})).await.unwrap(), "in");
    assert_eq!(server.posted("tools/call"), 4);
    end(client).await;
}

#[tokio::test]
async fn request_is_sent_at_most_four_times_after_challenges() {
    let server = require_token("never").await;
    let mut connection = TestConnection::to(server.url());
    connection.authorize = Some(Arc::new(Tokens {
        max_attempts: 9,
        ..Tokens::default()
    }));
    let client = connection.legacy().await;
    let error = call(&client, "x", json!({})).await.unwrap_err();
    assert_eq!(
        (error.kind(), server.posted("tools/call")),
        (ErrorKind::Auth, 4)
    );
    end(client).await;
}

#[tokio::test]
async fn missing_login_error_names_next_step() {
    let server = require_token("t1").await;
    let client = TestConnection::to(server.url()).legacy().await;
    let error = call(&client, "x", json!({})).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Auth);
    assert!(
        error.message().contains("set its header `Authorization`"),
        "{error}"
    );
    end(client).await;
    let client = TestConnection::to(server.url())
        .header("Authorization", "Bearer t0")
        .legacy()
        .await;
    let error = call(&client, "x", json!({})).await.unwrap_err();
    assert!(error.message().contains("rejects the login"), "{error}");
    end(client).await;
    let client = TestConnection::to(server.url())
        .header("Authorization", "Bearer t1")
        .legacy()
        .await;
    assert_eq!(call(&client, "x", json!({})).await.unwrap(), "in");
    end(client).await;
}

#[tokio::test]
async fn forbidden_initialize_returns_auth_error() {
    let server =
        super::raw_server::start_all(|_| Action::Send(answer("403 No", "text/plain", ""))).await;
    let error = TestConnection::to(server.url())
        .try_legacy()
        .await
        .err()
        .unwrap();
    assert!(error.contains("forbids this (HTTP 403)"), "{error}");
}
