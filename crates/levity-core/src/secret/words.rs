//! Names of secrets.

use super::SecretKind;

/// No name of a secret is longer.
const LONGEST: usize = 64;

/// What such names end with, in lower case and without `_` and `-`.
const ENDS: [(&str, SecretKind); 20] = [
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

/// What a thing of this name is, when it is usually a secret.
///
/// A token is one only if it says of what: those of pages and of counts are none. A variable in
/// capitals whose name ends with `_TOKEN` or `_PAT` is one too: that is how programs take them.
pub(super) fn kind_of(name: &str) -> Option<SecretKind> {
    if name.len() > LONGEST || name.len() < 6 {
        return None;
    }
    let capitals = name
        .bytes()
        .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_');
    if capitals && (name.ends_with("_TOKEN") || name.ends_with("_PAT")) && !is_of_pages(name) {
        return Some(SecretKind::Token);
    }
    let mut plain = [0; LONGEST];
    let mut length = 0;
    for byte in name.bytes().filter(|byte| !matches!(byte, b'_' | b'-')) {
        plain[length] = byte.to_ascii_lowercase();
        length += 1;
    }
    let plain = &plain[..length];
    ENDS.iter()
        .find(|(end, _)| plain.ends_with(end.as_bytes()))
        .map(|(_, kind)| *kind)
}

fn is_of_pages(name: &str) -> bool {
    [
        "PAGE_TOKEN",
        "NEXT_TOKEN",
        "SYNC_TOKEN",
        "CONTINUATION_TOKEN",
    ]
    .iter()
    .any(|end| name.ends_with(end))
}
