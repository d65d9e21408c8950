//! Access tokens for Vertex AI.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use levity_core::{Model as _, ModelErrorKind};
use levity_llm::{AccessToken, AccessTokens, Endpoint, GeminiModel};
use ring::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU32, Ordering};

use super::{ask, last};
use crate::layers::support::Folder;
use crate::server::{Answer, Server};

/// A key that belongs to no account, made for this test.
const KEY: &str = include_str!("service_account.pem");

fn tokens(file: &Value) -> Result<AccessTokens, levity_core::ModelError> {
    let folder = Folder::new();
    let path = folder.path().join("credentials.json");
    std::fs::write(&path, file.to_string()).unwrap();
    AccessTokens::from_file(path)
}

fn user() -> Value {
    json!({
        "type": "authorized_user",
        "client_id": "me.apps",
        "client_secret": "s/ecret+1",
        "refresh_token": "1//refresh",
        "quota_project_id": "billed",
    })
}

fn vertex(server: &Server, tokens: AccessTokens) -> GeminiModel {
    let model =
        GeminiModel::vertex("p", "us-central1", tokens, "gemini-2.5-flash").without_streaming();
    model.with_endpoint(|_| Endpoint::new(server.url()))
}

fn success() -> Answer {
    Answer::json(200, last(json!([{"text": "Yes."}]), "STOP").to_string())
}

#[tokio::test]
async fn user_credentials_are_exchanged_for_token() {
    let google = Server::with_answer(Answer::json(
        200,
        r#"{"access_token": "ya29.a", "expires_in": 3599}"#,
    ))
    .await;
    let server = Server::with_answer(success()).await;
    let model = vertex(
        &server,
        tokens(&user()).unwrap().with_token_url(google.url()),
    );
    model.complete(ask("?")).await.unwrap();
    model.complete(ask("?")).await.unwrap();
    assert_eq!(google.seen().len(), 1, "the token is kept");
    let seen = google.last();
    assert_eq!(
        seen.header("content-type"),
        "application/x-www-form-urlencoded"
    );
    let form = "grant_type=refresh_token&client_id=me.apps&client_secret=s%2Fecret%2B1&\
        refresh_token=1%2F%2Frefresh";
    assert_eq!(seen.body, json!(form));
    let seen = server.last();
    assert_eq!(seen.header("authorization"), "Bearer ya29.a");
    assert_eq!(seen.header("x-goog-user-project"), "billed");
}

#[tokio::test]
async fn service_account_signs_its_assertion() {
    let google = Server::with_answer(Answer::json(200, r#"{"access_token": "ya29.s"}"#)).await;
    let file = json!({
        "type": "service_account", "client_email": "robot@p.iam", "private_key": KEY,
        "private_key_id": "k1",
        "token_uri": google.url(),
    });
    assert_eq!(
        tokens(&file).unwrap().token().await.unwrap().expose(),
        "ya29.s"
    );
    let seen = google.last().body;
    let form = seen.as_str().unwrap();
    let jwt = form
        .strip_prefix("grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=")
        .unwrap();
    let parts: Vec<&str> = jwt.split('.').collect();
    let decode = |at: usize| URL_SAFE_NO_PAD.decode(parts[at]).unwrap();
    let read = |at: usize| serde_json::from_slice::<Value>(&decode(at)).unwrap();
    assert_eq!(read(0), json!({"alg": "RS256", "typ": "JWT", "kid": "k1"}));
    let claims = read(1);
    assert_eq!(
        (&claims["iss"], &claims["aud"]),
        (&json!("robot@p.iam"), &json!(google.url()))
    );
    assert_eq!(
        claims["scope"],
        "https://www.googleapis.com/auth/cloud-platform"
    );
    assert_eq!(
        claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap(),
        3_600
    );

    let der: String = KEY
        .lines()
        .filter(|line| !line.starts_with("-----"))
        .collect();
    let der = base64::engine::general_purpose::STANDARD
        .decode(der)
        .unwrap();
    let key = RsaKeyPair::from_pkcs8(&der).unwrap();
    let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key.public_key().as_ref());
    let signed = jwt.rsplit_once('.').unwrap().0;
    public.verify(signed.as_bytes(), &decode(2)).unwrap();
}

#[tokio::test]
async fn rejected_token_is_replaced() {
    let refusal = Answer::json(
        401,
        r#"{"error": {"code": 401, "message": "Expired.", "status": "UNAUTHENTICATED"}}"#,
    );
    let server = Server::start([refusal, success()]).await;
    let count = AtomicU32::new(0);
    let tokens = AccessTokens::from_fn(move || {
        let n = count.fetch_add(1, Ordering::SeqCst);
        async move { Ok(AccessToken::new(format!("ya29.{n}"))) }
    });
    let model = vertex(&server, tokens);
    let error = model.complete(ask("?")).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.status()),
        (ModelErrorKind::Auth, Some(401))
    );
    model.complete(ask("?")).await.unwrap();
    let sent: Vec<_> = server
        .seen()
        .iter()
        .map(|seen| seen.header("authorization").to_owned())
        .collect();
    assert_eq!(sent, ["Bearer ya29.0", "Bearer ya29.1"]);
}

