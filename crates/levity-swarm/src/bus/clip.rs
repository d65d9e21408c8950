//! Cuts message content to the limit of the bus.

use std::sync::Arc;

use levity_core::text;

/// The maximum length of the line that states how much of a text is missing.
const MARK: usize = 64;

/// Returns the text if it has at most `max_bytes`. Otherwise returns its beginning and a line with
/// the missing size, in `max_bytes` together. If that line does not fit, returns the beginning
/// alone.
pub(super) fn clipped(text: Arc<str>, max_bytes: usize) -> Arc<str> {
    if text.len() <= max_bytes {
        return text;
    }
    match max_bytes.checked_sub(MARK) {
        Some(room) => text::clipped(&text, room).into(),
        None => text::head(&text, max_bytes).into(),
    }
}
