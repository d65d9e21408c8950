//! Recognizes variables and keys that hold secrets by their names.

use super::SecretKind;

/// The maximum length of a name of a secret.
const MAX_NAME_LENGTH: usize = 64;

/// The suffixes of such names, in lower case and without `_` and `-`.
const SUFFIXES: [(&str, SecretKind); 20] = [
    ("password", SecretKind::Password),
    ("passwd", SecretKind::Password),
    ("passphrase", SecretKind::Password),
    ("secret", SecretKind::Password),
    ("apikey", SecretKind::ApiKey),
    ("secretkey", SecretKind::ApiKey),
    ("accesskey", SecretKind::ApiKey),
    ("privatekey", SecretKind::PrivateKey),
    ("signingkey", SecretKind::PrivateKey),
    ("authorization", SecretKind::Token),
    ("cookie", SecretKind::Token),
    ("accesstoken", SecretKind::Token),
    ("authtoken", SecretKind::Token),
    ("apitoken", SecretKind::Token),
    ("bearertoken", SecretKind::Token),
    ("bottoken", SecretKind::Token),
    ("refreshtoken", SecretKind::Token),
    ("sessiontoken", SecretKind::Token),
    ("idtoken", SecretKind::Token),
    ("secrettoken", SecretKind::Token),
];

/// Returns the kind of secret that a variable or key of this name usually holds.
///
/// A token needs a qualifier, because page tokens and token counts are not secrets. A variable in
/// capitals whose name ends with `_TOKEN` or `_PAT` also counts: programs commonly read secrets
/// from them.
pub(super) fn kind_of(name: &str) -> Option<SecretKind> {
    if name.len() > MAX_NAME_LENGTH || name.len() < 6 {
        return None;
    }
    let capitals = name
        .bytes()
        .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_');
    if capitals && (name.ends_with("_TOKEN") || name.ends_with("_PAT")) && !is_page_token(name) {
        return Some(SecretKind::Token);
    }
    let mut plain = [0; MAX_NAME_LENGTH];
    let mut length = 0;
    for byte in name.bytes().filter(|byte| !matches!(byte, b'_' | b'-')) {
        plain[length] = byte.to_ascii_lowercase();
        length += 1;
    }
    let plain = &plain[..length];
    SUFFIXES
        .iter()
        .find(|(end, _)| plain.ends_with(end.as_bytes()))
        .map(|(_, kind)| *kind)
}

fn is_page_token(name: &str) -> bool {
    [
        "PAGE_TOKEN",
        "NEXT_TOKEN",
        "SYNC_TOKEN",
        "CONTINUATION_TOKEN",
    ]
    .iter()
    .any(|end| name.ends_with(end))
}
