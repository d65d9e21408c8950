//! Shortening of texts and results.
//!
//! A cut shows two thirds of its room from the beginning and one third from the end, with a note in
//! between. Replies of the model are never cut, because their reasoning must stay unchanged; they
//! are shown whole or replaced by a note.

use std::sync::Arc;

use levity_core::{Content, Message, Part, Role, ToolCall, ToolResult, estimate_tokens};

/// The maximum size of a note on omitted content, in tokens.
pub(super) const NOTE_TOKENS: u64 = 48;

/// Returns the beginning and end of a text within so many tokens, with a note on the omitted part;
/// `None` if the text fits.
pub(super) fn cut(text: &str, tokens: u64, hint: &str) -> Option<String> {
    if estimate_tokens(text) <= tokens {
        return None;
    }
    let room = tokens.saturating_sub(NOTE_TOKENS);
    let prefix_len = &text[..prefix_len(text, room / 3 * 2)];
    let rest = &text[prefix_len.len()..];
    let backwards = rest
        .char_indices()
        .rev()
        .map(|(at, c)| (rest.len() - at, c));
    let tail = &rest[rest.len() - len_within(backwards, room / 3)..];
    let missing = rest.len() - tail.len();
    let hint = if hint.is_empty() {
        String::new()
    } else {
        format!("; {hint}")
    };
    Some(format!(
        "{prefix_len}\n[{missing} of {} bytes are left out here{hint}]\n{tail}",
        text.len()
    ))
}

/// Returns the length in bytes of the longest prefix of a text within so many tokens.
pub(super) fn prefix_len(text: &str, tokens: u64) -> usize {
    len_within(
        text.char_indices().map(|(at, c)| (at + c.len_utf8(), c)),
        tokens,
    )
}

/// Returns the number of bytes of the leading characters, each with its end position, that fit into
/// so many tokens.
fn len_within(characters: impl Iterator<Item = (usize, char)>, tokens: u64) -> usize {
    let mut quarters = tokens.saturating_mul(4);
    let mut end = 0;
    for (at, character) in characters {
        let cost = if character.is_ascii() { 1 } else { 4 };
        let Some(others) = quarters.checked_sub(cost) else {
            break;
        };
        (quarters, end) = (others, at);
    }
    end
}

/// Returns the message with each result within so many tokens; `None` if nothing was cut.
pub(super) fn results(message: &Message, tokens: u64, reader: &str) -> Option<Arc<Message>> {
    let parts: Vec<Part> = message
        .parts
        .iter()
        .map(|part| match part {
            Part::ToolResult(result) => Part::ToolResult(result_within(result, tokens, reader)),
            part => part.clone(),
        })
        .collect();
    let cut = Message::new(message.role, parts);
    (cut != *message).then(|| Arc::new(cut))
}

fn result_within(result: &ToolResult, tokens: u64, reader: &str) -> ToolResult {
    let media = result
        .content
        .iter()
        .filter(|content| matches!(content, Content::Media(_)))
        .count();
    let text = result.text();
    let fits = media == 0 && estimate_tokens(&text) <= tokens;
    if fits {
        return result.clone();
    }
    let hint = match reader {
        // The hint must not be longer than the content that is shown.
        _ if reader.is_empty() || result.call.as_str().len() > 64 => String::new(),
        reader => {
            format!(
                "read them with `{reader}` {{\"id\": {}, \"offset\": 0}}",
                quoted(result.call.as_str())
            )
        }
    };
    let mut shown = cut(&text, tokens, &hint).unwrap_or_else(|| text.into_owned());
    if media > 0 {
        shown.push_str(&format!("\n[{media} images or other media are left out]"));
    }
    let mut short = result.clone();
    (short.content, short.value, short.whole) = (vec![Content::Text(shown)], None, None);
    short
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Returns the message as text only, within so many tokens; `None` if it fits.
pub(super) fn text(message: &Message, tokens: u64) -> Option<Arc<Message>> {
    if message.tokens() <= tokens {
        return None;
    }
    let text = message.text();
    let others = message
        .parts
        .iter()
        .filter(|part| !matches!(part, Part::Text(_)))
        .count();
    let mut shown = cut(&text, tokens.saturating_sub(8), "").unwrap_or_else(|| text.into_owned());
    if others > 0 {
        shown.push_str("\n[images or other parts of this message are left out]");
    }
    Some(Arc::new(Message::new(message.role, [Part::text(shown)])))
}

/// Returns the placeholder for a step that is too long to be shown.
pub(super) fn placeholder(message: &Message, tokens: u64) -> Arc<Message> {
    let mut names: Vec<&str> = message
        .calls()
        .map(|call: &ToolCall| call.name.as_str())
        .collect();
    names.dedup();
    let names = names
        .iter()
        .take(8)
        .map(|name| format!("`{}`", name.chars().take(64).collect::<String>()));
    let called = names.collect::<Vec<_>>().join(", ");
    let note = match called.is_empty() {
        true => "[A message is left out here, since it is too long to be shown.]".to_owned(),
        false => format!(
            "[A step is left out here, since it is too long to be shown: {called} was called and \
                answered.]"
        ),
    };
    let note = cut(&note, tokens.max(NOTE_TOKENS), "").unwrap_or(note);
    Arc::new(Message::new(Role::User, [Part::text(note)]))
}
