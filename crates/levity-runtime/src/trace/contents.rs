//! Records the contents of calls in spans, only on request and without secrets.
//!
//! Contents are confidential by default: prompts and results appear in spans only after
//! [`Runtime::trace_contents`](crate::Runtime::trace_contents), with secrets replaced and at most
//! 64 KiB per field.

use levity_core::{Content, Effect, Message, Outcome, Part, Role, Secrets, ToolResult};
use serde_json::{Value, json};
use tracing::Span;

/// The maximum bytes of one field; a longer one is replaced by a note.
const MAX: usize = 64 << 10;

/// Records the input of an effect.
pub(super) fn record_input(span: &Span, effect: &Effect, secrets: &Secrets) {
    match effect {
        Effect::Model(call) => {
            if let Some(system) = &call.request.system {
                let parts = json!([{"type": "text", "content": &**system}]);
                put(span, "gen_ai.system_instructions", &parts, secrets);
            }
            let history = call
                .request
                .history
                .messages()
                .iter()
                .map(|message| message_json(message));
            put(span, "gen_ai.input.messages", &history.collect(), secrets);
        }
        Effect::Tool(run) => put(span, "gen_ai.tool.call.arguments", &run.call.args, secrets),
        _ => {}
    }
}

/// Records the output of an effect.
pub(super) fn record_output(span: &Span, outcome: &Outcome, secrets: &Secrets) {
    match outcome {
        Outcome::Model(Ok(response)) => {
            let mut message = message_json(&response.message);
            message["finish_reason"] = super::finish(&response.finish).into();
            put(span, "gen_ai.output.messages", &json!([message]), secrets);
        }
        Outcome::Tool(result) => put(span, "gen_ai.tool.call.result", &answer(result), secrets),
        _ => {}
    }
}

fn put(span: &Span, field: &str, value: &Value, secrets: &Secrets) {
    let text = secrets.redact_value(value).to_string();
    if text.len() > MAX {
        span.record(
            field,
            tracing::field::display(format_args!(
                "[{} bytes: too long to be recorded]",
                text.len()
            )),
        );
    } else {
        span.record(field, text.as_str());
    }
}

fn message_json(message: &Message) -> Value {
    let role = match message.role {
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
        Role::System => "system",
    };
    json!({"role": role, "parts": message.parts.iter().map(part).collect::<Vec<_>>()})
}

fn part(part: &Part) -> Value {
    match part {
        Part::Text(text) => json!({"type": "text", "content": text.text}),
        Part::Thinking(thinking) => json!({"type": "reasoning", "content": thinking.text}),
        Part::ToolCall(call) => {
            json!({"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.args})
        }
        Part::ToolResult(result) => {
            json!({"type": "tool_call_response", "id": result.call, "response": answer(result)})
        }
        // Bytes of images, and data that only a provider understands, are meaningless to a reader.
        Part::Media(_) => json!({"type": "media"}),
        _ => json!({"type": "opaque"}),
    }
}

fn answer(result: &ToolResult) -> Value {
    if let Some(value) = &result.value {
        return value.clone();
    }
    let texts = result.content.iter().filter_map(|content| match content {
        Content::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n").into()
}
