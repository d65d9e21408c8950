//! What a model without tool calls is told instead.

use std::fmt::Write as _;
use std::sync::Arc;

use levity_core::{
    Content, History, Message, Part, Request, Role, ToolCall, ToolChoice, ToolResult, ToolSpec,
};

use serde_json::json;

use super::structured;
use crate::rescue;

/// How calls are written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Form {
    Text,
    Structured,
}

/// Whether the request offers tools.
fn offers(request: &Request) -> bool {
    !request.tools.is_empty() && request.tool_choice != ToolChoice::None
}

/// The request as a model understands it that has no tool calls.
pub(super) fn plain(mut request: Request, form: Form) -> Request {
    if offers(&request) {
        let mut system = request
            .system
            .as_deref()
            .map(|system| format!("{system}\n\n"))
            .unwrap_or_default();
        system.push_str(&catalogue(&request.tools, form));
        must(&mut system, &request.tool_choice);
        match form {
            Form::Structured => {
                let output = request.output.as_deref();
                let schema = structured::schema(&request.tools, &request.tool_choice, output);
                request.output = Some(schema.into());
            }
            // Held to its shape, the model could not call.
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

/// The tools as models know them from their training: one JSON object a line.
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
    text.push_str(how(form));
    text.push('\n');
    text
}

/// How to call. Small models that are told that they may answer in words call nothing at all.
fn how(form: Form) -> &'static str {
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

fn must(system: &mut String, choice: &ToolChoice) {
    match choice {
        ToolChoice::Required => system.push_str("\nNow you must call a tool.\n"),
        ToolChoice::Tool(name) => {
            let _ = write!(system, "\nNow you must call the tool `{name}`.\n");
        }
        _ => {}
    }
}

/// The conversation with calls and results in words. Each message becomes the same one each time,
/// so that what a provider has in its cache stays of use.
fn rewritten(history: &History, form: Form) -> History {
    let mut words = History::new();
    for message in history.messages() {
        let message = match message.role {
            Role::Tool => Arc::new(results(message)),
            _ if message.calls().next().is_some() => Arc::new(calls(message, form)),
            _ => message.clone(),
        };
        // It neither calls nor answers.
        let _ = words.say(message);
    }
    words
}

fn calls(message: &Message, form: Form) -> Message {
    let mut parts: Vec<Part> = Vec::new();
    let own = rescue::written(message);
    for part in &message.parts {
        match part {
            Part::ToolCall(_) if own.is_some() => {}
            Part::ToolCall(call) => say(&mut parts, "\n", &call_words(call, form)),
            part => parts.push(part.clone()),
        }
    }
    // It ended the reply, in a form that the model knows.
    if let Some(own) = own {
        say(&mut parts, "", own);
    }
    Message::new(message.role, parts)
}

/// Adds words to the text at the end, or as a text of their own.
fn say(parts: &mut Vec<Part>, between: &str, words: &str) {
    match parts.last_mut() {
        Some(Part::Text(text)) if text.opaque.is_none() => {
            text.text.push_str(between);
            text.text.push_str(words);
        }
        _ => parts.push(Part::text(words)),
    }
}

fn call_words(call: &ToolCall, form: Form) -> String {
    let args = call.raw.clone().unwrap_or_else(|| call.args.to_string());
    match form {
        Form::Structured => structured::written(&call.name, &args),
        Form::Text => {
            let args = if args.trim().is_empty() { "{}" } else { &args };
            format!(
                "<tool_call>{{\"name\": \"{}\", \"arguments\": {args}}}</tool_call>",
                call.name
            )
        }
    }
}

fn results(message: &Message) -> Message {
    let mut text = String::new();
    let mut media = Vec::new();
    for result in message.results() {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&result_words(result));
        media.extend(result.content.iter().filter_map(|content| match content {
            Content::Media(media) => Some(Part::Media(media.clone())),
            _ => None,
        }));
    }
    Message::new(Role::User, std::iter::once(Part::text(text)).chain(media))
}

fn result_words(result: &ToolResult) -> String {
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
