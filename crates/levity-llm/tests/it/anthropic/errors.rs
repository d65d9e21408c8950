//! Failures of requests and replies.

use std::time::Duration;

use levity_core::{Model as _, ModelErrorKind};
use serde_json::{Value, json};

use super::{ask, delta, end, model, sse, start, streamed};
use crate::server::{Answer, Server};

fn error_body(kind: &str, message: &str) -> Value {
    json!({"type": "error", "error": {"type": kind, "message": message}})
}

#[tokio::test]
async fn http_errors_have_matching_kind() {
    let limited = ModelErrorKind::RateLimited {
        retry_after: Some(Duration::from_secs(7)),
    };
    let cases = [
        (
            400,
            "invalid_request_error",
            "max_tokens: 9 > 8",
            ModelErrorKind::BadRequest,
        ),
        (
            400,
            "invalid_request_error",
            "prompt is too long: 3 tokens > 2 maximum",
            ModelErrorKind::ContextTooLong,
        ),
        (
            400,
            "invalid_request_error",
            "Your credit balance is too low",
            ModelErrorKind::Auth,
        ),
        (
            401,
            "authentication_error",
            "invalid x-api-key",
            ModelErrorKind::Auth,
        ),
        (403, "permission_error", "no", ModelErrorKind::Auth),
        (
            404,
            "not_found_error",
            "model: x",
            ModelErrorKind::BadRequest,
        ),
        (
            413,
            "request_too_large",
            "Request exceeds the maximum size",
            ModelErrorKind::ContextTooLong,
        ),
        (429, "rate_limit_error", "slow down", limited),
        (
            500,
            "api_error",
            "Internal server error",
            ModelErrorKind::Server,
        ),
        (504, "timeout_error", "too slow", ModelErrorKind::Timeout),
        (
            529,
            "overloaded_error",
            "Overloaded",
            ModelErrorKind::Overloaded,
        ),
    ];
    for (status, word, message, kind) in cases {
        let answer = Answer::json(status, error_body(word, message).to_string());
        let answer = answer
            .header("request-id", "req_1")
            .header("retry-after", "7");
        let server = Server::with_answer(answer).await;
        let error = model(&server).complete(ask()).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.status()),
            (kind, Some(status)),
            "{word}"
        );
        assert_eq!(
            (error.request_id(), error.message()),
            (Some("req_1"), message)
        );
    }
}

#[tokio::test]
async fn stream_errors_have_matching_kind() {
    let limited = ModelErrorKind::RateLimited { retry_after: None };
    let cases = [
        ("overloaded_error", ModelErrorKind::Overloaded),
        ("rate_limit_error", limited),
        ("api_error", ModelErrorKind::Server),
        ("timeout_error", ModelErrorKind::Timeout),
        ("invalid_request_error", ModelErrorKind::BadRequest),
        ("authentication_error", ModelErrorKind::Auth),
        ("request_too_large", ModelErrorKind::ContextTooLong),
        ("what_comes_next", ModelErrorKind::Server),
    ];
    let hello = [
        start(0, json!({"type": "text", "text": ""})),
        delta(0, json!({"type": "text_delta", "text": "Hi"})),
    ];
    for (word, kind) in cases {
        let error = streamed(&sse(
            &[&hello[..], &[error_body(word, "It failed")]].concat()
        ))
        .await
        .unwrap_err();
        assert_eq!(
            (error.kind(), error.message()),
            (kind, "It failed"),
            "{word}"
        );
        assert!(error.may_cost(), "a part of the reply was there");
    }
    let bare = streamed("event: error\ndata: upstream is gone\n\n")
        .await
        .unwrap_err();
    assert_eq!(
        (bare.kind(), bare.message()),
        (ModelErrorKind::Server, "upstream is gone")
    );
    let unnamed =
        streamed("data: {\"error\": {\"type\": \"overloaded_error\", \"message\": \"busy\"}}\n\n")
            .await;
    assert_eq!(unnamed.unwrap_err().kind(), ModelErrorKind::Overloaded);
    let odd = streamed("data: {\"type\": \"error\", \"delta\": 1, \"error\": \"overloaded\"}\n\n")
        .await
        .unwrap_err();
    assert_eq!(
        (odd.kind(), odd.message()),
        (ModelErrorKind::Server, "overloaded")
    );
}

#[tokio::test]
async fn interrupted_reply_is_an_error() {
    let hello = start(0, json!({"type": "text", "text": "Hello"}));
    let [change, last] = end("end_turn");
    let whole = sse(&[hello.clone(), change, last]);
    let ended = whole.find("event: message_stop").unwrap();
    assert!(
        streamed(whole.get(..ended).unwrap()).await.is_ok(),
        "the reason to stop is enough"
    );
    let error_body = whole.find("event: message_delta").unwrap();
    for cut in [error_body, error_body + 40, error_body - 20] {
        let error = streamed(whole.get(..cut).unwrap()).await.unwrap_err();
        assert_eq!(
            error.kind(),
            ModelErrorKind::Transport,
            "cut at {cut}: {error}"
        );
        assert!(error.is_retryable());
    }
    let server = Server::with_answer(Answer::sse(sse(&[hello])).then_reset()).await;
    assert_eq!(
        model(&server).complete(ask()).await.unwrap_err().kind(),
        ModelErrorKind::Transport
    );
}

#[tokio::test]
async fn unparsable_reply_is_malformed() {
    let piece =
        streamed("data: {\"type\": \"content_block_delta\", \"delta\": 7}\n\ndata: {}\n\n").await;
    assert_eq!(piece.unwrap_err().kind(), ModelErrorKind::Malformed);
    let server = Server::start([
        Answer::json(200, "{}"),
        Answer::json(200, "{]"),
        Answer::json(200, "{"),
    ])
    .await;
    let mut kinds = Vec::new();
    for _ in 0..3 {
        kinds.push(
            model(&server)
                .without_streaming()
                .complete(ask())
                .await
                .unwrap_err()
                .kind(),
        );
    }
    assert_eq!(
        kinds,
        [
            ModelErrorKind::Malformed,
            ModelErrorKind::Malformed,
            ModelErrorKind::Transport
        ]
    );
}

#[tokio::test]
async fn error_hides_key_and_shows_beta_feature() {
    let message = "Unexpected value `new-2025` for `sk-ant-123`";
    let server = Server::with_answer(Answer::json(
        400,
        error_body("invalid_request_error", message).to_string(),
    ))
    .await;
    let model = model(&server).with_beta("new-2025");
    let error = model.complete(ask()).await.unwrap_err();
    assert_eq!(error.message(), "Unexpected value `new-2025` for `***`");
    assert!(
        !format!("{model:?} {error:?}").contains("sk-ant"),
        "{model:?}"
    );
}
