//! Guarantees that hold for every provider protocol: text arrives as text, provider state returns
//! only to its provider, and no request contains what a provider is known to reject.

use std::sync::Arc;

use levity_core::{
    Delta, Finish, Fold, History, Message, Model, ModelErrorKind, Options, OutputSchema, Part,
    ProviderState, Request, Response, Role, ThinkingMode, ToolCall, ToolChoice, ToolError,
    ToolOutput, ToolResult, ToolSpec,
};
use levity_llm::{AnthropicModel, ChatModel, Endpoint, GeminiModel, OllamaModel, OpenAiModel};
use levity_loop::Agent;
use serde_json::{Value, json};

use crate::server::{Answer, Server};

mod state;
mod streams;
mod text;
mod thinking;
mod tools;
mod turns;

fn ask() -> Request {
    Request::new().with_message(Message::user("Go."))
}

fn events(all: &[Value]) -> Answer {
    let event = |data: &Value| format!("data: {data}\n\n");
    Answer::sse(all.iter().map(event).collect::<String>())
}

fn anthropic(url: &str, id: &str) -> AnthropicModel {
    AnthropicModel::new("sk-ant-123", id).with_endpoint(|_| Endpoint::new(url))
}

fn gemini(url: &str, id: &str) -> GeminiModel {
    GeminiModel::new("AIza-secret", id).with_endpoint(|_| Endpoint::new(url))
}

fn responses(url: &str, id: &str) -> OpenAiModel {
    OpenAiModel::new("sk-secret", id).with_endpoint(|_| Endpoint::new(url))
}

fn openai(url: &str, id: &str) -> ChatModel {
    ChatModel::openai("sk-secret", id).with_endpoint(|_| Endpoint::new(url))
}

/// A protocol: a model at an address, and replies that it can parse.
struct Wire {
    name: &'static str,
    model: fn(&str, &str) -> Box<dyn Model>,
    id: &'static str,
    ok: fn() -> Answer,
}

const WIRES: [Wire; 5] = [
    Wire {
        name: "anthropic",
        model: |url, id| Box::new(anthropic(url, id)),
        id: "claude-sonnet-4-5",
        ok: || {
            Answer::json(
                200,
                json!({"content": [{"type": "text", "text": "OK"}], "stop_reason": "end_turn"})
                    .to_string(),
            )
        },
    },
    Wire {
        name: "gemini",
        model: |url, id| Box::new(gemini(url, id)),
        id: "gemini-3-flash",
        ok: || gemini_reply(&json!([{"text": "OK"}])),
    },
    Wire {
        name: "responses",
        model: |url, id| Box::new(responses(url, id)),
        id: "gpt-5",
        ok: || {
            responses_reply(
                &json!([{"type": "message", "content": [{"type": "output_text", "text": "OK"}]}]),
            )
        },
    },
    Wire {
        name: "chat",
        model: |url, id| Box::new(ChatModel::compatible(url, id)),
        id: "deepseek-chat",
        ok: || chat_reply(&json!({"content": "OK"})),
    },
    Wire {
        name: "ollama",
        model: |url, id| Box::new(OllamaModel::new(id).with_endpoint(|_| Endpoint::new(url))),
        id: "qwen3",
        ok: || {
            Answer::lines(format!(
                "{}\n",
                json!({"message": {"content": "OK"}, "done": true})
            ))
        },
    },
];

fn wire(name: &str) -> &'static Wire {
    WIRES.iter().find(|wire| wire.name == name).unwrap()
}

fn gemini_reply(parts: &Value) -> Answer {
    let candidate =
        json!({"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0});
    events(&[json!({ "candidates": [candidate] })])
}

fn responses_reply(output: &Value) -> Answer {
    Answer::json(
        200,
        json!({"status": "completed", "output": output}).to_string(),
    )
}

fn chat_reply(message: &Value) -> Answer {
    let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
    Answer::json(200, json!({ "choices": [choice] }).to_string())
}

/// Returns the request body of a model.
async fn sent(wire: &Wire, id: &str, request: Request) -> Value {
    let server = Server::with_answer((wire.ok)()).await;
    (wire.model)(server.url(), id)
        .complete(request)
        .await
        .unwrap();
    server.last().body
}

/// Creates a conversation of a question and a reply, with a result for each of its calls.
fn after(reply: Arc<Message>) -> History {
    let mut history = ask().history;
    let Ok(mut exchange) = history.open(reply.clone()) else {
        history.push(reply).unwrap();
        return history;
    };
    let calls: Vec<ToolCall> = exchange.reply().calls().cloned().collect();
    for call in &calls {
        exchange
            .answer(ToolResult::new(call, Ok(ToolOutput::text("fine"))))
            .unwrap();
    }
    history.close(exchange, &ToolError::failed("never used"));
    history
}

fn thinking(mode: ThinkingMode) -> Options {
    let mut options = Options::new();
    options.thinking = Some(mode);
    options
}

fn extra(name: &str, value: Value) -> Options {
    let mut options = Options::new();
    options.extra.insert(name.to_owned(), value);
    options
}

fn tool(name: &str) -> Arc<ToolSpec> {
    Arc::new(
        ToolSpec::new(name, "Does it.").with_input(json!({"type": "object", "properties": {}})),
    )
}
