//! Decoding of bytes into text by their character set.
//!
//! Servers and pages often declare no encoding or a wrong one, so the rules of browsers apply.
//! Decoding never fails: invalid bytes become `\u{fffd}`.

use std::borrow::Cow;

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252, X_USER_DEFINED};

use crate::declared;

/// The number of leading bytes in which a charset declaration is searched.
const PRESCAN: usize = 1024;

/// Decodes bytes into text. In order of precedence, the encoding comes from a byte order mark, the
/// server, the page's own declaration if it is markup, or valid UTF-8. Otherwise, it is
/// Windows-1252.
///
/// ```
/// assert_eq!(levity_html::decode(b"d\xe9j\xe0", None, false), "déjà");
/// ```
pub fn decode<'a>(bytes: &'a [u8], server_charset: Option<&str>, is_markup: bool) -> Cow<'a, str> {
    if let Some((encoding, mark)) = Encoding::for_bom(bytes) {
        return encoding.decode_without_bom_handling(&bytes[mark..]).0;
    }
    let server_charset = server_charset.and_then(|label| Encoding::for_label(label.as_bytes()));
    let encoding = server_charset
        .or_else(|| {
            if is_markup {
                declared_encoding(bytes)
            } else {
                None
            }
        })
        .unwrap_or_else(|| guess(bytes));
    encoding.decode_without_bom_handling(bytes).0
}

/// Returns the encoding that the page declares.
fn declared_encoding(bytes: &[u8]) -> Option<&'static Encoding> {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(PRESCAN)]);
    let label = declared(&head)?;
    let encoding = Encoding::for_label(label.trim().as_bytes())?;
    // The declaration was read as ASCII, so a wide encoding cannot be right.
    if !encoding.is_ascii_compatible() {
        return Some(UTF_8);
    }
    Some(if encoding == X_USER_DEFINED {
        WINDOWS_1252
    } else {
        encoding
    })
}

/// Bytes that are valid UTF-8 are hardly ever anything else. All others are read as Windows-1252,
/// which assigns a character to nearly every byte.
fn guess(bytes: &[u8]) -> &'static Encoding {
    match std::str::from_utf8(bytes) {
        Ok(_) => UTF_8,
        // The text may be cut within a character, after others that can only be UTF-8.
        Err(error) if error.error_len().is_none() && !bytes[..error.valid_up_to()].is_ascii() => {
            UTF_8
        }
        Err(_) => WINDOWS_1252,
    }
}

/// Returns the character set in a content type.
///
/// ```
/// assert_eq!(levity_html::content_type_charset("text/html; charset=koi8-r"), Some("koi8-r"));
/// ```
pub fn content_type_charset(content_type: &str) -> Option<&str> {
    let is_it = |part: &&str| {
        part.trim_start()
            .get(..8)
            .is_some_and(|start| start.eq_ignore_ascii_case("charset="))
    };
    let part = content_type.split([';', ',']).find(is_it)?;
    let label = part.trim_start()[8..]
        .trim()
        .trim_matches(['"', '\''])
        .trim();
    (!label.is_empty()).then_some(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charset_of_content_type_is_parsed() {
        assert_eq!(
            content_type_charset("text/html; charset=\"UTF-8\""),
            Some("UTF-8")
        );
        assert_eq!(
            content_type_charset("text/html;Charset=koi8-r; x=y"),
            Some("koi8-r")
        );
        assert_eq!(content_type_charset("text/html; charset="), None);
        assert_eq!(content_type_charset("text/html; xé"), None);
    }

    #[track_caller]
    fn check(bytes: &[u8], server_charset: Option<&str>, expected: &str) {
        assert_eq!(decode(bytes, server_charset, true), expected);
    }

    #[test]
    fn decode_uses_most_reliable_charset() {
        // A byte order mark comes first.
        check(b"\xef\xbb\xbf\xc3\xa9", Some("windows-1252"), "é");
        check(b"\xff\xfeh\0i\0", Some("utf-8"), "hi");
        check(b"\xfe\xff\0h\0i", None, "hi");
        // The server's charset comes second.
        check(
            b"<meta charset=utf-8>\xe9",
            Some("ISO-8859-1"),
            "<meta charset=utf-8>é",
        );
        check(b"\x83\x65\x83\x58\x83\x67", Some("shift_jis"), "テスト");
        check(b"h\0i\0", Some("utf-16le"), "hi");
        check(b"\xc3\xa9", Some("no such"), "é");
        // The page's declaration comes third.
        check(
            b"<meta charset='windows-1251'>\xc4\xe0",
            None,
            "<meta charset='windows-1251'>Да",
        );
        check(
            b"<META content='text/html; charset=koi8-r' http-equiv=Content-Type>\xe4",
            None,
            "<META content='text/html; charset=koi8-r' http-equiv=Content-Type>Д",
        );
        check(
            b"<?xml version='1.0' encoding=\"iso-8859-2\"?>\xb1",
            None,
            "<?xml version='1.0' encoding=\"iso-8859-2\"?>ą",
        );
        check(
            "<meta charset=utf-16>é".as_bytes(),
            None,
            "<meta charset=utf-16>é",
        );
        check(
            b"<!-- <meta charset=koi8-r> -->\xe9",
            None,
            "<!-- <meta charset=koi8-r> -->é",
        );
        // The bytes decide otherwise.
        check("déjà".as_bytes(), None, "déjà");
        check(b"d\xe9j\xe0 \x80", None, "déjà €");
        check(b"\xc3\xa9 caf\xc3", None, "é caf\u{fffd}");
        check(b"caf\xe9", None, "café");
        check(b"", None, "");
    }

    #[test]
    fn decode_ignores_late_declaration() {
        let page = [vec![b' '; PRESCAN], b"<meta charset=koi8-r>\xe4".to_vec()].concat();
        assert!(decode(&page, None, true).ends_with('ä'));
        assert_eq!(
            decode(b"<meta charset=koi8-r>\xe4", None, false),
            "<meta charset=koi8-r>ä"
        );
    }
}
