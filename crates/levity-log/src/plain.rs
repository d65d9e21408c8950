//! Text of models and tools, made harmless: one entry stays one line, and a terminal that shows it
//! obeys nothing in it.

use std::fmt::Write as _;

/// Whether a terminal or a reader could take the character for something else than itself: control
/// characters (line breaks and the escapes of terminals among them), separators of lines, and what
/// turns the direction of writing.
fn is_trick(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{feff}')
}

/// Writes a value as one word, or in quotes when it is none.
pub(crate) fn word(line: &mut String, text: &str) {
    let is_word = !text.is_empty()
        && text
            .chars()
            .all(|c| !c.is_whitespace() && !is_trick(c) && !"\"\\=".contains(c));
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
            c if is_trick(c) => drop(write!(line, "\\u{{{:x}}}", u32::from(c))),
            c => line.push(c),
        }
    }
    line.push('"');
}

/// JSON without characters that do something: they stand there as escapes, which mean the same.
pub(crate) fn json(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if is_trick(c) => drop(write!(safe, "\\u{:04x}", u32::from(c))),
            c => safe.push(c),
        }
    }
    safe
}

/// The beginning of a text, and how much is left out.
pub(crate) fn clip(text: &str, most: usize) -> std::borrow::Cow<'_, str> {
    if text.len() <= most {
        return text.into();
    }
    let end = (0..=most)
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
        word(&mut line, text);
        assert_eq!(line, expected);
    }

    #[test]
    fn words_stay_and_all_else_is_quoted() {
        check("weather", "weather");
        check("größe/7", "größe/7");
        check("", "\"\"");
        check("two words", "\"two words\"");
        check("a=b", "\"a=b\"");
        check("say \"hi\" \\", r#""say \"hi\" \\""#);
    }

    #[test]
    fn nothing_breaks_the_line_or_drives_a_terminal() {
        check("a\nb\r\tc", r#""a\nb\r\tc""#);
        check("\u{1b}[2J", r#""\u{1b}[2J""#);
        check("\u{9b}31m\u{7f}\0", r#""\u{9b}31m\u{7f}\u{0}""#);
        check("a\u{2028}b\u{202e}c", r#""a\u{2028}b\u{202e}c""#);
        let value = serde_json::json!("\u{9b}\u{7f}\u{202e}\n");
        let safe = json(&value.to_string());
        assert!(safe.is_ascii() && !safe.contains('\n'), "{safe}");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&safe).unwrap(),
            value
        );
    }

    #[test]
    fn a_clip_cuts_between_letters() {
        assert_eq!(clip("abc", 3), "abc");
        assert_eq!(clip("äöü", 3), "ä… (4 bytes more)");
    }
}
