use std::sync::Arc;

/// The text, if it has at most `max` bytes; else as much of its beginning as leaves room for a mark that says how
/// long it was. Where not even the mark has room, the beginning alone.
pub(crate) fn clipped(text: Arc<str>, max: usize) -> Arc<str> {
    if text.len() <= max {
        return text;
    }
    let mark = format!(" […cut: {} bytes in all]", text.len());
    match max.checked_sub(mark.len()) {
        Some(room) => format!("{}{mark}", beginning(&text, room)).into(),
        None => beginning(&text, max).into(),
    }
}

/// At most `max` bytes from the start, cut between two letters.
pub(crate) fn beginning(text: &str, max: usize) -> &str {
    let mut end = max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
