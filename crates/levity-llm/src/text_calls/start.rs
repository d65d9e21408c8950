//! Decides from as few characters as possible whether a text may start a call.
//!
//! Text must reach the user without delay, so the decision cannot wait for the end of the reply.
//! The functions look at a growing prefix: [`candidate`] finds the next position where a call may
//! begin, and [`classify`] decides on the text from there. An answer of [`Start::Unknown`] holds
//! the text back until the next chunk; it must not last, so each form gives up after a few
//! characters.

use std::sync::Arc;

use levity_core::ToolSpec;

use super::forms::{FENCE, OPENERS};
use super::value::{ARGUMENTS, EXTRA_KEYS, NAMES, WRAPPERS};

/// The decision on the start of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// The text starts like a call of an offered tool; its end decides.
    Call,
    /// More characters are needed for a decision.
    Unknown,
    /// The text is not a call.
    Text,
}

/// The languages of fences in which models write calls.
const LANGUAGES: [&str; 12] = [
    "",
    "json",
    "jsonc",
    "tool_call",
    "tool_code",
    "tool",
    "function",
    "function_call",
    "xml",
    "text",
    "python",
    "plaintext",
];

/// Returns the position in `held` where a call may start: at the start of a line, after a colon, or
/// at an explicit marker.
///
/// Text before the position cannot be part of a call and is forwarded. Markers in Markdown code
/// (after a back quote) are quotations. The result is the length of `held` if there is no such
/// position.
pub(super) fn candidate(lead_in: &str, held: &str, tools: &[Arc<ToolSpec>]) -> usize {
    let mut before = lead_in
        .chars()
        .rev()
        .find(|char| !matches!(char, ' ' | '\t'));
    let mut quoted = lead_in.ends_with('`');
    let mut word = lead_in.ends_with(|char: char| char.is_alphanumeric() || char == '_');
    for (at, char) in held.char_indices() {
        let line = matches!(before, None | Some('\n'));
        let here = match char {
            '{' => line || before == Some(':'),
            '`' => line,
            '[' | '<' => !quoted,
            '>' | 'f' | 'A' | 'T' if line => true,
            _ if line && !word => may_be_name(&held[at..], tools),
            _ => false,
        };
        if here {
            return at;
        }
        quoted = char == '`';
        word = char.is_alphanumeric() || char == '_';
        if !matches!(char, ' ' | '\t') {
            before = Some(char);
        }
    }
    held.len()
}

/// Either text may be a prefix of the other, because the name may still be incomplete.
fn may_be_name(text: &str, tools: &[Arc<ToolSpec>]) -> bool {
    let begins = |name: &str| text.starts_with(name) || name.starts_with(text);
    tools.iter().any(|tool| begins(&tool.name)) || begins("functions.")
}

/// Classifies a text at a position where a call may start.
///
/// A text may match two forms; if one of them still needs more characters, the answer is unknown.
pub(super) fn classify(text: &str, tools: &[Arc<ToolSpec>]) -> Start {
    let text = text.trim_start();
    match text.chars().next() {
        None => Start::Unknown,
        Some('`') => fence(text, tools),
        Some('{') => object(text, tools),
        Some('<' | '[') => opener(text, tools),
        Some(_) => match (opener(text, tools), name(text, tools)) {
            (Start::Text, start) | (start, Start::Text) => start,
            (Start::Call, _) | (_, Start::Call) => Start::Call,
            _ => Start::Unknown,
        },
    }
}

