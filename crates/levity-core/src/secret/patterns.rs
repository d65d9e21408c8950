//! Patterns of secrets. Each check covers only a few bytes, or text that no other check of its kind
//! covers again. So the whole search is one pass over any text.

use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{FoundSecret, SecretKind, assigned};

/// The maximum bytes of a key to inspect.
const MAX_INSPECTED: usize = 256;

/// The prefixes of keys of well-known services, with the minimum number of characters that follow.
const PREFIXES: [(&str, usize); 24] = [
    ("sk-", 16),
    ("sk_live_", 16),
    ("sk_test_", 16),
    ("rk_live_", 16),
    ("AIza", 30),
    ("ya29.", 16),
    ("gsk_", 16),
    ("xai-", 16),
    ("hf_", 30),
    ("nvapi-", 16),
    ("pplx-", 16),
    ("tvly-", 16),
    ("glpat-", 16),
    ("npm_", 30),
    ("ghp_", 30),
    ("gho_", 30),
    ("ghs_", 30),
    ("ghu_", 30),
    ("ghr_", 30),
    ("github_pat_", 22),
    ("xox", 16),
    (AWS, 16),
    (AWS_SESSION, 16),
    ("AGE-SECRET-KEY-", 40),
];

const AWS: &str = "AKIA";
const AWS_SESSION: &str = "ASIA";

/// The minimum length of a key with its prefix.
const MIN_KEY_LENGTH: usize = 19;

/// Returns `true` for the first bytes of [`PREFIXES`].
fn may_begin(byte: u8) -> bool {
    matches!(
        byte,
        b's' | b'r' | b'A' | b'y' | b'g' | b'x' | b'h' | b'n' | b'p' | b't'
    )
}

pub(super) fn find(text: &str) -> Vec<FoundSecret> {
    let (bytes, mut found, mut at) = (text.as_bytes(), Vec::new(), 0);
    while at < bytes.len() {
        let before = found.len();
        let byte = bytes[at];
        let mut end = at + 1;
        if byte == b'-' && bytes[at..].starts_with(b"-----BEGIN ") {
            found.extend(find_private_key(bytes, at));
        } else if byte == b':' && bytes[at..].starts_with(b"://") {
            found.extend(find_url_password(bytes, at + 3));
        }
        if found.len() == before && is_word(byte) {
            end = run(bytes, at, is_word);
            find_in_word(text, at..end, &mut found);
        }
        // Skip the secrets that were found.
        at = found[before..]
            .iter()
            .map(|found| found.range.end)
            .fold(end, usize::max);
    }
    found
}

/// Checks a word and the text directly after it.
fn find_in_word(text: &str, word: Range<usize>, found: &mut Vec<FoundSecret>) {
    let (bytes, length) = (text.as_bytes(), word.len());
    if bytes.get(word.end) == Some(&b' ') {
        found.extend(find_credential(text, word.clone()));
    }
    if length >= assigned::MIN_NAME_LENGTH {
        found.extend(assigned::find(text, word.clone()));
    }
    if length >= MIN_KEY_LENGTH {
        find_keys(bytes, word.clone(), found);
        find_web_tokens(bytes, word, found);
    }
}

/// Finds keys by their prefixes, at the start of a word or of a part of it.
fn find_keys(bytes: &[u8], word: Range<usize>, found: &mut Vec<FoundSecret>) {
    let mut at = word.start;
    while at + MIN_KEY_LENGTH <= word.end {
        let may_begin = may_begin(bytes[at]) && is_edge(bytes, word.start, at);
        match may_begin.then(|| key_at(&bytes[..word.end], at)).flatten() {
            Some(end) => {
                found.push(FoundSecret {
                    range: at..end,
                    kind: SecretKind::ApiKey,
                });
                at = end;
            }
            None => at += 1,
        }
    }
}

/// Returns `true` if a key may begin here: no character before it could be part of the key.
fn is_edge(bytes: &[u8], start: usize, at: usize) -> bool {
    // An escape sequence ends with a letter in JSON (`\n`) and in an address (`%3D`).
    at == start
        || matches!(bytes[at - 1], b'.' | b'/' | b'~' | b'%')
        || (at == start + 1 && start > 0 && bytes[start - 1] == b'\\')
        || (at == start + 5 && start > 0 && bytes[start - 1] == b'\\' && bytes[start] == b'u')
        || (at >= start + 3 && bytes[at - 3] == b'%')
}

fn key_at(bytes: &[u8], at: usize) -> Option<usize> {
    let (prefix, least) = PREFIXES
        .iter()
        .find(|(prefix, _)| bytes[at..].starts_with(prefix.as_bytes()))?;
    let from = at + prefix.len();
    let part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let seen = &bytes[from..run(&bytes[..bytes.len().min(from + MAX_INSPECTED)], from, part)];
    let fits = match *prefix {
        AWS | AWS_SESSION => {
            let key = run(seen, 0, |byte| {
                byte.is_ascii_uppercase() || byte.is_ascii_digit()
            });
            key == *least && seen.get(key).is_none_or(|next| *next == b'.')
        }
        "xox" => seen.len() >= *least && seen[1] == b'-' && is_random(seen),
        _ => seen.len() >= *least && is_random(seen),
    };
    if !fits {
        return None;
    }
    let end = run(bytes, from, part);
    // A full stop after it belongs to the sentence.
    Some(
        end - bytes[from..end]
            .iter()
            .rev()
            .take_while(|byte| **byte == b'.')
            .count(),
    )
}

