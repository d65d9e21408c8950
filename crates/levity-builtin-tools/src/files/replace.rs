//! Exact text replacement that handles both LF and CRLF line endings.
//!
//! Files from Windows end their lines with CRLF, and models write LF. Three spellings of the old
//! text are tried: as given, with CRLF, and with LF. The first that occurs decides, and the new
//! text is converted in the same way. The search takes linear time, as a model or a file may
//! contain text that makes a simple search quadratic.

use std::borrow::Cow;

/// A text after a replacement.
#[derive(Debug, PartialEq)]
pub(super) struct Replacement {
    pub(super) text: Vec<u8>,
    /// The first and last line of each replaced range.
    pub(super) lines: Vec<(usize, usize)>,
}

/// The reason why nothing was replaced.
#[derive(Debug, PartialEq)]
pub(super) enum ReplaceError {
    /// The text does not occur.
    NotFound,
    /// The text occurs more than once, in these lines.
    Ambiguous(Vec<usize>),
    /// The result would exceed the limit, with this many bytes.
    TooLarge(usize),
}

/// Replaces `old`, which must occur once, or every `old` if `all` is set.
///
/// In a file with CRLF endings, `old` and `new` may use LF. The new text gets the line endings of
/// the text it replaces.
///
/// # Errors
/// - [`ReplaceError::NotFound`] if no spelling of `old` occurs.
/// - [`ReplaceError::Ambiguous`] if it occurs several times and `all` is not set.
/// - [`ReplaceError::TooLarge`] if the result would grow beyond `max` bytes. A text that shrinks is
///   never too large.
pub(super) fn replace(
    text: &[u8],
    old: &str,
    new: &str,
    all: bool,
    max: usize,
) -> Result<Replacement, ReplaceError> {
    let style = Style::of(text);
    let spellings = [
        Cow::Borrowed(old),
        Cow::Owned(to_crlf(old)),
        Cow::Owned(to_lf(old)),
    ];
    for (tried, spelling) in spellings.iter().enumerate() {
        let found = find_all(text, spelling.as_bytes());
        if found.len() > 1 && !all {
            return Err(ReplaceError::Ambiguous(line_numbers(text, &found)));
        }
        if !found.is_empty() {
            let new = with_line_endings(new, Style::of(spelling.as_bytes()).or(style), tried > 0);
            let more = found
                .len()
                .saturating_mul(new.len().saturating_sub(spelling.len()));
            if more > 0 && text.len().saturating_add(more) > max {
                return Err(ReplaceError::TooLarge(text.len().saturating_add(more)));
            }
            return Ok(splice(text, &found, spelling.len(), new.as_bytes()));
        }
    }
    Err(ReplaceError::NotFound)
}

/// The line ending of most lines.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Style {
    None,
    Lf,
    Crlf,
}

impl Style {
    /// A text without line ends has no style. A mixed text has that of most of its lines.
    fn of(text: &[u8]) -> Self {
        let all = text.iter().filter(|&&byte| byte == b'\n').count();
        let crlf = text.windows(2).filter(|pair| pair == b"\r\n").count();
        match (all, crlf) {
            (0, _) => Self::None,
            (all, crlf) if crlf * 2 > all => Self::Crlf,
            _ => Self::Lf,
        }
    }

    fn or(self, other: Self) -> Self {
        if self == Self::None { other } else { self }
    }
}

/// Converts the new text to the line endings of the old one. Explicit CRLFs are preserved, unless
/// the old text was found only with other endings.
fn with_line_endings(new: &str, style: Style, changed: bool) -> Cow<'_, str> {
    match style {
        Style::Crlf if changed || !new.contains('\r') => Cow::Owned(to_crlf(new)),
        Style::Lf if changed => Cow::Owned(to_lf(new)),
        _ => Cow::Borrowed(new),
    }
}

fn to_lf(text: &str) -> String {
    text.replace("\r\n", "\n")
}

/// Converts to LF first, so that an existing CRLF does not become CRCRLF.
fn to_crlf(text: &str) -> String {
    to_lf(text).replace('\n', "\r\n")
}

/// Builds the new text in one pass, together with the line numbers of the new parts.
fn splice(text: &[u8], found: &[usize], old: usize, new: &[u8]) -> Replacement {
    let mut whole = Vec::with_capacity(text.len() + found.len() * new.len().saturating_sub(old));
    let (mut from, mut line, mut lines) = (0, 1, Vec::new());
    let ends = |bytes: &[u8]| bytes.iter().filter(|&&byte| byte == b'\n').count();
    for &at in found {
        whole.extend_from_slice(&text[from..at]);
        whole.extend_from_slice(new);
        line += ends(&text[from..at]);
        let more = ends(new);
        // A final line ending belongs to the line before it.
        let last = line + more - usize::from(more > 0 && new.ends_with(b"\n"));
        lines.push((line, last));
        line += more;
        from = at + old;
    }
    whole.extend_from_slice(&text[from..]);
    Replacement { text: whole, lines }
}

