//! Secrets by the name they are assigned to: `password=…`, `"api_key": "…"`.

use std::ops::Range;

use super::patterns::{is_word, run};
use super::{FoundSecret, SecretKind, names};

/// The minimum length of a word that names a secret.
pub(super) const MIN_NAME_LENGTH: usize = 5;

/// The maximum bytes of a value to inspect.
const MAX_INSPECTED: usize = 256;

/// Finds the value assigned to the last name in this word, if both look like those of a secret.
pub(super) fn find(text: &str, word: Range<usize>) -> Option<FoundSecret> {
    let bytes = text.as_bytes();
    let start = value_start(bytes, word.end)?;
    let name = &text[word];
    let name = name
        .rsplit(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-')))
        .next()?;
    // A value under the generic name `token` needs stronger evidence.
    let bare = name.eq_ignore_ascii_case("token");
    let kind = if bare {
        SecretKind::Token
    } else {
        names::kind_of(name)?
    };
    let seen = &bytes[start
        ..run(
            &bytes[..bytes.len().min(start + MAX_INSPECTED)],
            start,
            is_value_byte,
        )];
    let secret = match kind {
        SecretKind::Password => seen.len() >= 6 && is_mixed(seen) && !is_code(seen),
        _ => seen.len() >= if bare { 16 } else { 12 } && is_dense(seen) && !is_code(seen),
    };
    secret.then(|| FoundSecret {
        range: start..run(bytes, start, is_value_byte),
        kind,
    })
}

/// Returns the start of the value after a name: after `=` or `:`, with the usual quotes and spaces
/// around them.
fn value_start(bytes: &[u8], at: usize) -> Option<usize> {
    let quotes = |byte| matches!(byte, b'"' | b'\'' | b'`' | b'\\');
    let at = skip_few(bytes, skip_few(bytes, at, quotes), |byte| byte == b' ');
    if !matches!(bytes.get(at), Some(b'=' | b':')) {
        return None;
    }
    Some(skip_few(
        bytes,
        skip_few(bytes, at + 1, |byte| byte == b' '),
        quotes,
    ))
}

/// Skips matching bytes, at most a few: longer runs are not assignments.
fn skip_few(bytes: &[u8], at: usize, is: impl Fn(u8) -> bool) -> usize {
    run(&bytes[..bytes.len().min(at + 4)], at.min(bytes.len()), is)
}

/// Returns `true` for a byte that does not end a value.
fn is_value_byte(byte: u8) -> bool {
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

/// Returns `true` if one part is long and has a digit, or the whole has no lines or dots:
/// identifiers in a program are words with those between them.
fn is_dense(value: &[u8]) -> bool {
    let mut parts = value.split(|byte| !byte.is_ascii_alphanumeric());
    let cases =
        value.iter().any(u8::is_ascii_uppercase) && value.iter().any(u8::is_ascii_lowercase);
    let named = value.iter().any(|byte| matches!(byte, b'_' | b'-' | b'.'));
    parts.any(|part| part.len() >= 8 && part.iter().any(u8::is_ascii_digit))
        || (value.len() >= 20 && cases && is_mixed(value) && !named)
}

/// Returns `true` if it is a call, a type, a variable, a placeholder, or already masked.
fn is_code(value: &[u8]) -> bool {
    matches!(value[0], b'$' | b'%')
        || value
            .iter()
            .any(|byte| matches!(byte, b'(' | b'[' | b'{' | b'<'))
        || value.windows(2).any(|two| two == b"::")
}
