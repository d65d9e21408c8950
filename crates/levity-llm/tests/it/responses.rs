//! OpenAI's Responses.

use levity_core::{Message, Part, Request, Response, ToolError};
use levity_llm::{Endpoint, OpenAiModel};
use serde_json::{Value, json};

use crate::server::{Answer, Server};

mod asked;
mod errors;
mod kept;
mod odd;
mod replies;
mod strict;

/// A model of OpenAI's at this server.
fn openai(server: &Server, id: &str) -> OpenAiModel {
    OpenAiModel::new("sk-secret", id).with_endpoint(|_| Endpoint::new(server.url()))
}

/// Events as OpenAI sends them.
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

/// The last event: these items, and no more.
fn completed(output: &[Value]) -> Value {
    json!({"type": "response.completed", "response": {
        "id": "resp_1", "status": "completed", "error": null, "incomplete_details": null, "output": output,
        "usage": {
            "input_tokens": 9, "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 1},
            "output_tokens": 7, "output_tokens_details": {"reasoning_tokens": 3}, "total_tokens": 16,
        },
    }})
}

/// A reply in one piece.
fn whole(output: &[Value]) -> Answer {
    Answer::json(200, completed(output)["response"].to_string())
}

fn hi() -> Request {
    Request::new().with_message(Message::user("Hi"))
}

/// The conversation goes on: the reply, answers to its calls, and another question.
fn after(reply: &Response) -> Request {
    let mut history = hi().history;
    match history.open(reply.message.clone()) {
        Ok(exchange) => history.close(exchange, &ToolError::failed("no luck")),
        Err(_) => history.say(reply.message.clone()).unwrap(),
    }
    Request::new()
        .with_history(history)
        .with_message(Message::user("And?"))
}

/// What the parts of a reply are.
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
