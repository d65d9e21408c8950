//! Errors for replies that do not come from a model: web pages, documents of another API, text,
//! compressed data or an empty body.
//!
//! The usual cause is a wrong address: a login page, a proxy, the root of a server or another API.
//! Each message says what arrived and to check the address. Text of the server is quoted only in a
//! short, sanitised form, and content types only if they are well known.
//!
//! Messages read like these:
//!
//! ```text
//! the server sent a web page titled `Sign in` (text/html) instead of a model's reply;
//!     check the address
//! the server sent an empty body (text/plain) instead of a model's reply; check the address
//! the reply has no choices: the server sent JSON of another API with `status`, `version`
//!     (application/json) instead of a model's reply; check the address
//! ```

use levity_core::text::{head, one_line};
use levity_core::{ModelError, ModelErrorKind};
use reqwest::header::HeaderMap;
use serde_json::Value;

use super::endpoint::Reply;

/// The number of bytes of a reply that are inspected to describe it.
pub(super) const HEAD: usize = 4_096;

/// The maximum length of quoted server text in bytes.
const MAX_QUOTE_BYTES: usize = 120;

/// The maximum length of a quoted field name in bytes.
const MAX_NAME_BYTES: usize = 32;

/// Content types that messages may quote. Others are hidden, because a server may repeat a key in a
/// content type, in a different spelling.
const KINDS: [&str; 26] = [
    "application/grpc",
    "application/gzip",
    "application/javascript",
    "application/json",
    "application/jsonl",
    "application/octet-stream",
    "application/pdf",
    "application/problem+json",
    "application/vnd.amazon.eventstream",
    "application/x-ndjson",
    "application/xhtml+xml",
    "application/xml",
    "application/zip",
    "audio/mpeg",
    "audio/wav",
    "image/gif",
    "image/jpeg",
    "image/png",
    "image/svg+xml",
    "text/css",
    "text/event-stream",
    "text/html",
    "text/javascript",
    "text/markdown",
    "text/plain",
    "text/xml",
];

/// Compression formats that messages may quote.
const ENCODINGS: [&str; 7] = [
    "br",
    "compress",
    "deflate",
    "gzip",
    "x-compress",
    "x-gzip",
    "zstd",
];

/// The headers and the status that describe a body.
///
/// Parameters of the content type, such as `charset`, are removed.
#[derive(Clone, Debug, Default)]
pub(super) struct ReplyHeaders {
    kind: String,
    encoding: String,
    status: Option<u16>,
}

impl ReplyHeaders {
    /// Reads the headers of a reply.
    pub(super) fn of(status: u16, headers: &HeaderMap) -> Self {
        let header = |name: &str| {
            let value = headers
                .get(name)
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default();
            value
                .split(';')
                .next()
                .unwrap_or_default()
                .trim()
                .to_lowercase()
        };
        Self {
            kind: header("content-type"),
            encoding: header("content-encoding"),
            status: Some(status),
        }
    }

    /// Returns the content type for use in a message.
    fn shown(&self) -> &str {
        match &*self.kind {
            "" => "no content type",
            kind if KINDS.contains(&kind) => kind,
            _ => "of an unusual type",
        }
    }

    /// Returns the error for a body that is not a model's reply, based on its start. An empty body
    /// of a reply that the server announced is transient; any other body will recur.
    pub(super) fn error(&self, body: &[u8]) -> ModelError {
        let body = without_byte_order_mark(body).trim_ascii();
        let kind = self.shown();
        let what = match body {
            [] if self.announces_reply() => {
                return ModelError::new(
                    ModelErrorKind::Transport,
                    "the reply ended before it started: its body is empty",
                );
            }
            [] => format!("an empty body ({kind})"),
            body => match compression(body, &self.encoding) {
                Some(name) => format!("compressed data ({name}, {kind}), which was not requested,"),
                None => self.text(body, kind),
            },
        };
        let message =
            format!("the server sent {what} instead of a model's reply; check the address");
        let error = ModelError::new(ModelErrorKind::Malformed, message);
        self.status
            .map_or(error.clone(), |status| error.with_status(status))
    }

    /// Returns `true` if the headers are those of a model's reply, or say nothing.
    fn announces_reply(&self) -> bool {
        self.kind.is_empty() || self.kind.contains("json") || self.kind == "text/event-stream"
    }

