//! How things are written for a model.

use std::borrow::Cow;

use crate::text::floor;

/// A path on one line, whatever is in it.
pub(super) fn path(path: &str) -> Cow<'_, str> {
    match path.chars().any(char::is_control) {
        true => Cow::Owned(format!("{path:?}")),
        false => Cow::Borrowed(path),
    }
}

/// A line of at most `max` bytes, without its end.
pub(super) fn line(bytes: &[u8], max: usize) -> String {
    let end = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let end = end.strip_suffix(b"\r").unwrap_or(end);
    // A few bytes more, so that a char at the border is whole.
    let text = String::from_utf8_lossy(&end[..end.len().min(max + 4)]);
    match end.len() > max {
        true => format!("{}… [{} bytes]", &text[..floor(&text, max)], end.len()),
        false => text.into_owned(),
    }
}

/// `1 line`, `2 lines`.
pub(super) fn count(count: u64, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

/// Numbers as `1, 2, 3`, and how many more there are.
pub(super) fn numbers(numbers: &[usize], most: usize) -> String {
    let shown: Vec<_> = numbers.iter().take(most).map(ToString::to_string).collect();
    match numbers.len() > most {
        true => format!("{} and {} more", shown.join(", "), numbers.len() - most),
        false => shown.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_bounded_and_whole_chars() {
        assert_eq!(line(b"abc\r\n", 10), "abc");
        assert_eq!(line("ééé".as_bytes(), 3), "é… [6 bytes]");
        assert_eq!(line(b"a\xffb", 10), "a\u{fffd}b");
    }

    #[test]
    fn a_path_stays_on_its_line() {
        assert_eq!(path("a b.txt"), "a b.txt");
        assert_eq!(path("a\nb"), "\"a\\nb\"");
    }
}
