//! What the commands print, and how.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

pub(crate) use levity::core::text::chain;

/// Prints, and does not mind a reader who has gone away.
pub(crate) fn say(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(harmless(text).as_bytes()).and_then(|()| out.flush());
}

/// The text without what would make a terminal do something, or show something else: models and web pages wrote it.
pub(crate) fn harmless(text: &str) -> Cow<'_, str> {
    if text.contains(acts) { text.replace(acts, "\u{fffd}").into() } else { text.into() }
}

/// Whether a character makes a terminal do something, or turns the direction of text.
fn acts(char: char) -> bool {
    let turns = matches!(char, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || (char.is_control() && !matches!(char, '\n' | '\t'))
}

/// JSON that means the same and has nothing in it that [`acts`]: such characters are only in its texts.
fn harmless_json(json: &str) -> String {
    let mut line = String::with_capacity(json.len());
    for char in json.chars() {
        match acts(char) {
            true => line.push_str(&format!("\\u{:04x}", u32::from(char))),
            false => line.push(char),
        }
    }
    line
}

/// The beginning of a text that is long.
pub(crate) fn brief(text: String) -> String {
    const MOST: usize = 500;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}.. ({} bytes)", &text[..end], text.len()),
        None => text,
    }
}

/// A text for somebody who decides about it: whole, unless it is longer than 8 KiB. Then its middle is left out, and it says how much that is.
pub(crate) fn whole(text: &str) -> Cow<'_, str> {
    if is_shown_whole(text) {
        return text.into();
    }
    let (head, tail) = (text.floor_char_boundary(WHOLE / 2), text.ceil_char_boundary(text.len() - WHOLE / 2));
    format!("{} [.. {} bytes are not shown ..] {}", &text[..head], tail - head, &text[tail..]).into()
}

/// Whether [`whole`] leaves nothing out of a text.
pub(crate) fn is_shown_whole(text: &str) -> bool {
    text.len() <= WHOLE
}

/// The most bytes of a call that whoever decides about it is shown.
const WHOLE: usize = 8 << 10;

/// Prints a value as one line of JSON.
pub(crate) fn say_json(value: &impl serde::Serialize) {
    if let Ok(line) = serde_json::to_string(value) {
        say(&format!("{}\n", harmless_json(&line)));
    }
}

/// Prints JSON as it is; on a terminal, the same JSON with escapes in place of what would make the terminal do something.
pub(crate) fn write_json(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.is_terminal() {
        true => out.write_all(harmless_json(&String::from_utf8_lossy(bytes)).as_bytes())?,
        false => out.write_all(bytes)?,
    }
    out.flush()
}

/// Says something beside what is printed.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr(), "levity: {}", harmless(text));
}

/// Says what is wrong, and gives the exit code for it.
pub(crate) fn complain(problem: &str, code: u8) -> ExitCode {
    note(problem);
    ExitCode::from(code)
}

#[cfg(test)]
mod tests {
    use super::{WHOLE, brief, harmless, harmless_json, whole};

    #[test]
    fn what_moves_a_terminal_is_not_printed() {
        assert_eq!(harmless("two\n\tlines, ünïcode 🦀"), "two\n\tlines, ünïcode 🦀");
        assert_eq!(harmless("\u{1b}[2Ja\rb\u{9b}c\u{7}"), "\u{fffd}[2Ja\u{fffd}b\u{fffd}c\u{fffd}");
        assert_eq!(harmless("rm \u{202e}txt.exe"), "rm \u{fffd}txt.exe");
    }

    #[test]
    fn json_says_the_same_and_moves_no_terminal() {
        let text = "\u{1b}[2J \u{9b} \u{7f} \u{202e}x\u{200f} \u{61c}\n\"ü\\";
        let line = harmless_json(&serde_json::to_string(text).unwrap_or_default());
        assert_eq!(harmless(&line), line);
        assert_eq!(serde_json::from_str::<String>(&line).ok().as_deref(), Some(text));
    }

    #[test]
    fn text_for_a_decision_is_whole_or_says_how_much_is_missing() {
        assert_eq!(whole(&"x".repeat(WHOLE)), "x".repeat(WHOLE));
        let text = format!("begin{}end", "ä".repeat(WHOLE));
        let shown = whole(&text);
        assert!(shown.starts_with("begin") && shown.ends_with("end") && shown.len() < WHOLE + 100);
        let missing: usize =
            shown.split_once("[.. ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok()).unwrap_or(0);
        assert_eq!(
            shown.len() - " [..  bytes are not shown ..] ".len() - missing.to_string().len() + missing,
            text.len()
        );
    }

    #[test]
    fn what_is_long_is_cut() {
        assert_eq!(brief("ä".repeat(500)), "ä".repeat(500));
        assert_eq!(brief("ä".repeat(501)), format!("{}.. (1002 bytes)", "ä".repeat(500)));
    }
}
