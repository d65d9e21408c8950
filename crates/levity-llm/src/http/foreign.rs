//! Replies that no model gave: web pages, documents of another API, text, compressed data, nothing
//! at all.

use levity_core::text::{head, one_line};
use levity_core::{ModelError, ModelErrorKind};
use reqwest::header::HeaderMap;
use serde_json::Value;

use super::endpoint::Reply;

/// How much of a reply is looked at to say what it is.
pub(super) const HEAD: usize = 4_096;

/// The longest words of a server's that are repeated, in bytes.
const LONGEST: usize = 120;

/// The longest name of a field that is repeated, in bytes.
const LONGEST_NAME: usize = 32;

/// Content types that are shown. A server may repeat a key in one, in other letters than it was
/// sent.
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

/// Compressions that are shown.
const ENCODINGS: [&str; 7] = [
    "br",
    "compress",
    "deflate",
    "gzip",
    "x-compress",
    "x-gzip",
    "zstd",
];

/// What the headers say of a body.
#[derive(Clone, Debug, Default)]
pub(super) struct Came {
    kind: String,
    encoding: String,
    status: Option<u16>,
}

impl Came {
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

    /// The content type in words.
    fn shown(&self) -> &str {
        match &*self.kind {
            "" => "no content type",
            kind if KINDS.contains(&kind) => kind,
            _ => "of an unusual type",
        }
    }

    /// The error that a body means which is no reply of a model's, given how it begins. A server
    /// that said that a reply comes and sent nothing may do better next time; whatever else came
    /// will come again.
    pub(super) fn error(&self, body: &[u8]) -> ModelError {
        let body = without_mark(body).trim_ascii();
        let kind = self.shown();
        let what = match body {
            [] if self.announces_reply() => {
                return ModelError::new(
                    ModelErrorKind::Transport,
                    "the reply broke off before it began: its body is empty",
                );
            }
            [] => format!("an empty body ({kind})"),
            body => match compression(body, &self.encoding) {
                Some(name) => format!("compressed data ({name}, {kind}), which was not asked for,"),
                None => self.text(body, kind),
            },
        };
        let message =
            format!("the server sent {what} instead of a model's reply; check the address");
        let error = ModelError::new(ModelErrorKind::Malformed, message);
        self.status
            .map_or(error.clone(), |status| error.with_status(status))
    }

    fn announces_reply(&self) -> bool {
        self.kind.is_empty() || self.kind.contains("json") || self.kind == "text/event-stream"
    }

    fn text(&self, body: &[u8], kind: &str) -> String {
        let text = String::from_utf8_lossy(body.get(..HEAD).unwrap_or(body));
        // What is cut may be a key.
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
            return format!("bytes that are no text ({kind})");
        }
        match text.starts_with(['{', '[', '"']) {
            true => format!("what is no JSON to its end ({kind})"),
            false => format!("text, `{}` ({kind})", words(text)),
        }
    }
}

/// The error that a body means which is something else than JSON.
pub(crate) fn foreign(reply: &Reply, body: &[u8]) -> Option<ModelError> {
    let known = matches!(
        without_mark(body).trim_ascii_start(),
        [] | [b'{' | b'[', ..]
    );
    (!known).then(|| Came::of(reply.status(), reply.headers()).error(body))
}

/// The error that JSON means which is no reply of a model's: its fields tell where it came from.
pub(super) fn other_json(value: &Value, came: &Came, wire: &ModelError) -> ModelError {
    let kind = came.shown();
    let what = match value {
        Value::Object(map) if map.is_empty() => "an empty JSON object".to_owned(),
        Value::Object(map) => {
            let name = |name: &String| format!("`{}`", words_within(name, LONGEST_NAME));
            let names: Vec<_> = map.keys().take(5).map(name).collect();
            format!("JSON of another API with {}", names.join(", "))
        }
        Value::Array(_) => "a JSON list".to_owned(),
        _ => "a bare JSON value".to_owned(),
    };
    let said = wire.message();
    let message = format!(
        "{said}: the server sent {what} ({kind}) instead of a model's reply; check the address"
    );
    let error = ModelError::new(ModelErrorKind::Malformed, message);
    came.status
        .map_or(error.clone(), |status| error.with_status(status))
}

