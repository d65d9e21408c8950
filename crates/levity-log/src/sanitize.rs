//! Sanitizing of text from models and tools: an entry stays on one line, and cannot control a
//! terminal.
//!
//! Text from a model or a tool is untrusted: a line break could fake an entry, an escape sequence
//! could change what a terminal shows, and a character that reverses the text direction could hide
//! a part of a line.

use std::fmt::Write as _;

/// Returns `true` if a terminal or a reader could misinterpret the character: control characters,
/// line separators, and characters that change the text direction.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}'
                | '\u{200f}' | '\u{feff}'
        )
}

/// Writes a value as one word, or in quotes if it is not a single word.
pub(crate) fn push_word(line: &mut String, text: &str) {
    let is_word = !text.is_empty()
        && text
            .chars()
            .all(|c| !c.is_whitespace() && !is_unsafe(c) && !"\"\\=".contains(c));
    if is_word {
        return line.push_str(text);
    }
    line.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => line.extend(['\\', c]),
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            '\t' => line.push_str("\\t"),
            c if is_unsafe(c) => drop(write!(line, "\\u{{{:x}}}", u32::from(c))),
            c => line.push(c),
        }
    }
    line.push('"');
}

/// Escapes control characters in JSON; the escapes have the same meaning.
pub(crate) fn escape_json(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if is_unsafe(c) => drop(write!(safe, "\\u{:04x}", u32::from(c))),
            c => safe.push(c),
        }
    }
    safe
}

/// Returns the beginning of a text, with the number of omitted bytes.
pub(crate) fn clip(text: &str, max_bytes: usize) -> std::borrow::Cow<'_, str> {
    if text.len() <= max_bytes {
        return text.into();
    }
    let end = (0..=max_bytes)
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0);
    format!("{}… ({} bytes more)", &text[..end], text.len() - end).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let mut line = String::new();
        push_word(&mut line, text);
        assert_eq!(line, expected);
    }

    #[test]
    fn push_word_quotes_everything_but_words() {
        check("weather", "weather");
        check("größe/7", "größe/7");
        check("", "\"\"");
        check("two words", "\"two words\"");
        check("a=b", "\"a=b\"");
        check("say \"hi\" \\", r#""say \"hi\" \\""#);
    }

    #[test]
    fn control_characters_are_escaped() {
        check("a\nb\r\tc", r#""a\nb\r\tc""#);
        check("\u{1b}[2J", r#""\u{1b}[2J""#);
        check("\u{9b}31m\u{7f}\0", r#""\u{9b}31m\u{7f}\u{0}""#);
        check("a\u{2028}b\u{202e}c", r#""a\u{2028}b\u{202e}c""#);
        let value = serde_json::json!("\u{9b}\u{7f}\u{202e}\n");
        let safe = escape_json(&value.to_string());
        assert!(safe.is_ascii() && !safe.contains('\n'), "{safe}");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&safe).unwrap(),
            value
        );
    }

    #[test]
    fn clip_cuts_at_char_boundary() {
        assert_eq!(clip("abc", 3), "abc");
        assert_eq!(clip("äöü", 3), "ä… (4 bytes more)");
    }
}
