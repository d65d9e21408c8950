//! Failures of requests and replies.

use levity_core::{Media, ToolCall, ToolOutput, ToolResult};
use levity_core::{Message, Model as _, ModelError, ModelErrorKind, Options, Part, Request, Role};
use serde_json::{Value, json};

use super::{events, hi, openai};
use crate::server::{Answer, Server};

async fn error(answer: Answer) -> ModelError {
    let server = Server::with_answer(answer).await;
    openai(&server, "gpt-5").complete(hi()).await.unwrap_err()
}

fn response_created() -> Value {
    json!({"type": "response.output_text.delta", "output_index": 0, "delta": "Well"})
}

#[tokio::test]
async fn stream_errors_have_matching_kind() {
    let failed = |error: Value| {
        json!({"type": "response.failed",
        "response": {"status": "failed", "error": error}})
    };
    let bare = |code: &str| json!({"type": "error", "code": code, "message": "No.", "param": null});
    let limited = ModelErrorKind::RateLimited { retry_after: None };
    for (event, kind) in [
        (
            failed(json!({"code": "server_error", "message": "No."})),
            ModelErrorKind::Server,
        ),
        (
            failed(json!({"code": "rate_limit_exceeded", "message": "No."})),
            limited,
        ),
        (
            failed(json!({"code": "invalid_prompt", "message": "No."})),
            ModelErrorKind::BadRequest,
        ),
        (
            failed(json!({"code": "context_length_exceeded", "message": "No."})),
            ModelErrorKind::ContextTooLong,
        ),
        (
            failed(json!({"code": "image_too_large", "message": "No."})),
            ModelErrorKind::BadRequest,
        ),
        (
            failed(json!({"code": "server_is_overloaded", "message": "No."})),
            ModelErrorKind::Overloaded,
        ),
        (
            failed(json!({"code": "slow_down", "message": "No."})),
            ModelErrorKind::Overloaded,
        ),
        (bare("rate_limit_exceeded"), limited),
        (
            json!({"type": "error", "error": {"type": "invalid_request_error", "message": "No."}}),
            ModelErrorKind::BadRequest,
        ),
        (
            json!({"error": {"code": 503, "message": "No."}}),
            ModelErrorKind::Overloaded,
        ),
    ] {
        let error = error(events(&[response_created(), event.clone()])).await;
        assert_eq!((error.kind(), error.message()), (kind, "No."), "{event}");
        assert!(error.may_cost());
    }
    let error = error(events(&[failed(Value::Null)])).await;
    assert_eq!(error.kind(), ModelErrorKind::Server);
}

#[tokio::test]
async fn whole_reply_with_failure_is_an_error() {
    let body = json!({"status": "failed", "output": [],
        "error": {"code": "server_error", "message": "No."}});
    assert_eq!(
        error(Answer::json(200, body.to_string())).await.message(),
        "No."
    );
    assert_eq!(
        error(Answer::json(200, "{}")).await.kind(),
        ModelErrorKind::Malformed
    );
    assert_eq!(
        error(Answer::json(200, "[7]")).await.kind(),
        ModelErrorKind::Malformed
    );
}

#[tokio::test]
async fn interrupted_stream_is_an_error() {
    for answer in [
        events(&[response_created()]),
        Answer::sse(format!("data: {}\n\ndata: [DONE]\n\n", response_created())),
        Answer::sse(""),
        events(&[response_created()]).then_reset(),
    ] {
        assert_eq!(error(answer).await.kind(), ModelErrorKind::Transport);
    }
    assert_eq!(
        error(Answer::sse("data: {\"type\": \n\n")).await.kind(),
        ModelErrorKind::Malformed
    );
}

#[tokio::test]
async fn stream_with_too_many_items_is_an_error() {
    let added = json!({"type": "response.output_item.added", "item": {"type": "reasoning"}});
    let endless = Answer::sse("").then_repeat(format!("data: {added}\n\n"), 20_000);
    assert_eq!(error(endless).await.kind(), ModelErrorKind::Malformed);
}

