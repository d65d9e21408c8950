//! Messages as JSON that can be read again.

use levity_core::{ConversationId, MemoryError, MemoryErrorKind, Message};

/// How deep a message may be nested. `serde_json` reads 128 levels, and a file has some around it.
const DEEP: usize = 120;

/// A message as JSON.
pub(crate) fn write(
    id: &ConversationId,
    position: u64,
    message: &Message,
) -> Result<String, MemoryError> {
    let refused = |why: String| {
        let message = format!("message {position} of conversation `{id}` {why}");
        MemoryError::new(MemoryErrorKind::Refused, message)
    };
    let text = serde_json::to_string(message);
    let text =
        text.map_err(|error| refused("cannot be written as JSON".to_owned()).with_source(error))?;
    if depth(text.as_bytes()) > DEEP {
        return Err(refused(format!(
            "is nested deeper than {DEEP} levels, and could not be read again"
        )));
    }
    Ok(text)
}

/// Checks that a message can be read again.
pub(crate) fn check(
    id: &ConversationId,
    position: u64,
    message: &Message,
) -> Result<(), MemoryError> {
    write(id, position, message).map(drop)
}

/// A message that was kept.
#[cfg(feature = "sqlite")]
pub(crate) fn read(id: &ConversationId, position: u64, text: &str) -> Result<Message, MemoryError> {
    serde_json::from_str(text).map_err(|error| {
        // What the error says may quote the message.
        let what = format!(
            "message {position} is not as it should be, at byte {}",
            error.column()
        );
        MemoryError::damaged(id, &what)
    })
}

/// How deep the values of a text are nested.
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
