//! Truncation of texts at character boundaries.

/// Returns the start of `text`, at most `max` bytes long and never cut within a character.
pub(crate) fn truncate(text: &str, max: usize) -> &str {
    if text.len() <= max {
        return text;
    }
    let end = (0..=max)
        .rev()
        .find(|&end| text.is_char_boundary(end))
        .unwrap_or(0);
    &text[..end]
}
