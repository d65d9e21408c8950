//! Printed text in bounded memory.
//!
//! A program may print without end. The beginning and the end are what helps a reader, so the text
//! keeps half of its limit for each, and counts the bytes in between. All cuts are between
//! characters.

use serde::{Deserialize, Serialize};

/// The printed text of a program; if it is long, only its beginning and end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PrintedText {
    head: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    tail: String,
    #[serde(default, skip_serializing_if = "is_zero")]
    cut: u64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde requires a reference"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl PrintedText {
    /// Appends a text; at most `max` bytes are stored in all.
    pub(crate) fn push(&mut self, text: &str, max: usize) {
        let half = max / 2;
        let room = if self.tail.is_empty() && self.cut == 0 {
            half.saturating_sub(self.head.len())
        } else {
            0
        };
        let (first, rest) = text.split_at(floor(text, room));
        self.head.push_str(first);
        // Only the end of a large text can be stored, so no more of it is copied.
        let end = ceil(rest, rest.len().saturating_sub(half));
        self.cut += end as u64;
        if end > 0 {
            self.cut += self.tail.len() as u64;
            self.tail.clear();
        }
        self.tail.push_str(&rest[end..]);
        // The tail is moved rarely, so that small prints do not each move all of it.
        if self.tail.len() > max {
            self.trim(half);
        }
    }

    fn trim(&mut self, half: usize) {
        let start = ceil(&self.tail, self.tail.len().saturating_sub(half));
        self.cut += start as u64;
        self.tail.drain(..start);
    }

    /// Drops the bytes beyond `max` that are stored only for speed.
    pub(crate) fn settle(&mut self, max: usize) {
        self.trim(max / 2);
    }

    /// Returns the text, with a note about the omitted part.
    pub(crate) fn text(&self) -> String {
        match self.cut {
            0 => format!("{}{}", self.head, self.tail),
            cut => format!("{}\n[.. {cut} bytes left out ..]\n{}", self.head, self.tail),
        }
    }
}

/// Returns the last char boundary at or before `at`.
pub(crate) fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len()))
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0)
}

/// Returns the first char boundary at or after `at`.
pub(crate) fn ceil(text: &str, at: usize) -> usize {
    (at..text.len())
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(text.len())
}

/// Returns the beginning and end of a text of more than `max` bytes.
pub(crate) fn shorten(text: &str, max: usize) -> String {
    let mut printed = PrintedText::default();
    printed.push(text, max);
    printed.settle(max);
    printed.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_text_is_unchanged() {
        assert_eq!(shorten("abc", 6), "abc");
        assert_eq!(shorten("abcdef", 6), "abcdef");
        assert_eq!(shorten("", 0), "");
    }

    #[test]
    fn long_text_loses_its_middle() {
        assert_eq!(shorten("abcdefgh", 6), "abc\n[.. 2 bytes left out ..]\nfgh");
        assert_eq!(shorten("ab", 0), "\n[.. 2 bytes left out ..]\n");
    }

    #[test]
    fn text_is_cut_at_char_boundaries() {
        assert_eq!(shorten("äöüß", 6), "ä\n[.. 4 bytes left out ..]\nß");
    }

    #[test]
    fn many_small_prints_equal_one_large_print() {
        let mut printed = PrintedText::default();
        for number in 0..1000 {
            printed.push(&format!("{number}\n"), 20);
        }
        printed.settle(20);
        assert_eq!(
            printed.text(),
            "0\n1\n2\n3\n4\n\n[.. 3870 bytes left out ..]\n7\n998\n999\n"
        );
    }
}