/// The block must have a language in which models write calls, and its body must start like a call.
fn fence(text: &str, tools: &[Arc<ToolSpec>]) -> Start {
    let Some(rest) = text.strip_prefix(FENCE) else {
        return if FENCE.starts_with(text) {
            Start::Unknown
        } else {
            Start::Text
        };
    };
    let Some((language, body)) = rest.split_once('\n') else {
        let language = rest.trim();
        let known = LANGUAGES.iter().any(|known| known.starts_with(language));
        return if known { Start::Unknown } else { Start::Text };
    };
    if !LANGUAGES.contains(&language.trim()) {
        return Start::Text;
    }
    match body.trim_start() {
        "" => Start::Unknown,
        body if body.starts_with('`') => Start::Text,
        body if language.trim() == "tool_code" && body.starts_with("print(") => Start::Call,
        body if language.trim() == "tool_code" && "print(".starts_with(body) => Start::Unknown,
        body => classify(body, tools),
    }
}

/// An explicit marker is a call at once. A list is judged by its first element.
fn opener(text: &str, tools: &[Arc<ToolSpec>]) -> Start {
    if OPENERS.iter().any(|opener| text.starts_with(opener)) {
        return Start::Call;
    }
    if OPENERS.iter().any(|opener| opener.starts_with(text)) {
        return Start::Unknown;
    }
    match text.strip_prefix('[').map(str::trim_start) {
        None => Start::Text,
        Some("") => Start::Unknown,
        Some(item) if item.starts_with('{') => object(item, tools),
        Some(item) => name(item, tools),
    }
}

/// Classifies an object. It is a call if its first key is one that calls have, and a leading name
/// is an offered one.
///
/// Comments before the first key are skipped. Without a complete key, up to 256 bytes are held
/// back.
fn object(text: &str, tools: &[Arc<ToolSpec>]) -> Start {
    let mut inside = text[1..].trim_start();
    while let Some((_, after)) = inside
        .strip_prefix("//")
        .and_then(|comment| comment.split_once('\n'))
    {
        inside = after.trim_start();
    }
    let Some((key, rest)) = key(inside) else {
        return if text.len() < 256 && !text.contains('}') {
            Start::Unknown
        } else {
            Start::Text
        };
    };
    if NAMES.contains(&key) {
        let value = rest.trim_start();
        return match value.strip_prefix(['"', '\'']) {
            Some(name) => match name.split_once(['"', '\'']) {
                Some((name, _)) if super::value::offered_tool(name, tools).is_some() => Start::Call,
                Some(_) => Start::Text,
                None if name.len() > 128 => Start::Text,
                None => Start::Unknown,
            },
            // `{"function": {"name": ..}}`
            None if value.starts_with('{') && WRAPPERS.contains(&key) => object(value, tools),
            None if value.is_empty() => Start::Unknown,
            None => Start::Text,
        };
    }
    let known = WRAPPERS.contains(&key) || ARGUMENTS.contains(&key) || EXTRA_KEYS.contains(&key);
    if known { Start::Call } else { Start::Text }
}

/// Returns the first key inside an object, and the text after its colon.
///
/// The key may have double, single or no quotes. The result is `None` while the colon is missing.
fn key(text: &str) -> Option<(&str, &str)> {
    let (key, rest) = match text.strip_prefix(['"', '\'']) {
        Some(text) => text.split_once(['"', '\''])?,
        None => {
            let end = text.find(|char: char| !(char.is_alphanumeric() || char == '_'))?;
            text.split_at(end)
        }
    };
    Some((key, rest.trim_start().strip_prefix(':')?))
}

/// Classifies `name(..)`, `functions.name(..)`, `name {..}` or a name on a separate line.
fn name(text: &str, tools: &[Arc<ToolSpec>]) -> Start {
    let bare = text.strip_prefix("functions.").unwrap_or(text);
    let mut start = if "functions.".starts_with(text) {
        Start::Unknown
    } else {
        Start::Text
    };
    for tool in tools {
        if tool.name.starts_with(bare) {
            start = Start::Unknown;
        } else if let Some(rest) = bare.strip_prefix(&*tool.name) {
            match rest.trim_start().chars().next() {
                Some('(' | '{') => return Start::Call,
                None => start = Start::Unknown,
                Some(_) => {}
            }
        }
    }
    start
}
