//! Char boundaries at which a text can be cut.
//!
//! A limit counts bytes, and a cut in the middle of a character would panic. Every cut in this
//! crate goes through one of these functions.

use levity_core::text::head;

/// Returns the last char boundary at or before `at`.
///
/// A position beyond the end gives the length of the text: `floor("é", 1)` is 0, and `floor("é",
/// 9)` is 2.
pub(crate) fn floor(text: &str, at: usize) -> usize {
    head(text, at).len()
}

/// Returns the first char boundary at or after `at`.
///
/// A position beyond the end gives the length of the text: `ceil("é", 1)` is 2.
#[cfg(feature = "web")]
pub(crate) fn ceil(text: &str, at: usize) -> usize {
    (at..text.len())
        .find(|&at| text.is_char_boundary(at))
        .unwrap_or(text.len())
}