#[tokio::test]
async fn rejected_credentials_error_hides_secrets() {
    let chunk_with =
        r#"{"error": "invalid_grant", "error_description": "Token 1//refresh has been revoked."}"#;
    let google = Server::with_answer(Answer::json(400, chunk_with)).await;
    let error = tokens(&user())
        .unwrap()
        .with_token_url(google.url())
        .token()
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.status()),
        (ModelErrorKind::Auth, Some(400))
    );
    let text = format!("{error} {error:?}");
    assert!(
        text.contains("invalid_grant") && text.contains("gcloud auth"),
        "{text}"
    );
    assert!(
        !text.contains("1//refresh") && !text.contains("s/ecret"),
        "{text}"
    );

    let busy = Server::with_answer(Answer::json(503, "{}")).await;
    let error = tokens(&user())
        .unwrap()
        .with_token_url(busy.url())
        .token()
        .await
        .unwrap_err();
    assert!(error.is_retryable(), "{error:?}");
    let odd = Server::with_answer(Answer::json(200, "{}")).await;
    let error = tokens(&user())
        .unwrap()
        .with_token_url(odd.url())
        .token()
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ModelErrorKind::Malformed);
}

#[test]
fn invalid_credential_files_suggest_next_step() {
    #[track_caller]
    fn check(file: &Value, chunk_with: &str) {
        let error = tokens(file).unwrap_err();
        assert_eq!(error.kind(), ModelErrorKind::Auth);
        let text = format!("{error} {error:?}");
        assert!(
            text.contains(chunk_with) && !text.contains("hush"),
            "{text}"
        );
    }
    check(
        &json!({"type": "external_account", "x": "hush"}),
        "`external_account` are not supported; log in with `gcloud",
    );
    check(
        &json!({"type": "authorized_user", "client_id": "hush"}),
        "lack `client_secret`",
    );
    check(
        &json!({"type": "service_account", "client_email": "a", "private_key": "hush"}),
        "create a new key",
    );
    check(&json!("hush"), "is not a JSON credentials file");
    let error = AccessTokens::from_file("/nowhere/at/all.json").unwrap_err();
    assert!(
        error
            .to_string()
            .contains("gcloud auth application-default login"),
        "{error}"
    );
}

#[tokio::test]
async fn new_login_is_picked_up_without_restart() {
    let refused = Answer::json(400, r#"{"error": "invalid_grant"}"#);
    let google = Server::start([refused, Answer::json(200, r#"{"access_token": "ya29.n"}"#)]).await;
    let (folder, mut file) = (Folder::new(), user());
    let path = folder.path().join("credentials.json");
    std::fs::write(&path, file.to_string()).unwrap();
    let tokens = AccessTokens::from_file(&path)
        .unwrap()
        .with_token_url(google.url());
    assert_eq!(
        tokens.token().await.unwrap_err().kind(),
        ModelErrorKind::Auth
    );
    file["refresh_token"] = "1-new".into();
    std::fs::write(&path, file.to_string()).unwrap();
    assert_eq!(tokens.token().await.unwrap().expose(), "ya29.n");
    assert!(
        google
            .last()
            .body
            .to_string()
            .contains("refresh_token=1-new")
    );
}

#[tokio::test]
async fn token_error_repeating_form_hides_secrets() {
    for status in [400, 401, 500] {
        for field in ["error", "error_description", "message"] {
            for file in [
                user(),
                json!({"type": "service_account", "client_email": "robot@p.iam",
                    "private_key": KEY}),
            ] {
                let google = Server::with(move |_, seen| {
                    let form = seen.body.as_str().unwrap_or_default().to_owned();
                    let read = form.replace("%2F", "/").replace("%2B", "+");
                    Answer::json(status, json!({field: format!("{form} {read}")}).to_string())
                })
                .await;
                let error = tokens(&file)
                    .unwrap()
                    .with_token_url(google.url())
                    .token()
                    .await
                    .unwrap_err();
                let text = format!("{error} {error:?}");
                for hidden in [
                    "1//refresh",
                    "1%2F%2Frefresh",
                    "s/ecret",
                    "s%2Fecret",
                    "eyJ",
                ] {
                    assert!(!text.contains(hidden), "{status} {field}: {text}");
                }
            }
        }
    }
}
