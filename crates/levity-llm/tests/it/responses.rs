//! The Responses API of OpenAI.

use levity_core::{Message, Part, Request, Response, ToolError};
use levity_llm::{Endpoint, OpenAiModel};
use serde_json::{Value, json};

use crate::server::{Answer, Server};

mod errors;
mod lenient;
mod replies;
mod requests;
mod round_trip;
mod strict;

/// Creates an OpenAI model on this server.
fn openai(server: &Server, id: &str) -> OpenAiModel {
    OpenAiModel::new("sk-secret", id).with_endpoint(|_| Endpoint::new(server.url()))
}

/// Creates events in the format of OpenAI.
fn events(events: &[Value]) -> Answer {
    let lines: String = events
        .iter()
        .map(|event| {
            format!(
                "event: {}\ndata: {event}\n\n",
                event["type"].as_str().unwrap_or_default()
            )
        })
        .collect();
    Answer::sse(lines)
}

/// Creates the last event, with exactly these items.
fn completed(output: &[Value]) -> Value {
    json!({"type": "response.completed", "response": {
        "id": "resp_1", "status": "completed", "error": null, "incomplete_details": null,
        "output": output,
        "usage": {
            "input_tokens": 9, "input_tokens_details": {"cached_tokens": 4,
                "cache_write_tokens": 1},
            "output_tokens": 7, "output_tokens_details": {"reasoning_tokens": 3},
            "total_tokens": 16,
        },
    }})
}

/// Creates a reply in one piece.
fn whole(output: &[Value]) -> Answer {
    Answer::json(200, completed(output)["response"].to_string())
}

fn hi() -> Request {
    Request::new().with_message(Message::user("Hi"))
}

/// Creates a request that continues the conversation: the reply, results of its calls, and another
/// question.
fn after(reply: &Response) -> Request {
    let mut history = hi().history;
    match history.open(reply.message.clone()) {
        Ok(exchange) => history.close(exchange, &ToolError::failed("no luck")),
        Err(_) => history.push(reply.message.clone()).unwrap(),
    }
    Request::new()
        .with_history(history)
        .with_message(Message::user("And?"))
}

/// Returns the kinds of a reply's parts.
fn kinds(reply: &Response) -> Vec<&'static str> {
    let kind = |part: &Part| match part {
        Part::Text(_) => "text",
        Part::Thinking(_) => "thinking",
        Part::ToolCall(_) => "call",
        Part::Opaque(_) => "opaque",
        _ => "other",
    };
    reply.message.parts.iter().map(kind).collect()
}