#[tokio::test]
async fn http_errors_have_matching_kind() {
    let said = r#"{"error": {"message": "Incorrect API key provided: sk-secret",
        "code": "invalid_api_key"}}"#;
    let wrong = error(Answer::json(401, said)).await;
    assert_eq!(
        (wrong.kind(), wrong.status()),
        (ModelErrorKind::Auth, Some(401))
    );
    assert!(!format!("{wrong} {wrong:?}").contains("sk-secret"));
    let busy =
        error(Answer::json(429, r#"{"detail": "Slow."}"#).header("retry-after-ms", "250")).await;
    let retry_after = Some(std::time::Duration::from_millis(250));
    assert_eq!(busy.kind(), ModelErrorKind::RateLimited { retry_after });
}

#[tokio::test]
async fn unsupported_content_is_rejected() {
    let server = Server::with_answer(super::whole(&[])).await;
    let model = openai(&server, "gpt-5").without_streaming();
    let mut stop = Options::new();
    stop.stop = vec!["END".to_owned()];
    let mut seed = Options::new();
    seed.seed = Some(7);
    let sound = || Media::bytes("audio/wav", vec![1]);
    let with_audio = Request::new().with_message(Message::new(Role::User, [Part::Media(sound())]));
    for (request, what) in [
        (hi().with_options(stop), "`stop`"),
        (hi().with_options(seed), "`seed`"),
        (with_audio, "`audio/wav`"),
    ] {
        // The second attempt checks that the encoding of a rejected message is not reused.
        for _ in 0..2 {
            let error = model.complete(request.clone()).await.unwrap_err();
            assert_eq!(error.kind(), ModelErrorKind::BadRequest);
            assert!(
                error.to_string().contains(what) && error.to_string().contains("`ChatModel`"),
                "{error}"
            );
        }
    }
    assert_eq!(server.seen().len(), 0);
}

#[tokio::test]
async fn unsupported_media_in_tool_result_becomes_text() {
    let server = Server::with_answer(super::whole(&[])).await;
    let call = ToolCall::new("c1", "record", json!({}));
    let mut history = hi().history;
    let mut exchange = history
        .open(Message::new(Role::Assistant, [Part::ToolCall(call.clone())]).into())
        .unwrap();
    let mut output = ToolOutput::text("Here.");
    for mime in ["audio/wav", "video/mp4", "image/svg+xml", "image/png"] {
        output = output.with_media(Media::bytes(mime, vec![1]));
    }
    exchange.answer(ToolResult::new(&call, Ok(output))).unwrap();
    history.close(exchange, &levity_core::ToolError::failed("unused"));
    let model = openai(&server, "gpt-5").without_streaming();
    // The reply of the server is irrelevant; only the request counts.
    let _ = model.complete(Request::new().with_history(history)).await;
    let text = |text: &str| json!({"type": "input_text", "text": text});
    let words = |what: &str| {
        text(&format!(
            "({what}, 1 bytes, which this model cannot accept)"
        ))
    };
    let expected = json!([
        text("Here."),
        words("a sound of type audio/wav"),
        words("a video of type video/mp4"),
        words("an image of type image/svg+xml"),
        {"type": "input_image", "image_url": "data:image/png;base64,AQ=="},
    ]);
    let sent = server.last().body["input"]
        .as_array()
        .unwrap()
        .last()
        .unwrap()["output"]
        .clone();
    assert_eq!(sent, expected);
}

#[tokio::test]
async fn failed_event_without_details_is_server_error() {
    let failed = json!({"type": "response.failed", "response": {}});
    assert_eq!(
        error(events(&[response_created(), failed])).await.kind(),
        ModelErrorKind::Server
    );
}

#[tokio::test]
async fn whole_reply_with_too_many_items_is_rejected() {
    let body = format!(
        r#"{{"status": "completed", "output": [{}{{}}]}}"#,
        "{},".repeat(1_000_000)
    );
    let error = error(Answer::json(200, body)).await;
    assert_eq!(error.kind(), ModelErrorKind::Malformed);
    assert!(error.to_string().contains("items"), "{error}");
}