/// What a text of tags is, with its title or first words where it has some; nothing of one that is
/// no such text.
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
            .find_map(|tag| inside(text, &lower, tag));
        return Some(title.map_or("a web page".to_owned(), |title| {
            format!("a web page titled `{title}`")
        }));
    }
    let said = ["message", "code", "faultstring", "title"]
        .iter()
        .find_map(|tag| inside(text, &lower, tag));
    Some(said.map_or("XML".to_owned(), |said| format!("XML that says `{said}`")))
}

/// The words in the first element of this name, cleaned and cut.
fn inside(text: &str, lower: &str, tag: &str) -> Option<String> {
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
            return Some(words(&unescaped(text.get(start..end)?)))
                .filter(|words| !words.is_empty());
        }
        from = after;
    }
    None
}

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

/// A server's words for a message of ours: on one line, short, without tags, quotes of ours and
/// letters that change how the rest is shown. They end with a whole word: a part of a key would not
/// be found as one.
pub(super) fn words(text: &str) -> String {
    words_within(text, LONGEST)
}

fn words_within(text: &str, most: usize) -> String {
    let hidden = |c: char| matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    let plain = |c: char| match c {
        '`' => '\'',
        '<' | '>' => ' ',
        c if c.is_control() || hidden(c) => ' ',
        c => c,
    };
    let clean: String = text.chars().map(plain).collect();
    let line = one_line(&clean, clean.len());
    if line.len() <= most {
        return line;
    }
    let cut = head(&line, most);
    let goes_on = line[cut.len()..].starts_with(|c: char| c.is_ascii_graphic());
    let whole = if goes_on {
        cut.trim_end_matches(|c: char| c.is_ascii_graphic())
    } else {
        cut
    };
    match whole.trim_end() {
        "" => "…".to_owned(),
        whole => whole.to_owned(),
    }
}

/// How a body is compressed, by its first bytes or by its header.
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

/// The mark of UTF-8 that may stand before a text.
pub(super) const MARK: &[u8] = "\u{feff}".as_bytes();

/// A text without the mark that may stand before it.
pub(super) fn without_mark(body: &[u8]) -> &[u8] {
    body.strip_prefix(MARK).unwrap_or(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(kind: &str, body: &[u8], expected: &str) {
        let came = Came {
            kind: kind.to_owned(),
            encoding: String::new(),
            status: Some(200),
        };
        let error = came.error(body);
        assert_eq!(
            error.message(),
            format!("the server sent {expected} instead of a model's reply; check the address")
        );
        assert!(!error.is_retryable(), "{expected}");
        assert_eq!(error.status(), Some(200));
    }

    #[test]
    fn body_that_is_no_reply_is_named() {
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
            b"<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>",
            "XML that says `Access Denied` (application/xml)",
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
            "compressed data (gzip, application/json), which was not asked for,",
        );
        check(
            "image/png",
            b"\x89PNG\r\n\x1a\n",
            "bytes that are no text (image/png)",
        );
        check(
            "text/event-stream",
            b"hello",
            "a stream of events (text/event-stream)",
        );
        let long = format!("<html><title>{}", "ä".repeat(9_000));
        let came = Came {
            kind: "text/html".to_owned(),
            ..Came::default()
        };
        assert!(came.error(long.as_bytes()).message().len() < 250);
    }

    #[test]
    fn empty_body_that_was_to_be_a_reply_may_come_again() {
        for kind in [
            "",
            "application/json",
            "text/event-stream",
            "application/x-ndjson",
        ] {
            let came = Came {
                kind: kind.to_owned(),
                ..Came::default()
            };
            assert!(came.error(b" \n").is_retryable(), "{kind}");
        }
    }
}
