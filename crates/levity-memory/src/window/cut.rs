//! Texts and results made shorter.

use std::sync::Arc;

use levity_core::{Content, Message, Part, Role, ToolCall, ToolResult, estimate_tokens};

/// What the words about what was left out may take, in tokens.
pub(super) const NOTE: u64 = 48;

/// The text, or its beginning and end within so many tokens, with `note` between them on how much
/// is missing.
pub(super) fn cut(text: &str, tokens: u64, way: &str) -> Option<String> {
    if estimate_tokens(text) <= tokens {
        return None;
    }
    let room = tokens.saturating_sub(NOTE);
    let head = &text[..head(text, room / 3 * 2)];
    let rest = &text[head.len()..];
    let back = rest
        .char_indices()
        .rev()
        .map(|(at, c)| (rest.len() - at, c));
    let tail = &rest[rest.len() - within(back, room / 3)..];
    let missing = rest.len() - tail.len();
    let way = if way.is_empty() {
        String::new()
    } else {
        format!("; {way}")
    };
    Some(format!(
        "{head}\n[{missing} of {} bytes are left out here{way}]\n{tail}",
        text.len()
    ))
}

/// How many bytes of a text, from its beginning, have no more than so many tokens.
pub(super) fn head(text: &str, tokens: u64) -> usize {
    within(
        text.char_indices().map(|(at, c)| (at + c.len_utf8(), c)),
        tokens,
    )
}

/// How many bytes of the characters, each given with where it ends, have no more than so many
/// tokens.
fn within(characters: impl Iterator<Item = (usize, char)>, tokens: u64) -> usize {
    let mut quarters = tokens.saturating_mul(4);
    let mut end = 0;
    for (at, character) in characters {
        let cost = if character.is_ascii() { 1 } else { 4 };
        let Some(left) = quarters.checked_sub(cost) else {
            break;
        };
        (quarters, end) = (left, at);
    }
    end
}

/// The message with each of its results within so many tokens; `None` when nothing had to be cut.
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
    let way = match reader {
        // Words around what is left out must not be longer than what is shown.
        _ if reader.is_empty() || result.call.as_str().len() > 64 => String::new(),
        reader => {
            format!(
                "read them with `{reader}` {{\"id\": {}, \"offset\": 0}}",
                quoted(result.call.as_str())
            )
        }
    };
    let mut shown = cut(&text, tokens, &way).unwrap_or_else(|| text.into_owned());
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

/// The message with its text within so many tokens, and nothing but text.
pub(super) fn text(message: &Message, tokens: u64) -> Option<Arc<Message>> {
    if message.tokens() <= tokens {
        return None;
    }
    let text = message.text();
    let left = message
        .parts
        .iter()
        .filter(|part| !matches!(part, Part::Text(_)))
        .count();
    let mut shown = cut(&text, tokens.saturating_sub(8), "").unwrap_or_else(|| text.into_owned());
    if left > 0 {
        shown.push_str("\n[images or other parts of this message are left out]");
    }
    Some(Arc::new(Message::new(message.role, [Part::text(shown)])))
}

/// What stands in place of a step that is too long to be shown at all.
pub(super) fn stand_in(message: &Message, tokens: u64) -> Arc<Message> {
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
    let note = cut(&note, tokens.max(NOTE), "").unwrap_or(note);
    Arc::new(Message::new(Role::User, [Part::text(note)]))
}
