//! Infers from errors and token counts how a server handles tools.
//!
//! Servers have no common way to report missing features, so the functions look for phrases. A
//! match needs both a subject ("tools") and a refusal ("not support"), and an error kind that a
//! server uses for rejections. A false match costs one more request in a worse mode; a missed one
//! fails the run with the server's own message.

use levity_core::{ModelError, ModelErrorKind, Request};

/// Phrases in which servers report a missing feature.
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

/// No tokenizer needs less than one token for this many bytes of a schema, or of prose.
const BYTES_OF_TOOLS: u64 = 8;
const BYTES_OF_WORDS: u64 = 5;

/// Returns `true` if the server reports that it does not accept tools.
///
/// Examples: `registry.ollama.ai/library/gemma:2b does not support tools`, and vLLM's hint at
/// `--enable-auto-tool-choice`.
pub(crate) fn refuses_tools(error: &ModelError) -> bool {
    mentions(
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

/// Returns `true` if the server reports that it cannot parse a call that the model wrote.
///
/// Examples: `The model produced output that does not match the expected peg-native format` and
/// `Failed to parse input at pos 12` of llama.cpp, `error parsing tool call: ..` of Ollama.
pub(crate) fn cannot_parse_call(error: &ModelError) -> bool {
    let text = error.to_string().to_lowercase();
    is_answer_of_server(error)
        && [
            "output that does not match the expected",
            "failed to parse input at pos",
            "error parsing tool call",
        ]
        .iter()
        .any(|phrase| text.contains(phrase))
}

/// Returns `true` if the server reports that it does not accept a schema for replies.
pub(crate) fn refuses_schema(error: &ModelError) -> bool {
    mentions(
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

/// An error about a key or a rate is never evidence, whatever its text says.
fn is_answer_of_server(error: &ModelError) -> bool {
    matches!(
        error.kind(),
        ModelErrorKind::BadRequest | ModelErrorKind::Server | ModelErrorKind::Malformed
    )
}

fn mentions(error: &ModelError, subjects: &[&str]) -> bool {
    let text = error.to_string().to_lowercase();
    is_answer_of_server(error)
        && subjects.iter().any(|subject| text.contains(subject))
        && REFUSALS.iter().any(|refusal| text.contains(refusal))
}

/// Returns the first line of an error, for use in a notice.
///
/// At most 200 bytes are kept, because some servers return whole stack traces.
pub(super) fn first_line(error: &ModelError) -> String {
    let text = error.to_string();
    levity_core::text::clipped(text.lines().next().unwrap_or_default(), 200).into()
}

/// Returns `true` if a server that counted this many tokens cannot have shown the tools to the
/// model. Long conversations give no evidence, because their token estimates vary by more than the
/// size of the tools.
///
/// The count must be plausible for the words alone, or the server does not count at all. It must
/// also be lower than the words and the tools need at the very least.
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