/// Returns the line of each position, counted from 1. The positions are sorted.
fn line_numbers(text: &[u8], found: &[usize]) -> Vec<usize> {
    let (mut line, mut from) = (1, 0);
    let number = |&at: &usize| {
        line += text[from..at].iter().filter(|&&byte| byte == b'\n').count();
        from = at;
        line
    };
    found.iter().map(number).collect()
}

/// Finds all non-overlapping occurrences of `needle` in time linear in both lengths, for any input
/// (Knuth, Morris, Pratt).
fn find_all(text: &[u8], needle: &[u8]) -> Vec<usize> {
    if needle.is_empty() || needle.len() > text.len() {
        return Vec::new();
    }
    let borders = borders(needle);
    let (mut found, mut matched) = (Vec::new(), 0);
    for (at, &byte) in text.iter().enumerate() {
        while matched > 0 && needle[matched] != byte {
            matched = borders[matched - 1];
        }
        matched += usize::from(needle[matched] == byte);
        if matched == needle.len() {
            found.push(at + 1 - matched);
            matched = 0;
        }
    }
    found
}

/// Returns the length of the longest proper border of each prefix of `needle`.
fn borders(needle: &[u8]) -> Vec<usize> {
    let mut borders = vec![0; needle.len()];
    let mut length = 0;
    for at in 1..needle.len() {
        while length > 0 && needle[length] != needle[at] {
            length = borders[length - 1];
        }
        length += usize::from(needle[length] == needle[at]);
        borders[at] = length;
    }
    borders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, (old, new): (&str, &str), expected: &str, lines: &[(usize, usize)]) {
        let replaced = replace(text.as_bytes(), old, new, true, 100).unwrap();
        assert_eq!(
            (
                std::str::from_utf8(&replaced.text).unwrap(),
                &*replaced.lines
            ),
            (expected, lines)
        );
    }

    #[test]
    fn replace_all_changes_text_and_returns_line_ranges() {
        check("a\nb\nc\n", ("b", "x"), "a\nx\nc\n", &[(2, 2)]);
        check("a\nb\nc\n", ("b\n", "x\ny\n"), "a\nx\ny\nc\n", &[(2, 3)]);
        check("a\nb\nc\n", ("b\n", ""), "a\nc\n", &[(2, 2)]);
        check("aaaa", ("aa", "b"), "bb", &[(1, 1), (1, 1)]);
        check("x\nx\n", ("x", "1\n2"), "1\n2\n1\n2\n", &[(1, 2), (3, 4)]);
        check("abcabcabd", ("abcabd", "!"), "abc!", &[(1, 1)]);
    }

    #[test]
    fn replace_preserves_line_endings() {
        check(
            "a\r\nb\r\nc\r\n",
            ("a\nb\n", "x\ny\nz\n"),
            "x\r\ny\r\nz\r\nc\r\n",
            &[(1, 3)],
        );
        check("a\r\nb\r\n", ("b", "x\ny"), "a\r\nx\r\ny\r\n", &[(2, 3)]);
        check("a\nb\n", ("a\r\nb", "x\r\ny"), "x\ny\n", &[(1, 2)]);
        check("a\nb\n", ("a\n", "a\r\n"), "a\r\nb\n", &[(1, 1)]);
        check(
            "a\nb\r\nc\r\n",
            ("a\nb", "x\ny"),
            "x\ny\r\nc\r\n",
            &[(1, 2)],
        );
    }

    #[test]
    fn replace_reports_missing_or_ambiguous_text() {
        assert_eq!(
            replace(b"a\nb", "c", "d", false, 100),
            Err(ReplaceError::NotFound)
        );
        assert_eq!(
            replace(b"a\nb\na a", "a", "d", false, 100),
            Err(ReplaceError::Ambiguous(vec![1, 3, 3]))
        );
        assert_eq!(
            replace(b"", "c", "d", true, 100),
            Err(ReplaceError::NotFound)
        );
    }

    #[test]
    fn replace_rejects_result_above_size_limit() {
        let new = "x".repeat(1 << 20);
        assert_eq!(
            replace(&[b'a'; 1 << 20], "a", &new, true, 4 << 20),
            Err(ReplaceError::TooLarge(1 << 40))
        );
        assert!(replace(&[b'a'; 100], "a", "", true, 10).is_ok());
    }

    #[test]
    fn replace_of_hostile_text_takes_linear_time() {
        let (text, needle) = (vec![b'a'; 4 << 20], "a".repeat(1 << 20) + "b");
        assert_eq!(
            replace(&text, &needle, "", false, 4 << 20),
            Err(ReplaceError::NotFound)
        );
    }
}
