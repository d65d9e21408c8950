use std::sync::Arc;

use levity_core::text;

/// How long the line can be that says how much of a text is missing.
const MARK: usize = 64;

/// The text, if it has at most `most` bytes; else its first bytes and a line that says how much is
/// missing, in no more than `most` bytes together. Where that line has no room, the first bytes
/// alone.
pub(super) fn clipped(text: Arc<str>, most: usize) -> Arc<str> {
    if text.len() <= most {
        return text;
    }
    match most.checked_sub(MARK) {
        Some(room) => text::clipped(&text, room).into(),
        None => text::head(&text, most).into(),
    }
}
