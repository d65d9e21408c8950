//! Messages as JSON that can be read back.
//!
//! A store must never accept a message that it cannot return. JSON parsers limit the nesting, so it
//! is checked when a message is written.

use levity_core::{ConversationId, MemoryError, MemoryErrorKind, Message};

/// The maximum nesting depth of a message. `serde_json` reads 128 levels, and the file adds some.
const MAX_DEPTH: usize = 120;

/// Serializes a message as JSON.
pub(crate) fn write(
    id: &ConversationId,
    position: u64,
    message: &Message,
) -> Result<String, MemoryError> {
    let rejected = |reason: String| {
        let message = format!("message {position} of conversation `{id}` {reason}");
        MemoryError::new(MemoryErrorKind::Refused, message)
    };
    let text = serde_json::to_string(message);
    let text = text.map_err(|error| {
        rejected(
            "cannot be serialized as \
            JSON"
                .to_owned(),
        )
        .with_source(error)
    })?;
    if depth(text.as_bytes()) > MAX_DEPTH {
        return Err(rejected(format!(
            "is nested deeper than {MAX_DEPTH} levels and could not be read back; reduce its \
                nesting"
        )));
    }
    Ok(text)
}

/// Checks that a message can be read back.
pub(crate) fn check(
    id: &ConversationId,
    position: u64,
    message: &Message,
) -> Result<(), MemoryError> {
    write(id, position, message).map(drop)
}

/// Parses a stored message.
#[cfg(feature = "sqlite")]
pub(crate) fn read(id: &ConversationId, position: u64, text: &str) -> Result<Message, MemoryError> {
    serde_json::from_str(text).map_err(|error| {
        // The text of the JSON error may quote the message, so it is left out.
        let detail = format!(
            "message {position} is not a valid message, at byte {}",
            error.column()
        );
        MemoryError::damaged(id, &detail)
    })
}

/// Returns the maximum nesting depth of a JSON text.
fn depth(text: &[u8]) -> usize {
    let (mut depth, mut deepest, mut quoted, mut escaped) = (0usize, 0, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' | b'[' if !quoted => depth += 1,
            b'}' | b']' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}
