//! Repairs of common mistakes in messages of servers.
//!
//! Repairs run only after strict parsing has failed, so valid messages pay nothing for them. They
//! never change the meaning of a valid part: invalid characters become U+FFFD, and an error of any
//! shape becomes an error with the text that it has.

use std::borrow::Cow;

use levity_rpc::mcp::{ErrorCode, ErrorData};
use serde_json::Value;

/// The maximum length of a quoted error that does not follow JSON-RPC.
const MAX_QUOTE: usize = 1 << 10;

/// Parses JSON; invalid UTF-8 and unpaired surrogates become the replacement character.
pub(super) fn parse(bytes: &[u8]) -> serde_json::Result<Value> {
    serde_json::from_slice(bytes).or_else(|error| {
        let text = String::from_utf8_lossy(bytes);
        match whole_characters(&text) {
            Cow::Borrowed(_) if matches!(text, Cow::Borrowed(_)) => Err(error),
            text => serde_json::from_str(&text),
        }
    })
}

/// Replaces `\uXXXX` escapes that are unpaired surrogates. Python and JavaScript write them; JSON
/// allows them and Unicode does not.
fn whole_characters(text: &str) -> Cow<'_, str> {
    let mut fixed = String::new();
    let (mut done, mut at) = (0, 0);
    while let Some(found) = memchr::memchr(b'\\', &text.as_bytes()[at..]) {
        let start = at + found;
        let (length, is_whole) = escape(&text.as_bytes()[start..]);
        if !is_whole {
            fixed.push_str(&text[done..start]);
            fixed.push_str("\\ufffd");
            done = start + length;
        }
        at = start + length;
    }
    if done == 0 && fixed.is_empty() {
        return Cow::Borrowed(text);
    }
    fixed.push_str(&text[done..]);
    Cow::Owned(fixed)
}

/// Returns the length of the escape at the start, and whether it forms a whole character.
fn escape(bytes: &[u8]) -> (usize, bool) {
    match unit(bytes) {
        Some(0xD800..0xDC00) if matches!(unit(&bytes[6..]), Some(0xDC00..0xE000)) => (12, true),
        Some(0xD800..0xE000) => (6, false),
        Some(_) => (6, true),
        // In valid JSON, one ASCII byte follows a backslash; elsewhere it is always safe to skip
        // only one byte.
        None => (
            if bytes.get(1).is_some_and(u8::is_ascii) {
                2
            } else {
                1
            },
            true,
        ),
    }
}

/// Returns the code unit of a `\uXXXX` escape at the start.
fn unit(bytes: &[u8]) -> Option<u16> {
    let digits = bytes.strip_prefix(b"\\u")?.get(..4)?;
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Converts an error, even if it does not have the form that JSON-RPC requires.
pub(super) fn error(error: &Value) -> ErrorData {
    serde_json::from_value(error.clone()).unwrap_or_else(|_| {
        let code = error
            .get("code")
            .and_then(number)
            .unwrap_or(ErrorCode::INTERNAL_ERROR.0);
        let message = match error.get("message").unwrap_or(error) {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let message: String = message.chars().take(MAX_QUOTE).collect();
        ErrorData::new(ErrorCode(code), message, error.get("data").cloned())
    })
}

/// Returns an error code that a server wrote as a text or with a fraction.
fn number(code: &Value) -> Option<i32> {
    match code {
        Value::String(text) => text.parse().ok(),
        code => code.as_f64().map(|code| code as i32),
    }
}
