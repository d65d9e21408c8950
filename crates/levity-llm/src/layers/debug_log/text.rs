//! Human-readable text of requests and replies.
//!
//! The form is for reading, not for parsing: a header, then one section per message under `--- role
//! ---`. Media appear as type and size only. Structured values are masked as JSON before they
//! become text, because the name of a key often shows that its value is secret; [`super::DebugLog`]
//! masks the complete text once more.

use std::fmt::Write as _;

use levity_core::{
    Content, MediaSource, Message, ModelCard, ModelError, Part, Request, Response, Role, ToolResult,
};

use crate::layers::Scrub;

/// Returns the whole prompt: model, options, system prompt, tools, schema and conversation.
pub(super) fn prompt(card: &ModelCard, request: &Request, scrub: &Scrub) -> String {
    let mut text = format!("model: {}/{}\n", card.provider, card.id);
    let options = scrub.value(serde_json::to_value(&*request.options).unwrap_or_default());
    let _ = writeln!(text, "options: {options}");
    if let Some(system) = &request.system {
        section(&mut text, "system", system);
    }
    if !request.tools.is_empty() {
        let tools = request
            .tools
            .iter()
            .map(|tool| format!("{}: {}\n{}", tool.name, tool.description, tool.input));
        section(&mut text, "tools", &tools.collect::<Vec<_>>().join("\n"));
        let _ = writeln!(
            text,
            "choice: {}",
            serde_json::to_string(&request.tool_choice).unwrap_or_default()
        );
    }
    if let Some(output) = &request.output {
        section(
            &mut text,
            "output",
            &format!("{}: {}", output.name, output.schema),
        );
    }
    for message in request.history.messages() {
        section(&mut text, role(message.role), &message_text(message, scrub));
    }
    text
}

/// Returns the reply with its finish reason and usage, or the error with all its causes.
pub(super) fn response(reply: Result<&Response, &ModelError>, scrub: &Scrub) -> String {
    match reply {
        Ok(response) => {
            let finish = serde_json::to_string(&response.finish).unwrap_or_default();
            format!(
                "finish: {finish}\nusage: {}\n\n{}\n",
                response.usage,
                message_text(&response.message, scrub)
            )
        }
        Err(error) => {
            let mut text = format!("error: {:?}: {error}\n", error.kind());
            let mut cause = std::error::Error::source(error);
            while let Some(error) = cause {
                let _ = writeln!(text, "caused by: {error}");
                cause = error.source();
            }
            text
        }
    }
}

/// Returns a result as text. Keys in a structured value may hold secrets, so it is scrubbed.
fn result_text(result: &ToolResult, scrub: &Scrub) -> String {
    match &result.value {
        Some(value) if result.content.is_empty() => scrub.value(value.clone()).to_string(),
        _ => result.text().into_owned(),
    }
}

/// Appends a titled section.
fn section(text: &mut String, name: &str, body: &str) {
    let _ = write!(text, "\n--- {name} ---\n{body}\n");
}

/// A system message within the conversation is called a note, unlike the system prompt.
fn role(role: Role) -> &'static str {
    match role {
        Role::System => "note",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    }
}

fn message_text(message: &Message, scrub: &Scrub) -> String {
    message
        .parts
        .iter()
        .map(|each| part(each, scrub))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Arguments that were not valid JSON appear as the model wrote them.
fn part(part: &Part, scrub: &Scrub) -> String {
    match part {
        Part::Text(text) => text.text.clone(),
        Part::Thinking(thinking) => format!("[thinking] {}", thinking.text),
        Part::ToolCall(call) => {
            let args = call
                .raw
                .clone()
                .unwrap_or_else(|| scrub.value(call.args.clone()).to_string());
            format!("[call {}] {} {args}", call.id, call.name)
        }
        Part::ToolResult(result) => {
            let failed = if result.is_error() { " failed" } else { "" };
            let media = result
                .content
                .iter()
                .filter(|content| matches!(content, Content::Media(_)))
                .count();
            let media = if media > 0 {
                format!(" [and {media} media]")
            } else {
                String::new()
            };
            format!(
                "[result {}] {}{failed}: {}{media}",
                result.call,
                result.name,
                result_text(result, scrub)
            )
        }
        Part::Media(media) => match &media.source {
            MediaSource::Bytes(bytes) => {
                format!("[{}, {} bytes]", media.mime, bytes.as_slice().len())
            }
            MediaSource::Url(url) => format!("[{} at {url}]", media.mime),
            _ => format!("[{}]", media.mime),
        },
        Part::Opaque(opaque) => format!("[data of {}]", opaque.provider),
        _ => "[?]".to_owned(),
    }
}
