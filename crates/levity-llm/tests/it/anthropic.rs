//! The Messages API of Anthropic.

#![expect(clippy::needless_pass_by_value, reason = "values are written in place")]

mod errors;
mod media;
mod options;
mod reply;
mod request;
mod round_trip;

use std::sync::Arc;

use levity_core::Model as _;
use levity_core::{
    History, Message, ModelError, Part, Request, Response, Role, ToolCall, ToolError, ToolOutput,
    ToolResult, ToolSpec,
};
use levity_llm::{AnthropicModel, Endpoint};
use serde_json::{Value, json};

use crate::server::{Answer, Server};

/// A reply in one piece.
const OK: &str = r#"{"type": "message", "role": "assistant",
    "content": [{"type": "text", "text": "OK"}],
    "stop_reason": "end_turn", "usage": {"input_tokens": 3, "output_tokens": 1}}"#;

/// Creates a stream of these events, each with the type that it names.
fn sse(events: &[Value]) -> String {
    let event = |event: &Value| {
        format!(
            "event: {}\ndata: {event}\n\n",
            event["type"].as_str().unwrap_or("odd")
        )
    };
    events.iter().map(event).collect()
}

fn start(index: u64, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: u64, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn stop(index: u64) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

/// Returns the events that end a stream.
fn end(reason: &str) -> [Value; 2] {
    let delta = json!({"stop_reason": reason, "stop_sequence": null});
    [
        json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 7}}),
        json!({"type": "message_stop"}),
    ]
}

fn model(server: &Server) -> AnthropicModel {
    AnthropicModel::new("sk-ant-123", "claude-sonnet-4-5-next")
        .with_endpoint(|_| Endpoint::new(server.url()))
}

fn add() -> Arc<ToolSpec> {
    let input = json!({"type": "object", "properties": {"a": {"type": "number"}}});
    Arc::new(ToolSpec::new("add", "Adds.").with_input(input))
}

fn ask() -> Request {
    Request::new().with_message(Message::user("Good morning"))
}

/// Parses a streamed reply of these bytes.
async fn streamed(body: &str) -> Result<Response, ModelError> {
    let server = Server::with_answer(Answer::sse(body)).await;
    model(&server).complete(ask()).await
}

/// Returns the request body of a model.
async fn sent_by(change: impl FnOnce(AnthropicModel) -> AnthropicModel, request: Request) -> Value {
    let server = Server::with_answer(Answer::json(200, OK)).await;
    change(model(&server)).complete(request).await.unwrap();
    server.last().body
}

async fn sent(request: Request) -> Value {
    sent_by(|model| model, request).await
}

/// Returns the error of a request that is not sent.
async fn rejection(request: &Request) -> ModelError {
    let server = Server::with_answer(Answer::json(200, OK)).await;
    let error = model(&server).complete(request.clone()).await.unwrap_err();
    assert!(server.seen().is_empty(), "nothing is sent");
    error
}

/// Creates a conversation with one call: the user's message, the call, and its result.
fn conversation_with_call(
    parts: impl IntoIterator<Item = Part>,
    answer: impl Fn() -> Result<ToolOutput, ToolError>,
) -> History {
    let mut history = History::new();
    history.push(Message::user("What is 2+5?")).unwrap();
    let mut exchange = history
        .open(Arc::new(Message::new(Role::Assistant, parts)))
        .unwrap();
    let calls: Vec<ToolCall> = exchange.reply().calls().cloned().collect();
    for call in &calls {
        exchange.answer(ToolResult::new(call, answer())).unwrap();
    }
    history.close(exchange, &ToolError::failed("all are answered"));
    history
}

/// Returns the blocks of a sent message.
fn content(body: &Value, at: usize) -> &Value {
    &body["messages"][at]["content"]
}
