use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use levity_core::{ModelError, ModelErrorKind};

use super::credentials::default_path;
use super::{AccessToken, AccessTokens};

/// Creates the tokens `t1`, `t2`, …, each of which lives ten minutes and takes a second to fetch.
fn numbered() -> (AccessTokens, Arc<AtomicU32>) {
    let fetches = Arc::new(AtomicU32::new(0));
    let counter = fetches.clone();
    let tokens = AccessTokens::from_fn(move || {
        let n = counter.fetch_add(1, Ordering::SeqCst) + 1;
        async move {
            tokio::time::advance(Duration::from_secs(1)).await;
            Ok(AccessToken::new(format!("t{n}")).with_lifetime(Duration::from_secs(600)))
        }
    });
    (tokens, fetches)
}

async fn next(tokens: &AccessTokens) -> String {
    tokens.token().await.unwrap().expose().to_owned()
}

#[tokio::test(start_paused = true)]
async fn token_is_cached_until_shortly_before_expiry() {
    let (tokens, fetches) = numbered();
    assert_eq!(
        fetches.load(Ordering::SeqCst),
        0,
        "no token is fetched before it is needed"
    );
    assert_eq!(next(&tokens).await, "t1");
    tokio::time::advance(Duration::from_secs(535)).await;
    assert_eq!(next(&tokens.clone()).await, "t1");
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(next(&tokens).await, "t2");
}

#[tokio::test(start_paused = true)]
async fn concurrent_callers_fetch_token_once() {
    let (tokens, fetches) = numbered();
    let all = futures_util::future::join_all((0..20).map(|_| next(&tokens))).await;
    assert!(all.iter().all(|token| token == "t1"), "{all:?}");
    assert_eq!(fetches.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn rejected_token_is_not_returned_again() {
    let (tokens, _) = numbered();
    assert_eq!(next(&tokens).await, "t1");
    tokens.reject("t1").await;
    assert_eq!(next(&tokens).await, "t2");
    // A caller that used the old token reports the rejection late.
    tokens.reject("t1").await;
    assert_eq!(next(&tokens).await, "t2");

    let fixed = AccessTokens::from("only");
    assert_eq!(next(&fixed).await, "only");
    fixed.reject("only").await;
    let error = fixed.token().await.unwrap_err();
    assert_eq!(error.kind(), ModelErrorKind::Auth);
    assert!(!error.to_string().contains("only"));
}

#[tokio::test(start_paused = true)]
async fn failed_fetch_is_not_cached() {
    let fetches = AtomicU32::new(0);
    let tokens = AccessTokens::from_fn(move || {
        let first = fetches.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            match first {
                true => Err(ModelError::new(ModelErrorKind::Transport, "no way there")),
                false => Ok(AccessToken::new("t")),
            }
        }
    });
    assert_eq!(
        tokens.token().await.unwrap_err().kind(),
        ModelErrorKind::Transport
    );
    assert_eq!(next(&tokens).await, "t");
}

#[tokio::test(start_paused = true)]
async fn cancelled_fetch_does_not_block_other_callers() {
    let fetches = AtomicU32::new(0);
    let tokens = AccessTokens::from_fn(move || {
        let first = fetches.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            if first {
                std::future::pending::<()>().await;
            }
            Ok(AccessToken::new("t"))
        }
    });
    let given_up = tokio::time::timeout(Duration::from_secs(1), tokens.token()).await;
    assert!(given_up.is_err());
    assert_eq!(next(&tokens).await, "t");
}

#[test]
fn default_path_follows_google_conventions() {
    #[track_caller]
    fn check(vars: &[(&str, &str)], windows: bool, expected: Option<&str>) {
        let var = |name: &str| {
            vars.iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| OsString::from(value))
        };
        assert_eq!(default_path(var, windows), expected.map(PathBuf::from));
    }
    let file = "application_default_credentials.json";
    check(
        &[
            ("GOOGLE_APPLICATION_CREDENTIALS", "/k.json"),
            ("HOME", "/h"),
        ],
        false,
        Some("/k.json"),
    );
    check(
        &[("GOOGLE_APPLICATION_CREDENTIALS", ""), ("HOME", "/h")],
        false,
        Some(&format!("/h/.config/gcloud/{file}")),
    );
    check(
        &[("CLOUDSDK_CONFIG", "/c"), ("HOME", "/h")],
        false,
        Some(&format!("/c/{file}")),
    );
    check(
        &[("APPDATA", "/a"), ("HOME", "/h")],
        true,
        Some(&format!("/a/gcloud/{file}")),
    );
    check(&[], false, None);
}

#[test]
fn debug_output_hides_token() {
    let shown = format!(
        "{:?} {:?}",
        AccessTokens::from("ya29.x"),
        AccessToken::new("ya29.x")
    );
    assert!(!shown.contains("ya29"), "{shown}");
}

#[tokio::test]
async fn token_lifetime_may_exceed_clock_range() {
    let tokens =
        AccessTokens::from_fn(|| async { Ok(AccessToken::new("t").with_lifetime(Duration::MAX)) });
    assert_eq!(
        (next(&tokens).await, next(&tokens).await),
        ("t".to_owned(), "t".to_owned())
    );
}
