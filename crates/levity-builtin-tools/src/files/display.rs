//! Formatting of paths, lines and numbers for a model.
//!
//! A path or a line may contain line breaks and control characters. Results are lists of lines, so
//! each item must stay on one line: otherwise a file name could imitate other entries.

use std::borrow::Cow;

use crate::text::floor;

/// Formats a path on one line, whatever characters it contains.
pub(super) fn path(path: &str) -> Cow<'_, str> {
    match path.chars().any(char::is_control) {
        true => Cow::Owned(format!("{path:?}")),
        false => Cow::Borrowed(path),
    }
}

/// Formats a line of at most `max` bytes, without its line ending.
pub(super) fn line(bytes: &[u8], max: usize) -> String {
    let end = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let end = end.strip_suffix(b"\r").unwrap_or(end);
    // A few bytes more keep a char at the limit complete.
    let text = String::from_utf8_lossy(&end[..end.len().min(max + 4)]);
    match end.len() > max {
        true => format!("{}… [{} bytes]", &text[..floor(&text, max)], end.len()),
        false => text.into_owned(),
    }
}

/// Formats a count such as `1 line` or `2 lines`.
pub(super) fn count(count: u64, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

/// Formats numbers as `1, 2, 3`, followed by how many more there are.
pub(super) fn numbers(numbers: &[usize], max: usize) -> String {
    let shown: Vec<_> = numbers.iter().take(max).map(ToString::to_string).collect();
    match numbers.len() > max {
        true => format!("{} and {} more", shown.join(", "), numbers.len() - max),
        false => shown.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_is_cut_at_char_boundary() {
        assert_eq!(line(b"abc\r\n", 10), "abc");
        assert_eq!(line("ééé".as_bytes(), 3), "é… [6 bytes]");
        assert_eq!(line(b"a\xffb", 10), "a\u{fffd}b");
    }

    #[test]
    fn path_with_line_break_stays_on_one_line() {
        assert_eq!(path("a b.txt"), "a b.txt");
        assert_eq!(path("a\nb"), "\"a\\nb\"");
    }
}
