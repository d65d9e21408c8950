//! Tells from errors and counts what a server does with tools.

use levity_core::{ModelError, ModelErrorKind, Request};

/// Ways to say that something is not there.
const REFUSALS: [&str; 13] = [
    "not support",
    "unsupported",
    "no endpoints found that support",
    "requires --jinja",
    "--enable-auto-tool-choice",
    "not implemented",
    "not permitted",
    "not allowed",
    "not available",
    "unrecognized",
    "unknown field",
    "unknown parameter",
    "extra inputs",
];

/// No tokenizer needs fewer tokens for a schema than one for this many bytes, nor for words.
const BYTES_OF_TOOLS: u64 = 8;
const BYTES_OF_WORDS: u64 = 5;

/// Returns whether the server says that it takes no tools.
pub(crate) fn refuses_tools(error: &ModelError) -> bool {
    says(
        error,
        &[
            "tools",
            "tool choice",
            "tool_choice",
            "tool use",
            "tool call",
            "function call",
        ],
    )
}

/// Returns whether the server says that it takes no schema for replies.
pub(crate) fn refuses_schema(error: &ModelError) -> bool {
    says(
        error,
        &[
            "response_format",
            "json_schema",
            "json schema",
            "grammar",
            "structured output",
            "format",
        ],
    )
}

fn says(error: &ModelError, subjects: &[&str]) -> bool {
    if !matches!(
        error.kind(),
        ModelErrorKind::BadRequest | ModelErrorKind::Server | ModelErrorKind::Malformed
    ) {
        return false;
    }
    let text = error.to_string().to_lowercase();
    subjects.iter().any(|subject| text.contains(subject))
        && REFUSALS.iter().any(|refusal| text.contains(refusal))
}

/// The first line of an error, for a notice.
pub(super) fn first_line(error: &ModelError) -> String {
    let text = error.to_string();
    levity_core::text::clipped(text.lines().next().unwrap_or_default(), 200).into()
}

/// Returns whether a server that counted so many tokens cannot have shown the tools to the model.
/// Long conversations cannot tell, since estimates of their tokens differ by more than the tools
/// have.
pub(super) fn drops_tools(request: &Request, counted: u64) -> bool {
    let words = request
        .system
        .as_ref()
        .map_or(0, |system| system.len() as u64);
    let messages = request.history.messages().iter();
    let words = messages.fold(words, |words, message| words + message.text().len() as u64);
    let tools: u64 = request
        .tools
        .iter()
        .map(|tool| {
            (tool.name.len() + tool.description.len() + tool.input.to_string().len()) as u64
        })
        .sum();
    let plausible = counted >= words / (2 * BYTES_OF_TOOLS);
    plausible && words <= 2 * tools && counted < words / BYTES_OF_WORDS + tools / BYTES_OF_TOOLS
}
