//! Rerankers: over HTTP, and by a model that compares texts.

#[cfg(feature = "compatible")]
mod http;
mod judge;

#[cfg(feature = "compatible")]
pub use http::HttpReranker;
pub use judge::ModelReranker;

/// Returns the start of a text with at most this many bytes, without a part of a character.
fn cut(text: &str, bytes: usize) -> &str {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
