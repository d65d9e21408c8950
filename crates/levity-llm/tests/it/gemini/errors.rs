//! Failed replies.

use std::time::Duration;

use levity_core::{Model as _, ModelError, ModelErrorKind};
use serde_json::{Value, json};

use super::{ask, chunk_with, last, model, sse};
use crate::server::{Answer, Server};

async fn failed(answer: Answer) -> ModelError {
    let server = Server::with_answer(answer).await;
    model(&server, "gemini-2.5-flash")
        .complete(ask("a private question"))
        .await
        .unwrap_err()
}

async fn failed_whole(body: Value) -> ModelError {
    let server = Server::with_answer(Answer::json(200, body.to_string())).await;
    model(&server, "gemini-2.5-flash")
        .without_streaming()
        .complete(ask("?"))
        .await
        .unwrap_err()
}

#[tokio::test]
async fn blocked_reply_names_reason() {
    let prompt = json!({
        "promptFeedback": {"blockReason": "PROHIBITED_CONTENT"},
        "usageMetadata": {"promptTokenCount": 3},
    });
    let safety = json!({"candidates": [{"content": {}, "finishReason": "SAFETY"}]});
    let armor = json!({"candidates": [{"finishReason": "MODEL_ARMOR", "finishMessage": "Blocked by \
        policy."}]});
    for (body, chunk_with) in [
        (prompt, "the prompt was blocked: `PROHIBITED_CONTENT`"),
        (safety, "the reply was withheld: `SAFETY`"),
        (
            armor,
            "the reply was withheld: `MODEL_ARMOR`, Blocked by policy.",
        ),
    ] {
        for error in [failed_whole(body.clone()).await, failed(sse(&[body])).await] {
            assert_eq!(
                (error.kind(), error.message()),
                (ModelErrorKind::ContentFiltered, chunk_with)
            );
        }
    }
}

#[tokio::test]
async fn status_maps_to_error_kind() {
    let body = |code: u16, status: &str, message: &str, details: Value| {
        let error = json!({"error": {"code": code, "message": message, "status": status,
            "details": details}});
        error.to_string()
    };
    let delay =
        json!([{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.4s"}]);
    let key =
        json!([{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}]);
    let wait = ModelErrorKind::RateLimited {
        retry_after: Some(Duration::from_millis(34_400)),
    };
    for (status, word, message, details, kind) in [
        (
            429,
            "RESOURCE_EXHAUSTED",
            "You exceeded your quota",
            delay,
            wait,
        ),
        (
            400,
            "INVALID_ARGUMENT",
            "API key not valid.",
            key,
            ModelErrorKind::Auth,
        ),
        (
            400,
            "INVALID_ARGUMENT",
            "Invalid value",
            json!([]),
            ModelErrorKind::BadRequest,
        ),
        (
            400,
            "INVALID_ARGUMENT",
            "The input token count (9) exceeds the maximum number of tokens allowed (8).",
            json!([]),
            ModelErrorKind::ContextTooLong,
        ),
        (
            403,
            "PERMISSION_DENIED",
            "No.",
            json!([]),
            ModelErrorKind::Auth,
        ),
        (
            404,
            "NOT_FOUND",
            "No such model",
            json!([]),
            ModelErrorKind::BadRequest,
        ),
        (500, "INTERNAL", "Oh.", json!([]), ModelErrorKind::Server),
        (
            503,
            "UNAVAILABLE",
            "The model is overloaded.",
            json!([]),
            ModelErrorKind::Overloaded,
        ),
        (
            504,
            "DEADLINE_EXCEEDED",
            "Too late",
            json!([]),
            ModelErrorKind::Timeout,
        ),
    ] {
        let body = body(status, word, message, details);
        // Google types an error as the requested stream, and may put it into a list.
        for answer in [
            Answer::new(status, "text/event-stream", &body),
            Answer::json(status, format!("[{body}]")),
        ] {
            let error = failed(answer).await;
            assert_eq!(
                (error.kind(), error.status(), error.message()),
                (kind, Some(status), message)
            );
        }
    }
}

#[tokio::test]
async fn error_within_stream_fails_reply() {
    let error = json!({"error": {"code": 503, "message": "The model is \
        overloaded.", "status": "UNAVAILABLE"}});
    let answer = sse(&[chunk_with(json!([{"text": "Well"}])), error.clone()]);
    assert_eq!(failed(answer).await.kind(), ModelErrorKind::Overloaded);
    let list = json!([chunk_with(json!([{"text": "Well"}])), error]);
    assert_eq!(
        failed(Answer::json(200, list.to_string())).await.kind(),
        ModelErrorKind::Overloaded
    );
    let named = Answer::sse("event: error\ndata: {\"code\": 500, \"message\": \"Oh.\"}\n\n");
    let error = failed(named).await;
    assert_eq!(
        (error.kind(), error.message()),
        (ModelErrorKind::Server, "Oh.")
    );
}

#[tokio::test]
async fn truncated_stream_is_interrupted() {
    let begun = chunk_with(json!([{"text": "Well"}]));
    let whole = last(json!([{"text": "Well."}]), "STOP").to_string();
    for answer in [
        sse(&[]),
        sse(std::slice::from_ref(&begun)),
        Answer::sse(format!("data: {}", &whole[..whole.len() / 2])),
        Answer::json(200, format!("[{begun},")),
        Answer::json(200, &whole[..whole.len() - 3]),
        sse(&[begun]).then_reset(),
    ] {
        let error = failed(answer).await;
        assert_eq!(error.kind(), ModelErrorKind::Transport, "{error}");
        assert!(error.is_retryable());
    }
}

#[tokio::test]
async fn unparsable_reply_is_malformed() {
    for answer in [
        Answer::sse("data: {nonsense}\n\n"),
        Answer::sse("data: 7\n\n"),
        Answer::json(200, "{}"),
        Answer::json(200, "{\"candidates\": []}"),
        Answer::json(200, "[]"),
        sse(&[last(
            json!([{"functionCall": {"name": "a", "partialArgs": [{"jsonPath": "?"}]}}]),
            "STOP",
        )]),
    ] {
        let error = failed(answer).await;
        assert_eq!(error.kind(), ModelErrorKind::Malformed, "{error}");
    }
}

#[tokio::test]
async fn errors_hide_key() {
    let chunk_with = r#"{"error": {"code": 400, "message": "bad key AIza-secret in a request",
        "status": "INVALID_ARGUMENT"}}"#;
    let error = failed(Answer::json(400, chunk_with)).await;
    assert!(!format!("{error} {error:?}").contains("AIza"), "{error:?}");
}
