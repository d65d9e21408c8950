//! Gemini: requests, replies and returned state.

use std::sync::Arc;

use levity_core::{
    History, Message, Request, Response, ToolError, ToolOutput, ToolResult, ToolSpec,
};
use levity_llm::{Endpoint, GeminiModel};
use serde_json::{Value, json};

use crate::server::{Answer, Server};

mod errors;
mod replies;
mod requests;
mod round_trip;
mod tokens;

fn model(server: &Server, id: &str) -> GeminiModel {
    GeminiModel::new("AIza-secret", id).with_endpoint(|_| Endpoint::new(server.url()))
}

fn ask(text: &str) -> Request {
    Request::new().with_message(Message::user(text))
}

/// Creates a reply of these chunks, as events.
fn sse(pieces: &[Value]) -> Answer {
    let events = pieces.iter().map(|piece| format!("data: {piece}\r\n\r\n"));
    Answer::sse(events.collect::<String>())
}

/// Creates a chunk of a reply with these parts.
fn chunk_with(parts: Value) -> Value {
    let mut piece = json!({"candidates": [{"content": {"role": "model"}, "index": 0}]});
    piece["candidates"][0]["content"]["parts"] = parts;
    piece
}

/// Creates the last chunk of a reply.
fn last(parts: Value, word: &str) -> Value {
    let mut piece = chunk_with(parts);
    piece["candidates"][0]["finishReason"] = word.into();
    piece["usageMetadata"] =
        json!({"promptTokenCount": 7, "candidatesTokenCount": 3, "totalTokenCount": 10});
    piece
}

fn weather() -> Arc<ToolSpec> {
    let input = json!({
        "type": "object",
        "properties": {"city": {"type": "string", "minLength": 2}},
        "required": ["city"],
        "additionalProperties": false,
    });
    Arc::new(ToolSpec::new("weather", "Tells the weather.").with_input(input))
}

/// Creates a conversation of a question, the reply, and a result for each of its calls.
fn after(reply: &Response, answer: impl Fn(usize) -> Result<ToolOutput, ToolError>) -> History {
    let mut history = History::new();
    history.push(Message::user("Go.")).unwrap();
    let Ok(mut exchange) = history.open(reply.message.clone()) else {
        history.push(reply.message.clone()).unwrap();
        return history;
    };
    for (n, call) in exchange.reply().clone().calls().enumerate() {
        exchange.answer(ToolResult::new(call, answer(n))).unwrap();
    }
    history.close(exchange, &ToolError::failed("never used"));
    history
}