/// Returns `true` if some part is too mixed for words: class names and slugs have the prefixes of
/// keys as well.
fn is_random(key: &[u8]) -> bool {
    let parts = key.split(|byte| !byte.is_ascii_alphanumeric());
    parts
        .filter(|part| part.len() >= 10)
        .any(|part| part.iter().any(u8::is_ascii_digit))
}

/// Finds signed web tokens: three parts in base64, of which the first begins like JSON.
fn find_web_tokens(bytes: &[u8], word: Range<usize>, found: &mut Vec<FoundSecret>) {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let mut ends = Vec::new();
    let mut at = word.start;
    // Most long words have no two dots, so collect nothing for them.
    if bytes[word.clone()]
        .iter()
        .filter(|byte| **byte == b'.')
        .count()
        < 2
    {
        return;
    }
    while at < word.end {
        let end = run(&bytes[..word.end], at, plain);
        ends.push(at..end);
        at = end + 1;
    }
    let mut taken = word.start;
    for parts in ends.windows(3) {
        let [head, body, sign] = parts else { continue };
        let dotted = bytes.get(head.end) == Some(&b'.') && bytes.get(body.end) == Some(&b'.');
        if !dotted || head.start < taken || head.len() < 16 || body.len() < 8 || sign.len() < 16 {
            continue;
        }
        // The characters before it may be an escape sequence.
        let inner = (0..6)
            .map(|skip| head.start + skip)
            .find(|at| bytes[*at..].starts_with(b"eyJ"));
        if let Some(start) = inner.filter(|at| is_edge(bytes, word.start, *at)) {
            found.push(FoundSecret {
                range: start..sign.end,
                kind: SecretKind::Jwt,
            });
            taken = sign.end;
        }
    }
}

/// Finds the credential after `Bearer` and `Basic`.
fn find_credential(text: &str, word: Range<usize>) -> Option<FoundSecret> {
    let scheme = &text[word.clone()];
    let (start, bytes) = (word.end + 1, text.as_bytes());
    let end = run(bytes, start, |byte| is_word(byte) || byte == b'=');
    let token = &bytes[start..end];
    let secret = if scheme.eq_ignore_ascii_case("bearer") {
        token.len() >= 16
            && token[..token.len().min(MAX_INSPECTED)]
                .iter()
                .any(u8::is_ascii_digit)
    } else if scheme.eq_ignore_ascii_case("basic") && token.len() <= MAX_INSPECTED {
        STANDARD
            .decode(token)
            .is_ok_and(|plain| plain.contains(&b':') && std::str::from_utf8(&plain).is_ok())
    } else {
        false
    };
    secret.then_some(FoundSecret {
        range: start..end,
        kind: SecretKind::Token,
    })
}

/// Finds the password in `scheme://user:password@host`.
fn find_url_password(bytes: &[u8], start: usize) -> Option<FoundSecret> {
    let seen = &bytes[start..bytes.len().min(start + MAX_INSPECTED)];
    let until = |byte: &u8| {
        byte.is_ascii_whitespace()
            || matches!(byte, b'/' | b'?' | b'#' | b'"' | b'\'' | b'`' | b'<')
    };
    let seen = &seen[..seen.iter().position(until).unwrap_or(seen.len())];
    let at = seen.iter().rposition(|byte| *byte == b'@')?;
    let colon = seen[..at].iter().position(|byte| *byte == b':')?;
    let range = start + colon + 1..start + at;
    // A placeholder or a masked password is not a secret.
    let empty = range.is_empty() || matches!(bytes[range.start], b'{' | b'$' | b'[' | b'*' | b'%');
    (!empty).then_some(FoundSecret {
        range,
        kind: SecretKind::Password,
    })
}

/// Finds a private key from its first line to its last. A truncated key ends where it stops looking
/// like one.
fn find_private_key(bytes: &[u8], at: usize) -> Option<FoundSecret> {
    let (title, body) = title_at(bytes, at + "-----BEGIN ".len())?;
    if !title.ends_with(b"PRIVATE KEY") && !title.ends_with(b"PRIVATE KEY BLOCK") {
        return None;
    }
    // Search up to the next line of dashes, so that no text is read twice.
    let mut end = body;
    while end < bytes.len() && is_key_byte(bytes[end]) && !bytes[end..].starts_with(b"-----") {
        end += 1;
    }
    if bytes[body..end]
        .iter()
        .filter(|byte| byte.is_ascii_alphanumeric())
        .count()
        < 40
    {
        return None;
    }
    if bytes[end..].starts_with(b"-----END ") {
        end = title_at(bytes, end + "-----END ".len()).map_or(end, |(_, end)| end);
    }
    Some(FoundSecret {
        range: at..end,
        kind: SecretKind::PrivateKey,
    })
}

/// Returns the title that ends with five dashes, and the position after it.
fn title_at(bytes: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let title = &bytes[at..bytes.len().min(at + 40)];
    let length = title.windows(5).position(|five| five == b"-----")?;
    Some((&title[..length], at + length + 5))
}

/// Returns `true` for base64, escaped or plain line ends, and the headers of a key with a
/// passphrase.
fn is_key_byte(byte: u8) -> bool {
    is_word(byte) || byte.is_ascii_whitespace() || matches!(byte, b'=' | b':' | b',' | b'\\')
}

/// Returns the end of a row of matching bytes. They are all ASCII, so it is a character boundary.
pub(super) fn run(bytes: &[u8], start: usize, is: impl Fn(u8) -> bool) -> usize {
    let length = bytes[start..].iter().position(|byte| !is(*byte));
    length.map_or(bytes.len(), |length| start + length)
}

/// Returns `true` for the bytes of words: names, paths, numbers, base64.
pub(super) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'~' | b'+' | b'/' | b'%')
}
