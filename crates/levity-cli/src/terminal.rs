//! What the commands print, and how.

use std::borrow::Cow;
use std::error::Error;
use std::io::{self, Write as _};
use std::process::ExitCode;

/// Prints, and does not mind a reader who has gone away.
pub(crate) fn say(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(harmless(text).as_bytes()).and_then(|()| out.flush());
}

/// The text without what would make a terminal do something, or show something else: models and web pages wrote it.
pub(crate) fn harmless(text: &str) -> Cow<'_, str> {
    let acts = |char: char| {
        let turns =
            matches!(char, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        turns || (char.is_control() && !matches!(char, '\n' | '\t'))
    };
    if text.contains(acts) { text.replace(acts, "\u{fffd}").into() } else { text.into() }
}

/// Prints a value as one line of JSON.
pub(crate) fn say_json(value: &impl serde::Serialize) {
    if let Ok(line) = serde_json::to_string(value) {
        say(&format!("{line}\n"));
    }
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

/// An error and all it came from, on one line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::harmless;

    #[test]
    fn what_moves_a_terminal_is_not_printed() {
        assert_eq!(harmless("two\n\tlines, ünïcode 🦀"), "two\n\tlines, ünïcode 🦀");
        assert_eq!(harmless("\u{1b}[2Ja\rb\u{9b}c\u{7}"), "\u{fffd}[2Ja\u{fffd}b\u{fffd}c\u{fffd}");
        assert_eq!(harmless("rm \u{202e}txt.exe"), "rm \u{fffd}txt.exe");
    }
}
