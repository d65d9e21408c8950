//! Character references: `&amp;`, `&#8212;`.

use std::borrow::Cow;
use std::sync::LazyLock;

/// The names that HTML knows and what they stand for, in the order of their bytes.
static NAMES: LazyLock<Vec<(&'static str, &'static str)>> = LazyLock::new(|| {
    include_str!("entities.txt")
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .collect()
});

/// The longest name, with its semicolon.
const LONGEST: usize = 32;

/// The longest name that counts without a semicolon.
const OLD: usize = 6;

/// What a text says, without characters that nobody sees: they serve to hide words from people.
pub(super) fn decode(text: &str) -> Cow<'_, str> {
    read(text, false)
}

/// The same for the value of an attribute, where `&copy=` is no sign but part of an address.
pub(super) fn decode_attr(text: &str) -> Cow<'_, str> {
    read(text, true)
}

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
        seen(&rest[..at], &mut out);
        rest = &rest[at..];
        let used = reference(rest, in_attr, &mut out);
        if used == 0 {
            out.push('&');
        }
        rest = &rest[used.max(1)..];
    }
    seen(rest, &mut out);
    Cow::Owned(out)
}

/// A text without what nobody sees of it.
pub(crate) fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    seen(text, &mut out);
    out
}

/// Adds what can be seen of `text`.
fn seen(text: &str, out: &mut String) {
    out.extend(text.chars().filter(|c| !is_hidden(*c)));
}

/// Whether a character shows nothing: controls, marks that turn the direction of text around, tags.
pub(super) fn is_hidden(c: char) -> bool {
    match c {
        '\n' | '\t' | '\r' | '\x0c' => false,
        '\u{ad}' | '\u{200b}' | '\u{2060}'..='\u{2064}' | '\u{feff}' => true,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{206a}'..='\u{206f}' => true,
        '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}' => true,
        _ => c.is_control(),
    }
}

/// Reads one reference at the beginning of `text`, and returns how long it is; 0 if it is none.
fn reference(text: &str, in_attr: bool, out: &mut String) -> usize {
    match text.as_bytes().get(1) {
        Some(b'#') => numbered(text, out),
        Some(byte) if byte.is_ascii_alphabetic() => named(text, in_attr, out),
        _ => 0,
    }
}

fn named(text: &str, in_attr: bool, out: &mut String) -> usize {
    let name = &text.as_bytes()[1..];
    let letters = name
        .iter()
        .take(LONGEST)
        .take_while(|byte| byte.is_ascii_alphanumeric())
        .count();
    let whole = letters + usize::from(name.get(letters) == Some(&b';'));
    // Old names count without a semicolon, also when more letters follow: the longest that is known
    // wins.
    let old = (2..=OLD.min(letters)).rev();
    let known = std::iter::once(whole).chain(old).find_map(|end| {
        let at = NAMES
            .binary_search_by(|(known, _)| known.as_bytes().cmp(&name[..end]))
            .ok()?;
        Some((end, NAMES[at].1))
    });
    let Some((end, codes)) = known else { return 0 };
    let goes_on = name
        .get(end)
        .is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'=');
    if in_attr && goes_on && name[end - 1] != b';' {
        return 0;
    }
    let chars = codes
        .split(' ')
        .filter_map(|code| u32::from_str_radix(code, 16).ok())
        .filter_map(char::from_u32);
    out.extend(chars.filter(|c| !is_hidden(*c)));
    end + 1
}

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
    out.extend(Some(meant(code)).filter(|c| !is_hidden(*c)));
    end + usize::from(bytes.get(end) == Some(&b';'))
}

/// Numbers from 128 to 159 are meant as Windows has them.
fn meant(code: u32) -> char {
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
    fn references_are_read_as_browsers_read_them() {
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
    fn what_nobody_sees_is_left_out() {
        check(
            "a\u{200b}b\u{ad}c\u{e0041}\u{e0042}d\u{202e}e\0f&#x200b;&shy;&#xe0041;g&#8;",
            "abcdefg",
        );
        check("ي\u{200d}x\u{200c}y\n\t", "ي\u{200d}x\u{200c}y\n\t");
    }

    #[test]
    fn the_table_is_in_order_and_whole() {
        assert_eq!(NAMES.len(), 2231);
        assert!(NAMES.is_sorted_by(|a, b| a.0.as_bytes() < b.0.as_bytes()));
        assert!(NAMES.iter().all(|(name, _)| name.len() <= LONGEST));
        assert!(
            NAMES
                .iter()
                .all(|(name, _)| name.ends_with(';') || name.len() <= OLD)
        );
    }
}
