//! Decoding of character references such as `&amp;` and `&#8212;`.
//!
//! References are decoded by the rules of HTML, with its table of names. Characters that are
//! invisible are removed in the same pass, whether they are written directly or as a reference:
//! text that people cannot see must not reach the model.

use std::borrow::Cow;
use std::sync::LazyLock;

/// The names that HTML defines and their characters, in byte order.
static NAMES: LazyLock<Vec<(&'static str, &'static str)>> = LazyLock::new(|| {
    include_str!("entities.txt")
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .collect()
});

/// The length of the longest name, including its semicolon.
const MAX_NAME: usize = 32;

/// The length of the longest name that is valid without a semicolon.
const MAX_LEGACY_NAME: usize = 6;

/// Decodes a text and removes invisible characters, which can hide words from people.
pub(super) fn decode(text: &str) -> Cow<'_, str> {
    read(text, false)
}

/// Decodes an attribute value, where `&copy=` is part of an address, not a reference.
pub(super) fn decode_attr(text: &str) -> Cow<'_, str> {
    read(text, true)
}

/// Text of visible ASCII without `&` is returned without a copy, which is the usual case.
fn read(text: &str, in_attr: bool) -> Cow<'_, str> {
    if text
        .bytes()
        .all(|byte| matches!(byte, b' '..=b'~' | b'\n' | b'\t') && byte != b'&')
    {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        push_visible(&rest[..at], &mut out);
        rest = &rest[at..];
        let used = reference(rest, in_attr, &mut out);
        if used == 0 {
            out.push('&');
        }
        rest = &rest[used.max(1)..];
    }
    push_visible(rest, &mut out);
    Cow::Owned(out)
}

/// Removes the invisible characters from a text, such as marks that change its direction.
///
/// ```
/// assert_eq!(levity_html::visible("high\u{200b} water"), "high water");
/// ```
pub fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    push_visible(text, &mut out);
    out
}

/// Appends the visible characters of `text`.
fn push_visible(text: &str, out: &mut String) {
    out.extend(text.chars().filter(|c| !is_hidden(*c)));
}

/// Returns `true` for an invisible character: controls, direction marks and tags.
pub(super) fn is_hidden(c: char) -> bool {
    match c {
        '\n' | '\t' | '\r' | '\x0c' => false,
        '\u{ad}' | '\u{200b}' | '\u{2060}'..='\u{2064}' | '\u{feff}' => true,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{206a}'..='\u{206f}' => true,
        '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}' => true,
        _ => c.is_control(),
    }
}

/// Decodes a reference at the beginning of `text` and returns its length; 0 if there is none.
fn reference(text: &str, in_attr: bool, out: &mut String) -> usize {
    match text.as_bytes().get(1) {
        Some(b'#') => numbered(text, out),
        Some(byte) if byte.is_ascii_alphabetic() => named(text, in_attr, out),
        _ => 0,
    }
}

/// Returns the number of bytes that the reference takes, or 0. In an attribute, a name without a
/// semicolon is no reference if it continues: `?a=1&copy=2`.
fn named(text: &str, in_attr: bool, out: &mut String) -> usize {
    let name = &text.as_bytes()[1..];
    let letters = name
        .iter()
        .take(MAX_NAME)
        .take_while(|byte| byte.is_ascii_alphanumeric())
        .count();
    let whole = letters + usize::from(name.get(letters) == Some(&b';'));
    // Legacy names are valid without a semicolon, even if more letters follow: the longest known
    // name wins.
    let old = (2..=MAX_LEGACY_NAME.min(letters)).rev();
    let known = std::iter::once(whole).chain(old).find_map(|end| {
        let at = NAMES
            .binary_search_by(|(known, _)| known.as_bytes().cmp(&name[..end]))
            .ok()?;
        Some((end, NAMES[at].1))
    });
    let Some((end, codes)) = known else { return 0 };
    let continues = name
        .get(end)
        .is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'=');
    if in_attr && continues && name[end - 1] != b';' {
        return 0;
    }
    let chars = codes
        .split(' ')
        .filter_map(|code| u32::from_str_radix(code, 16).ok())
        .filter_map(char::from_u32);
    out.extend(chars.filter(|c| !is_hidden(*c)));
    end + 1
}

/// Decodes `&#8212;` and `&#x2014;`. The number saturates, so any number of digits is safe.
fn numbered(text: &str, out: &mut String) -> usize {
    let bytes = text.as_bytes();
    let hex = matches!(bytes.get(2), Some(b'x' | b'X'));
    let (start, radix) = if hex { (3, 16) } else { (2, 10) };
    let mut code = 0_u32;
    let mut end = start;
    while let Some(digit) = bytes
        .get(end)
        .and_then(|byte| char::from(*byte).to_digit(radix))
    {
        code = code.saturating_mul(radix).saturating_add(digit);
        end += 1;
    }
    if end == start {
        return 0;
    }
    out.extend(Some(code_point(code)).filter(|c| !is_hidden(*c)));
    end + usize::from(bytes.get(end) == Some(&b';'))
}

/// Maps numbers from 128 to 159 as in Windows-1252.
fn code_point(code: u32) -> char {
    if let (128..=159, Ok(byte)) = (code, u8::try_from(code)) {
        let bytes = [byte];
        let (text, _) = encoding_rs::WINDOWS_1252.decode_without_bom_handling(&bytes);
        return text.chars().next().unwrap_or(char::REPLACEMENT_CHARACTER);
    }
    char::from_u32(code)
        .filter(|c| *c != '\0')
        .unwrap_or(char::REPLACEMENT_CHARACTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(decode(text), expected, "{text}");
    }

    #[test]
    fn decode_reads_references_like_browsers() {
        check(
            "a &amp; b &lt;c&gt; &quot;d&quot; &apos;e&apos;",
            "a & b <c> \"d\" 'e'",
        );
        check(
            "&eacute;&Eacute;&euro;&hellip;&mdash;&nbsp;x",
            "éÉ€…—\u{a0}x",
        );
        check(
            "&copy 2024 &ampx &notit; &notin; &nosuch; &",
            "© 2024 &x ¬it; ∉ &nosuch; &",
        );
        check(
            "&#65;&#x42;&#X43 &#128; &#x99; &#0; &#xD800; &#99999999999; &#; &#x;",
            "ABC € ™ � � � &#; &#x;",
        );
        check("&CounterClockwiseContourIntegral;&NotEqualTilde;", "∳≂̸");
        check("&&&&amp;&", "&&&&&");
        check("plain", "plain");
    }

    #[test]
    fn decode_removes_invisible_characters() {
        check(
            "a\u{200b}b\u{ad}c\u{e0041}\u{e0042}d\u{202e}e\0f&#x200b;&shy;&#xe0041;g&#8;",
            "abcdefg",
        );
        check("ي\u{200d}x\u{200c}y\n\t", "ي\u{200d}x\u{200c}y\n\t");
    }

    #[test]
    fn entity_table_is_sorted_and_complete() {
        assert_eq!(NAMES.len(), 2231);
        assert!(NAMES.is_sorted_by(|a, b| a.0.as_bytes() < b.0.as_bytes()));
        assert!(NAMES.iter().all(|(name, _)| name.len() <= MAX_NAME));
        assert!(
            NAMES
                .iter()
                .all(|(name, _)| name.ends_with(';') || name.len() <= MAX_LEGACY_NAME)
        );
    }
}