    /// Describes a body that is text, markup or binary data, from its first 4 KiB.
    fn text(&self, body: &[u8], kind: &str) -> String {
        let text = String::from_utf8_lossy(body.get(..HEAD).unwrap_or(body));
        // A truncated word may be part of a key.
        let whole = if body.len() < HEAD {
            &text
        } else {
            text.trim_end_matches(|c: char| c.is_ascii_graphic())
        };
        let text = if whole.is_empty() { &text } else { whole };
        if let Some(page) = markup(text) {
            return format!("{page} ({kind})");
        }
        if self.kind == "text/event-stream"
            || text.starts_with("data:")
            || text.starts_with("event:")
        {
            return format!("a stream of events ({kind})");
        }
        let control = text
            .chars()
            .filter(|c| c.is_control() && !c.is_whitespace() || *c == '\u{fffd}')
            .count();
        if control > 0 {
            return format!("bytes that are not text ({kind})");
        }
        match text.starts_with(['{', '[', '"']) {
            true => format!("incomplete JSON ({kind})"),
            false => format!("text, `{}` ({kind})", sanitized(text)),
        }
    }
}

/// Returns the error for a body that is not JSON.
///
/// Returns `None` for a body that starts like JSON, or is empty.
pub(crate) fn unexpected_body_error(reply: &Reply, body: &[u8]) -> Option<ModelError> {
    let known = matches!(
        without_byte_order_mark(body).trim_ascii_start(),
        [] | [b'{' | b'[', ..]
    );
    (!known).then(|| ReplyHeaders::of(reply.status(), reply.headers()).error(body))
}

/// Returns the error for JSON that is not a model's reply; its field names hint at the origin.
///
/// Up to five field names are quoted, each with at most 32 bytes. Values are never quoted.
pub(super) fn unexpected_json_error(
    value: &Value,
    headers: &ReplyHeaders,
    wire: &ModelError,
) -> ModelError {
    let kind = headers.shown();
    let what = match value {
        Value::Object(map) if map.is_empty() => "an empty JSON object".to_owned(),
        Value::Object(map) => {
            let name = |name: &String| format!("`{}`", sanitized_within(name, MAX_NAME_BYTES));
            let names: Vec<_> = map.keys().take(5).map(name).collect();
            format!("JSON of another API with {}", names.join(", "))
        }
        Value::Array(_) => "a JSON list".to_owned(),
        _ => "a bare JSON value".to_owned(),
    };
    let message_text = wire.message();
    let message = format!(
        "{message_text}: the server sent {what} ({kind}) instead of a model's reply; check the \
            address"
    );
    let error = ModelError::new(ModelErrorKind::Malformed, message);
    headers
        .status
        .map_or(error.clone(), |status| error.with_status(status))
}

/// Describes markup, with its title or first words if present. Returns `None` for other text.
///
/// The result reads like "a web page titled `502 Bad Gateway`" or "XML with the text
/// `AccessDenied`".
pub(super) fn markup(text: &str) -> Option<String> {
    let text = text.trim_start();
    if !text.starts_with('<') {
        return None;
    }
    let lower = text.to_ascii_lowercase();
    let html = [
        "<!doctype html",
        "<html",
        "<head",
        "<body",
        "<title",
        "<h1",
        "<center",
        "<p>",
        "<script",
    ];
    if html.iter().any(|tag| lower.contains(tag)) {
        let title = ["title", "h1", "h2", "p"]
            .iter()
            .find_map(|tag| element_text(text, &lower, tag));
        return Some(title.map_or("a web page".to_owned(), |title| {
            format!("a web page titled `{title}`")
        }));
    }
    let message_text = ["message", "code", "faultstring", "title"]
        .iter()
        .find_map(|tag| element_text(text, &lower, tag));
    Some(message_text.map_or("XML".to_owned(), |message_text| {
        format!(
            "XML with the text \
        `{message_text}`"
        )
    }))
}

/// Returns the sanitised text of the first element with this name.
///
/// Nested elements end the text: the title `a<b>c</b>` yields `a`.
fn element_text(text: &str, lower: &str, tag: &str) -> Option<String> {
    let mut from = 0;
    while let Some(found) = lower.get(from..)?.find(&format!("<{tag}")) {
        let after = from + found + 1 + tag.len();
        let begins = lower
            .as_bytes()
            .get(after)
            .is_some_and(|byte| matches!(byte, b'>' | b' ' | b'\n' | b'\t'));
        if begins {
            let start = after + lower.get(after..)?.find('>')? + 1;
            let end = lower
                .get(start..)?
                .find('<')
                .map_or(lower.len(), |end| start + end);
            return Some(sanitized(&unescaped(text.get(start..end)?)))
                .filter(|sanitized| !sanitized.is_empty());
        }
        from = after;
    }
    None
}

/// Replaces the entities that titles commonly contain.
fn unescaped(text: &str) -> String {
    let names = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&#39;", "'"),
        ("&nbsp;", " "),
        ("&amp;", "&"),
    ];
    names.iter().fold(text.to_owned(), |text, (name, letter)| {
        text.replace(name, letter)
    })
}

/// Sanitises server text for use in a message: one line, short, without tags, backquotes and
/// characters that affect the display. It ends with a whole word, because a part of a key would not
/// be recognised as a secret.
pub(super) fn sanitized(text: &str) -> String {
    sanitized_within(text, MAX_QUOTE_BYTES)
}

