//! Prompt text that replaces native tool calls.
//!
//! The wording follows the chat template of Qwen and Hermes, which many open models were trained
//! on: a list in `<tools>`, calls in `<tool_call>` and results in `<tool_response>`. The rewritten
//! history is a pure function of the original, so a provider's prompt cache keeps its prefix from
//! turn to turn.

use std::fmt::Write as _;
use std::sync::Arc;

use levity_core::{
    Content, History, Message, Part, Request, Role, ToolCall, ToolChoice, ToolResult, ToolSpec,
};

use serde_json::json;

use super::structured;
use crate::text_calls;

/// The form in which the model writes calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Form {
    Text,
    Structured,
}

/// Returns `true` if the request offers tools.
fn offers_tools(request: &Request) -> bool {
    !request.tools.is_empty() && request.tool_choice != ToolChoice::None
}

/// Rewrites a request for a model without native tool calls.
///
/// The result has no tools and an automatic choice. A required call becomes an instruction in the
/// prompt; the structured form also removes the answer from its schema. The history is rewritten
/// even without tools, because earlier turns may contain calls.
pub(super) fn without_native_tools(mut request: Request, form: Form) -> Request {
    if offers_tools(&request) {
        let mut system = request
            .system
            .as_deref()
            .map(|system| format!("{system}\n\n"))
            .unwrap_or_default();
        system.push_str(&catalogue(&request.tools, form));
        require_call(&mut system, &request.tool_choice);
        match form {
            Form::Structured => {
                let output = request.output.as_deref();
                let schema = structured::schema(&request.tools, &request.tool_choice, output);
                request.output = Some(schema.into());
            }
            // A schema on the reply would prevent the model from calling tools.
            Form::Text => {
                if let Some(output) = request.output.take() {
                    let _ = write!(
                        system,
                        "\nAn answer is only JSON, of this JSON Schema: {}\n",
                        output.schema
                    );
                }
            }
        }
        request.system = Some(system.into());
    }
    request.tools = Arc::default();
    request.tool_choice = ToolChoice::Auto;
    request.history = rewritten(&request.history, form);
    request
}

/// Lists the tools in the form that models know from training: one JSON object per line.
fn catalogue(tools: &[Arc<ToolSpec>], form: Form) -> String {
    let mut text =
        "# Tools\n\nYou can call these functions to help with the question:\n<tools>\n".to_owned();
    for tool in tools {
        let function =
            json!({"name": tool.name, "description": tool.description, "parameters": tool.input});
        let _ = writeln!(
            text,
            "{}",
            json!({"type": "function", "function": function})
        );
    }
    text.push_str("</tools>\n\n");
    text.push_str(call_instructions(form));
    text.push('\n');
    text
}

/// Returns the call instructions. Small models that may answer in words never call a tool.
fn call_instructions(form: Form) -> &'static str {
    match form {
        Form::Structured => {
            "To call a function, reply with {\"reply\": {\"name\": <function name>, \"arguments\": \
                <its arguments>}}. \
             If no function helps, reply with {\"reply\": {\"answer\": <text>}}."
        }
        Form::Text => {
            "For each call, write a JSON object with the name and the arguments of the function \
                within <tool_call></tool_call> \
             tags:\n<tool_call>\n{\"name\": <function name>, \"arguments\": <its \
             arguments>}\n</tool_call>\n\
             The results come in the next message."
        }
    }
}

/// Adds the instruction for a choice that requires a call.
fn require_call(system: &mut String, choice: &ToolChoice) {
    match choice {
        ToolChoice::Required => system.push_str("\nNow you must call a tool.\n"),
        ToolChoice::Tool(name) => {
            let _ = write!(system, "\nNow you must call the tool `{name}`.\n");
        }
        _ => {}
    }
}

/// Returns the conversation with calls and results as text. The same message always produces the
/// same text, so that provider caches remain valid.
fn rewritten(history: &History, form: Form) -> History {
    let mut words = History::new();
    for message in history.messages() {
        let message = match message.role {
            Role::Tool => Arc::new(results(message)),
            _ if message.calls().next().is_some() => Arc::new(calls(message, form)),
            _ => message.clone(),
        };
        // The message neither calls nor answers.
        let _ = words.push(message);
    }
    words
}

/// Returns a message with its calls as text. Calls that were parsed from text return in the model's
/// own words.
fn calls(message: &Message, form: Form) -> Message {
    let mut parts: Vec<Part> = Vec::new();
    let own = text_calls::source_text(message);
    for part in &message.parts {
        match part {
            Part::ToolCall(_) if own.is_some() => {}
            Part::ToolCall(call) => append_text(&mut parts, "\n", &call_text(call, form)),
            part => parts.push(part.clone()),
        }
    }
    // The source text of the calls ended the reply, in a form that the model knows.
    if let Some(own) = own {
        append_text(&mut parts, "", own);
    }
    Message::new(message.role, parts)
}

/// Appends text to the last text part, or adds a new one.
fn append_text(parts: &mut Vec<Part>, between: &str, words: &str) {
    match parts.last_mut() {
        Some(Part::Text(text)) if text.opaque.is_none() => {
            text.text.push_str(between);
            text.text.push_str(words);
        }
        _ => parts.push(Part::text(words)),
    }
}

/// Arguments that were not valid JSON appear as the model wrote them, so that it sees its own
/// mistake.
fn call_text(call: &ToolCall, form: Form) -> String {
    let args = call.raw.clone().unwrap_or_else(|| call.args.to_string());
    match form {
        Form::Structured => structured::format_call(&call.name, &args),
        Form::Text => {
            let args = if args.trim().is_empty() { "{}" } else { &args };
            format!(
                "<tool_call>{{\"name\": \"{}\", \"arguments\": {args}}}</tool_call>",
                call.name
            )
        }
    }
}

/// Returns tool results as a user message. Media follow the text, because text cannot contain them.
fn results(message: &Message) -> Message {
    let mut text = String::new();
    let mut media = Vec::new();
    for result in message.results() {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&result_text(result));
        media.extend(result.content.iter().filter_map(|content| match content {
            Content::Media(media) => Some(Part::Media(media.clone())),
            _ => None,
        }));
    }
    Message::new(Role::User, std::iter::once(Part::text(text)).chain(media))
}

/// Returns one result in its tags: `<tool_response name="add">`, then the text, then the end tag. A
/// failed result has `status="failed"`.
fn result_text(result: &ToolResult) -> String {
    let failed = if result.is_error() {
        " status=\"failed\""
    } else {
        ""
    };
    format!(
        "<tool_response name=\"{}\"{failed}>\n{}\n</tool_response>",
        result.name,
        result.text()
    )
}
