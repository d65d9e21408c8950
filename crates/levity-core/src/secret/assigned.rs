//! Secrets by the name they are assigned to: `password=…`, `"api_key": "…"`.

use std::ops::Range;

use super::shapes::{is_word, run};
use super::{FoundSecret, SecretKind, words};

/// No shorter word names a secret.
pub(super) const SHORTEST_NAME: usize = 5;

/// As much of a value is looked at to tell whether it is a secret.
const LOOK: usize = 256;

/// The value that is assigned to the last name in this word, when both look like those of a secret.
pub(super) fn find(text: &str, word: Range<usize>) -> Option<FoundSecret> {
    let bytes = text.as_bytes();
    let start = value_at(bytes, word.end)?;
    let name = &text[word];
    let name = name
        .rsplit(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-')))
        .next()?;
    // A token of nothing in particular has to look like one all the more.
    let bare = name.eq_ignore_ascii_case("token");
    let kind = if bare {
        SecretKind::Token
    } else {
        words::kind_of(name)?
    };
    let seen = &bytes[start..run(&bytes[..bytes.len().min(start + LOOK)], start, in_value)];
    let secret = match kind {
        SecretKind::Password => seen.len() >= 6 && is_mixed(seen) && !is_code(seen),
        _ => seen.len() >= if bare { 16 } else { 12 } && is_dense(seen) && !is_code(seen),
    };
    secret.then(|| FoundSecret {
        range: start..run(bytes, start, in_value),
        kind,
    })
}

/// Where the value begins behind a name: after `=` or `:`, with the quotes and the room that are
/// usual around them.
fn value_at(bytes: &[u8], at: usize) -> Option<usize> {
    let quotes = |byte| matches!(byte, b'"' | b'\'' | b'`' | b'\\');
    let at = few(bytes, few(bytes, at, quotes), |byte| byte == b' ');
    if !matches!(bytes.get(at), Some(b'=' | b':')) {
        return None;
    }
    Some(few(bytes, few(bytes, at + 1, |byte| byte == b' '), quotes))
}

/// Goes on over such bytes, and over no more than a few: more is not how anything is assigned.
fn few(bytes: &[u8], at: usize, is: impl Fn(u8) -> bool) -> usize {
    run(&bytes[..bytes.len().min(at + 4)], at.min(bytes.len()), is)
}

/// Whatever does not end a value.
fn in_value(byte: u8) -> bool {
    is_word(byte)
        || !byte.is_ascii()
        || matches!(
            byte,
            b'!' | b'#'
                | b'$'
                | b'*'
                | b'='
                | b'?'
                | b'@'
                | b'^'
                | b'|'
                | b':'
                | b'('
                | b'['
                | b'{'
                | b'<'
        )
}

fn is_mixed(value: &[u8]) -> bool {
    value.iter().any(u8::is_ascii_digit) && value.iter().any(u8::is_ascii_alphabetic)
}

/// Whether a part of it is long, with a digit, or all of it is without lines and dots: names in a
/// program are words with those between them.
fn is_dense(value: &[u8]) -> bool {
    let mut parts = value.split(|byte| !byte.is_ascii_alphanumeric());
    let cases =
        value.iter().any(u8::is_ascii_uppercase) && value.iter().any(u8::is_ascii_lowercase);
    let named = value.iter().any(|byte| matches!(byte, b'_' | b'-' | b'.'));
    parts.any(|part| part.len() >= 8 && part.iter().any(u8::is_ascii_digit))
        || (value.len() >= 20 && cases && is_mixed(value) && !named)
}

/// Whether it is a call, a type, a variable, a place to be filled in, or was masked.
fn is_code(value: &[u8]) -> bool {
    matches!(value[0], b'$' | b'%')
        || value
            .iter()
            .any(|byte| matches!(byte, b'(' | b'[' | b'{' | b'<'))
        || value.windows(2).any(|two| two == b"::")
}
