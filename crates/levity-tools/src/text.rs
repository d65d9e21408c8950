//! Cuts texts at character boundaries.

use std::fmt::{self, Display, Formatter, Write};

/// Returns the last char boundary at or before `at`.
pub(crate) fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len()))
        .rev()
        .find(|&at| text.is_char_boundary(at))
        .unwrap_or(0)
}

/// Returns the first char boundary at or after `at`.
pub(crate) fn ceil(text: &str, at: usize) -> usize {
    (at..text.len())
        .find(|&at| text.is_char_boundary(at))
        .unwrap_or(text.len())
}

/// Shows the first `1` bytes of `0`; what is beyond them is not even formatted.
pub(crate) struct Truncated<T>(pub(crate) T, pub(crate) usize);

impl<T: Display> Display for Truncated<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut cut = Cut {
            out: f,
            left: self.1,
            full: false,
        };
        let result = write!(cut, "{}", self.0);
        // A full writer has failed on purpose, to stop the formatting.
        if cut.full { f.write_str("…") } else { result }
    }
}

struct Cut<'a, 'f> {
    out: &'a mut Formatter<'f>,
    left: usize,
    full: bool,
}

impl Write for Cut<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = floor(text, self.left);
        self.out.write_str(&text[..end])?;
        self.left -= end;
        self.full |= end < text.len();
        if self.full { Err(fmt::Error) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(text: impl Display, max: usize, expected: &str) {
        assert_eq!(Truncated(text, max).to_string(), expected);
    }

    #[test]
    fn short_text_is_complete_and_long_text_ends_in_ellipsis() {
        check("abc", 3, "abc");
        check("abcd", 3, "abc…");
        check("", 0, "");
        check("a", 0, "…");
        check(json!({"a": ["x".repeat(1000)]}), 9, r#"{"a":["xx…"#);
    }

    #[test]
    fn char_is_never_split() {
        for max in 1..4 {
            check("é😀é", max + 1, "é…");
        }
        check("é😀é", 6, "é😀…");
        assert_eq!(
            (floor("é", 1), ceil("é", 1), floor("é", 9), ceil("é", 9)),
            (0, 2, 2, 2)
        );
    }
}
