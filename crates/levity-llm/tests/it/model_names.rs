//! The model that replied, by its provider's name for it.

use levity_core::{History, Message, Model, Request};
use levity_llm::{AnthropicModel, ChatModel, Endpoint, GeminiModel, OllamaModel, OpenAiModel};
use serde_json::{Value, json};

use crate::server::{Answer, Server};

fn sample_request() -> Request {
    let mut history = History::new();
    history.push(Message::user("Hello")).unwrap();
    Request::new().with_history(history)
}

fn events(all: &[Value]) -> Answer {
    Answer::sse(
        all.iter()
            .map(|data| format!("data: {data}\n\n"))
            .collect::<String>(),
    )
}

#[track_caller]
fn check(name: Option<&str>, reply: Result<levity_core::Response, levity_core::ModelError>) {
    let reply = reply.unwrap();
    assert_eq!(
        (&*reply.message.text(), reply.model.as_deref()),
        ("Hi", name)
    );
}

#[tokio::test]
async fn chat_reply_has_model_name() {
    for (said, name) in [
        (json!("big-2026"), Some("big-2026")),
        (json!(7), None),
        (Value::Null, None),
    ] {
        let chunk = json!({"model": said,
            "choices": [{"delta": {"content": "Hi"}, "finish_reason": "stop"}]});
        let server = Server::with_answer(events(&[chunk.clone(), chunk.clone()][..1])).await;
        check(
            name,
            ChatModel::compatible(server.url(), "big")
                .complete(sample_request())
                .await,
        );
        let whole = json!({"model": said,
            "choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]});
        let server = Server::with_answer(Answer::json(200, whole.to_string())).await;
        check(
            name,
            ChatModel::compatible(server.url(), "big")
                .without_streaming()
                .complete(sample_request())
                .await,
        );
    }
}

#[tokio::test]
async fn responses_reply_has_model_name() {
    let item =
        json!({"type": "message", "id": "m", "content": [{"type": "output_text", "text": "Hi"}]});
    let reply = json!({"status": "completed", "model": "big-2026", "output": [item]});
    let server = Server::with_answer(events(&[
        json!({"type": "response.completed", "response": reply}),
    ]))
    .await;
    let model = OpenAiModel::new("k", "big").with_endpoint(|_| Endpoint::new(server.url()));
    check(Some("big-2026"), model.complete(sample_request()).await);
}

#[tokio::test]
async fn anthropic_reply_has_model_name() {
    let server = Server::with_answer(events(&[
        json!({"type": "message_start",
            "message": {"model": "big-2026", "usage": {"input_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0,
            "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0,
            "delta": {"type": "text_delta", "text": "Hi"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
        json!({"type": "message_stop"}),
    ]))
    .await;
    let model = AnthropicModel::new("k", "big").with_endpoint(|_| Endpoint::new(server.url()));
    check(Some("big-2026"), model.complete(sample_request()).await);
}

#[tokio::test]
async fn gemini_reply_has_model_name() {
    let content = json!({"parts": [{"text": "Hi"}]});
    for (said, name) in [(json!("big-2026"), Some("big-2026")), (json!([1]), None)] {
        let chunk = json!({"modelVersion": said,
            "candidates": [{"content": content, "finishReason": "STOP"}]});
        let server = Server::with_answer(events(&[chunk])).await;
        let model = GeminiModel::new("k", "big").with_endpoint(|_| Endpoint::new(server.url()));
        check(name, model.complete(sample_request()).await);
    }
}

#[tokio::test]
async fn ollama_reply_has_model_name() {
    let line = json!({"model": "big:4b", "message": {"content": "Hi"}, "done": true});
    let server = Server::with_answer(Answer::lines(format!("{line}\n"))).await;
    let model = OllamaModel::new("big").with_endpoint(|_| Endpoint::new(server.url()));
    check(Some("big:4b"), model.complete(sample_request()).await);
}
