//! Char boundaries at which a text can be cut.

use levity_core::text::head;

/// Returns the last char boundary at or before `at`.
pub(crate) fn floor(text: &str, at: usize) -> usize {
    head(text, at).len()
}

/// Returns the first char boundary at or after `at`.
#[cfg(feature = "web")]
pub(crate) fn ceil(text: &str, at: usize) -> usize {
    (at..text.len())
        .find(|&at| text.is_char_boundary(at))
        .unwrap_or(text.len())
}
