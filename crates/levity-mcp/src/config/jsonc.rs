//! JSON with comments and trailing commas, as editors accept it in files.
//!
//! The text keeps its length: comments and trailing commas become spaces, and line ends stay. The
//! line and the column of a syntax error are therefore those of the file. The scanner works on
//! bytes, which is safe in UTF-8: the bytes that it looks for never occur inside another character.

/// Replaces comments and trailing commas with spaces, so that lines and columns stay the same.
pub(super) fn to_json(text: &str) -> String {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut bytes = text.as_bytes().to_vec();
    let mut comma = None;
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => {
                at = string_end(&bytes, at);
                comma = None;
            }
            b'/' if matches!(bytes.get(at + 1), Some(b'/' | b'*')) => {
                at = blank_comment(&mut bytes, at);
            }
            byte => {
                if let (b'}' | b']', Some(comma)) = (byte, comma) {
                    bytes[comma] = b' ';
                }
                match byte {
                    b',' => comma = Some(at),
                    b' ' | b'\t' | b'\r' | b'\n' => {}
                    _ => comma = None,
                }
                at += 1;
            }
        }
    }
    // Only whole comments and commas were replaced, so the text is still UTF-8.
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

/// Returns the end of the string that starts at `at`.
fn string_end(bytes: &[u8], at: usize) -> usize {
    let mut end = at + 1;
    while let Some(byte) = bytes.get(end) {
        match byte {
            b'"' => return end + 1,
            b'\\' => end += 2,
            _ => end += 1,
        }
    }
    bytes.len()
}

/// Replaces the comment that starts at `at` with spaces, and returns its end. An unterminated
/// comment remains and is invalid JSON.
fn blank_comment(bytes: &mut [u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let end = match rest[1] {
        b'/' => Some(memchr::memchr(b'\n', rest).unwrap_or(rest.len())),
        _ => memchr::memmem::find(&rest[2..], b"*/").map(|end| end + 4),
    };
    let Some(end) = end else { return bytes.len() };
    for byte in &mut bytes[at..at + end] {
        if *byte != b'\n' {
            *byte = b' ';
        }
    }
    at + end
}

#[cfg(test)]
mod tests {
    use super::to_json;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(to_json(text), expected);
    }

    #[test]
    fn to_json_replaces_comments_with_spaces() {
        check("{ // ü\n\"a\": 1 }", "{      \n\"a\": 1 }");
        check("{\"a\": /* x\ny */ 1}", "{\"a\":     \n     1}");
        check("\u{feff}[1]//", "[1]  ");
        check("[/*/ 1]", "[/*/ 1]");
    }

    #[test]
    fn to_json_keeps_strings_unchanged() {
        check(
            r#"{"u": "http://x/*,}", "q": "\"//"}"#,
            r#"{"u": "http://x/*,}", "q": "\"//"}"#,
        );
        check("\"open // \\", "\"open // \\");
    }

    #[test]
    fn to_json_replaces_trailing_comma_with_space() {
        check("[1, 2,]", "[1, 2 ]");
        check("{\"a\": 1, // x\n }", "{\"a\": 1      \n }");
        check("[,1]", "[,1]");
        check("[\",\"]", "[\",\"]");
    }
}
