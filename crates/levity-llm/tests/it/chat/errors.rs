//! Errors before a reply and within one.

use levity_core::{Model as _, ModelError, ModelErrorKind};
use levity_llm::ChatModel;

use super::sample_request;
use crate::server::{Answer, Server};

async fn error_of(answer: Answer) -> ModelError {
    let server = Server::with_answer(answer).await;
    let streamed = ChatModel::compatible(server.url(), "small")
        .complete(sample_request())
        .await
        .unwrap_err();
    assert_eq!(server.seen().len(), 1, "an error is no reason to ask again");
    streamed
}

#[track_caller]
fn check(error: &ModelError, kind: ModelErrorKind, message: &str) {
    assert_eq!((error.kind(), error.message()), (kind, message));
}

const WORDS: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Se\"}}]}\n\n";

#[tokio::test]
async fn error_in_stream_fails_reply() {
    let middle = async |event: &str| error_of(Answer::sse(format!("{WORDS}{event}\n\n"))).await;
    let groq = concat!(
        r#"{"error":{"message":"Failed to call a function.","type":"invalid_request_error","#,
        r#""code":"tool_use_failed","status_code":400}}"#,
    );
    let error = middle(&format!("event: error\ndata: {groq}")).await;
    check(
        &error,
        ModelErrorKind::BadRequest,
        "Failed to call a function.",
    );
    assert!(error.may_cost(), "words had come already");
    let openrouter = concat!(
        r#"{"error":{"code":502,"message":"Provider returned error","#,
        r#""metadata":{"raw":"upstream is gone"}},"#,
        r#""choices":[{"delta":{"content":""},"finish_reason":"error"}]}"#,
    );
    let error = middle(&format!("data: {openrouter}")).await;
    check(
        &error,
        ModelErrorKind::Server,
        "Provider returned error: upstream is gone",
    );
    let inside = concat!(
        r#"{"choices":[{"error":{"code":429,"message":"slow down"},"#,
        r#""delta":{},"finish_reason":"error"}]}"#,
    );
    let error = middle(&format!("data: {inside}")).await;
    check(
        &error,
        ModelErrorKind::RateLimited { retry_after: None },
        "slow down",
    );
    for code in ["null", "\"server_error\"", "500"] {
        let error = middle(&format!(
            "data: {{\"error\":{{\"message\":\"gone\",\"code\":{code}}}}}"
        ))
        .await;
        check(&error, ModelErrorKind::Server, "gone");
    }
    let vllm =
        r#"{"object":"error","message":"too long a prompt","type":"BadRequestError","code":400}"#;
    check(
        &middle(&format!("data: {vllm}")).await,
        ModelErrorKind::BadRequest,
        "too long a prompt",
    );
    check(
        &middle("event: error\ndata: the model crashed").await,
        ModelErrorKind::Server,
        "the model crashed",
    );
    let overloaded = r#"{"error":{"type":"overloaded_error","message":"busy"}}"#;
    check(
        &middle(&format!("data: {overloaded}")).await,
        ModelErrorKind::Overloaded,
        "busy",
    );
}

#[tokio::test]
async fn error_with_success_status_fails_reply() {
    let filter = concat!(
        r#"{"error":{"message":"The response was filtered","type":null,"#,
        r#""code":"content_filter","innererror":{"code":"ResponsibleAIPolicyViolation"}}}"#,
    );
    for answer in [
        Answer::json(200, filter),
        Answer::sse(format!("data: {filter}\n\n")),
        Answer::sse(filter),
    ] {
        check(
            &error_of(answer).await,
            ModelErrorKind::ContentFiltered,
            "The response was filtered",
        );
    }
    let bare = r#"{"object":"error","message":"no such model","code":404}"#;
    check(
        &error_of(Answer::json(200, bare)).await,
        ModelErrorKind::BadRequest,
        "no such model",
    );
}

#[tokio::test]
async fn status_maps_to_error_kind() {
    let failed = async |status: u16, body: &str| error_of(Answer::json(status, body)).await;
    for (status, kind) in [
        (400, ModelErrorKind::BadRequest),
        (401, ModelErrorKind::Auth),
        (402, ModelErrorKind::Auth),
        (403, ModelErrorKind::Auth),
        (404, ModelErrorKind::BadRequest),
        (408, ModelErrorKind::Timeout),
        (413, ModelErrorKind::ContextTooLong),
        (422, ModelErrorKind::BadRequest),
        (429, ModelErrorKind::RateLimited { retry_after: None }),
        (500, ModelErrorKind::Server),
        (502, ModelErrorKind::Server),
        (503, ModelErrorKind::Overloaded),
        (504, ModelErrorKind::Timeout),
        (529, ModelErrorKind::Overloaded),
    ] {
        let error = failed(status, "").await;
        check(
            &error,
            kind,
            &format!("the server answered with status {status}"),
        );
        assert_eq!(error.status(), Some(status));
    }
    let picture = concat!(
        r#"{"error":{"code":500,"message":"image input is not supported - "#,
        r#"hint: if this is unexpected, you may need to provide the mmproj","#,
        r#""type":"server_error"}}"#,
    );
    assert_eq!(
        failed(500, picture).await.kind(),
        ModelErrorKind::BadRequest
    );
}

#[tokio::test]
async fn retry_after_is_read() {
    let limited =
        Answer::json(429, r#"{"error":{"message":"slow down"}}"#).header("retry-after", "7");
    let retry_after = Some(std::time::Duration::from_secs(7));
    check(
        &error_of(limited).await,
        ModelErrorKind::RateLimited { retry_after },
        "slow down",
    );
}