/// Sanitises text to at most `limit` bytes; a first word that is longer becomes `…`.
fn sanitized_within(text: &str, limit: usize) -> String {
    let hidden = |c: char| {
        matches!(
            c,
            '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        )
    };
    let plain = |c: char| match c {
        '`' => '\'',
        '<' | '>' => ' ',
        c if c.is_control() || hidden(c) => ' ',
        c => c,
    };
    let clean: String = text.chars().map(plain).collect();
    let line = one_line(&clean, clean.len());
    if line.len() <= limit {
        return line;
    }
    let cut = head(&line, limit);
    let continues = line[cut.len()..].starts_with(|c: char| c.is_ascii_graphic());
    let whole = if continues {
        cut.trim_end_matches(|c: char| c.is_ascii_graphic())
    } else {
        cut
    };
    match whole.trim_end() {
        "" => "…".to_owned(),
        whole => whole.to_owned(),
    }
}

/// Returns the compression of a body, by its first bytes or its header.
fn compression(body: &[u8], encoding: &str) -> Option<&'static str> {
    match body {
        [0x1f, 0x8b, ..] => Some("gzip"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some("zstd"),
        [0x78, 0x01 | 0x9c | 0xda, ..] => Some("deflate"),
        _ if matches!(encoding, "" | "identity") => None,
        _ => ENCODINGS
            .into_iter()
            .find(|known| *known == encoding)
            .or(Some("unknown")),
    }
}

/// The UTF-8 byte order mark that may precede a text.
pub(super) const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Removes a byte order mark from the start of a text.
pub(super) fn without_byte_order_mark(body: &[u8]) -> &[u8] {
    body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(kind: &str, body: &[u8], expected: &str) {
        let headers = ReplyHeaders {
            kind: kind.to_owned(),
            encoding: String::new(),
            status: Some(200),
        };
        let error = headers.error(body);
        assert_eq!(
            error.message(),
            format!("the server sent {expected} instead of a model's reply; check the address")
        );
        assert!(!error.is_retryable(), "{expected}");
        assert_eq!(error.status(), Some(200));
    }

    #[test]
    fn unexpected_body_is_described() {
        let html = "text/html";
        check(
            html,
            b"<!DOCTYPE html><html><head><title>Sign in</title>",
            "a web page titled `Sign in` (text/html)",
        );
        check(
            html,
            b"<html>\n<body>\n<h1>It\nworks!</h1>",
            "a web page titled `It works!` (text/html)",
        );
        check(
            html,
            b"<HTML><TITLE>\n Wi-Fi &amp; more `x`\t</TITLE>",
            "a web page titled `Wi-Fi & more 'x'` (text/html)",
        );
        check(html, b"<html><img src=x>", "a web page (text/html)");
        check("", b"\xef\xbb\xbf <html>", "a web page (no content type)");
        check(
            html,
            b"<html><title>\xff\xfe\xe2\x80\xaetxt</title>",
            "a web page titled `\u{fffd}\u{fffd} txt` (text/html)",
        );
        check(
            html,
            "<html><title>ä\u{1b}[31mred</title>".as_bytes(),
            "a web page titled `ä [31mred` (text/html)",
        );
        check(
            "application/xml",
            b"<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code><Message>Access \
              Denied</Message></Error>",
            "XML with the text `Access Denied` (application/xml)",
        );
        check("application/xml", b"<a/>", "XML (application/xml)");
        check(html, b"", "an empty body (text/html)");
        check("text/plain", b"OK", "text, `OK` (text/plain)");
        check(
            "text/plain",
            b"Ollama is\r\nrunning",
            "text, `Ollama is running` (text/plain)",
        );
        check(
            "application/json",
            b"\x1f\x8b\x08\x00",
            "compressed data (gzip, application/json), which was not requested,",
        );
        check(
            "image/png",
            b"\x89PNG\r\n\x1a\n",
            "bytes that are not text (image/png)",
        );
        check(
            "text/event-stream",
            b"hello",
            "a stream of events (text/event-stream)",
        );
        let long = format!("<html><title>{}", "ä".repeat(9_000));
        let headers = ReplyHeaders {
            kind: "text/html".to_owned(),
            ..ReplyHeaders::default()
        };
        assert!(headers.error(long.as_bytes()).message().len() < 250);
    }

    #[test]
    fn empty_body_of_announced_reply_is_retryable() {
        for kind in [
            "",
            "application/json",
            "text/event-stream",
            "application/x-ndjson",
        ] {
            let headers = ReplyHeaders {
                kind: kind.to_owned(),
                ..ReplyHeaders::default()
            };
            assert!(headers.error(b" \n").is_retryable(), "{kind}");
        }
    }
}
