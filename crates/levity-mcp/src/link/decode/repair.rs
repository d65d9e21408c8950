//! Putting right what servers get wrong.

use std::borrow::Cow;

use levity_rpc::mcp::{ErrorCode, ErrorData};
use serde_json::Value;

/// How much of an error that is none of JSON-RPC's is quoted.
const QUOTE: usize = 1 << 10;

/// Reads JSON; text that is no UTF-8 and halves of surrogate pairs become the replacement
/// character.
pub(super) fn parse(bytes: &[u8]) -> serde_json::Result<Value> {
    serde_json::from_slice(bytes).or_else(|error| {
        let text = String::from_utf8_lossy(bytes);
        match whole_characters(&text) {
            Cow::Borrowed(_) if matches!(text, Cow::Borrowed(_)) => Err(error),
            text => serde_json::from_str(&text),
        }
    })
}

/// Replaces `\uXXXX` that is half of a surrogate pair without its other half. Python and JavaScript
/// write these; JSON allows them and Unicode does not.
fn whole_characters(text: &str) -> Cow<'_, str> {
    let mut fixed = String::new();
    let (mut done, mut at) = (0, 0);
    while let Some(found) = memchr::memchr(b'\\', &text.as_bytes()[at..]) {
        let start = at + found;
        let (length, good) = escape(&text.as_bytes()[start..]);
        if !good {
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

/// How long the escape at the beginning is, and whether it stands for a whole character.
fn escape(bytes: &[u8]) -> (usize, bool) {
    match unit(bytes) {
        Some(0xD800..0xDC00) if matches!(unit(&bytes[6..]), Some(0xDC00..0xE000)) => (12, true),
        Some(0xD800..0xE000) => (6, false),
        Some(_) => (6, true),
        // Whatever follows a backslash is one ASCII byte in valid JSON; stepping over one byte only
        // is always safe elsewhere.
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

fn unit(bytes: &[u8]) -> Option<u16> {
    let digits = bytes.strip_prefix(b"\\u")?.get(..4)?;
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// An error, also where it has not the form that JSON-RPC wants.
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
        let message: String = message.chars().take(QUOTE).collect();
        ErrorData::new(ErrorCode(code), message, error.get("data").cloned())
    })
}

fn number(code: &Value) -> Option<i32> {
    match code {
        Value::String(text) => text.parse().ok(),
        code => code.as_f64().map(|code| code as i32),
    }
}
