//! What the commands print, and how.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

pub(crate) use levity::core::text::chain;

/// Prints, and does not mind a reader who has gone away.
pub(crate) fn say(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out
        .write_all(harmless(text).as_bytes())
        .and_then(|()| out.flush());
}

/// The text without what would make a terminal do something, or show something else: models and web
/// pages wrote it.
pub(crate) fn harmless(text: &str) -> Cow<'_, str> {
    if text.contains(acts) {
        text.replace(acts, "\u{fffd}").into()
    } else {
        text.into()
    }
}

/// The most bytes of a plan or a script.
const LARGEST_TEXT: u64 = 64 << 20;

/// The text of a file that the user names, or of a pipe, unless it is too large.
pub(crate) fn read_text(path: &Path) -> Result<String, String> {
    let failed = |error: io::Error| format!("`{}` cannot be read: {error}", path.display());
    let mut text = String::new();
    File::open(path)
        .map_err(failed)?
        .take(LARGEST_TEXT + 1)
        .read_to_string(&mut text)
        .map_err(failed)?;
    match text.len() as u64 > LARGEST_TEXT {
        true => Err(format!(
            "`{}` is larger than {} MiB",
            path.display(),
            LARGEST_TEXT >> 20
        )),
        false => Ok(text),
    }
}

/// Reads standard input to its end; fails if it has more than `max` bytes.
pub(crate) fn read_stdin(max: u64) -> Result<Vec<u8>, String> {
    read_all(io::stdin().lock(), max)
        .map_err(|error| format!("cannot read standard input: {error}"))
}

fn read_all(input: impl io::Read, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.take(max + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > max {
        true => Err(io::Error::other(format!(
            "it has more than {max} bytes; use a smaller input"
        ))),
        false => Ok(bytes),
    }
}

/// Returns a number with its unit, as in "1 tool call" and "2 tool calls".
pub(crate) fn counted(number: u64, unit: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {unit}{ending}")
}

/// A word as a shell takes it in a command that is suggested: ids and paths may be those of a
/// folder from elsewhere.
pub(crate) fn shell(word: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._/:@%+=,-".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', "'\\''")).into(),
    }
}

/// Returns whether a character is shown as nothing or as a blank, so that a text reads as another
/// one.
fn is_unseen(char: char) -> bool {
    matches!(
        char,
        '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180e}' | '\u{200b}'
            | '\u{2028}' | '\u{2029}' | '\u{2060}'..='\u{2064}' | '\u{206a}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
            | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}' | '\u{e0100}'..='\u{e01ef}'
    )
}

/// Returns whether a character makes a terminal do something, turns the direction of text, or is
/// not seen.
fn acts(char: char) -> bool {
    let turns = matches!(char, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || is_unseen(char) || (char.is_control() && !matches!(char, '\n' | '\t'))
}

/// JSON that means the same and has nothing in it that [`acts`]: such characters are only in its
/// texts.
fn harmless_json(json: &str) -> String {
    let mut line = String::with_capacity(json.len());
    for char in json.chars() {
        match acts(char) {
            true => char
                .encode_utf16(&mut [0; 2])
                .iter()
                .for_each(|unit| line.push_str(&format!("\\u{unit:04x}"))),
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

/// A text for somebody who decides about it: whole, unless it is longer than 8 KiB. Then its middle
/// is left out, and it says how much that is.
pub(crate) fn whole(text: &str) -> Cow<'_, str> {
    if is_shown_whole(text) {
        return text.into();
    }
    let (head, tail) = (
        text.floor_char_boundary(WHOLE / 2),
        text.ceil_char_boundary(text.len() - WHOLE / 2),
    );
    format!(
        "{} [.. {} bytes are not shown ..] {}",
        &text[..head],
        tail - head,
        &text[tail..]
    )
    .into()
}

/// Returns whether [`whole`] leaves nothing out of a text.
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

/// Prints JSON as it is; on a terminal, the same JSON with escapes in place of what would make the
/// terminal do something.
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
    use super::{WHOLE, brief, counted, harmless, harmless_json, read_all, shell, whole};

    #[test]
    fn input_over_the_limit_is_refused_and_not_cut() {
        assert_eq!(read_all(&b"abc"[..], 3).unwrap(), b"abc");
        assert!(read_all(&b"abcd"[..], 3).is_err());
    }

    #[test]
    fn counted_unit_is_plural_unless_the_number_is_one() {
        let shown = [0, 1, 2].map(|number| counted(number, "turn"));
        assert_eq!(shown, ["0 turns", "1 turn", "2 turns"]);
    }

    #[test]
    fn characters_that_are_not_seen_are_not_printed() {
        let unseen = "\u{200b}\u{2060}\u{ad}\u{2028}\u{2029}\u{3164}\u{2800}\u{feff}\u{180e}\u{115f}\u{e0041}\u{e0100}";
        for char in unseen.chars() {
            let text = format!("rm{char}x");
            assert_eq!(harmless(&text), "rm\u{fffd}x", "{:x}", u32::from(char));
            let json = serde_json::to_string(&text).unwrap();
            let shown = harmless_json(&json);
            assert!(shown.is_ascii(), "{shown}");
            assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
        }
        assert_eq!(
            harmless("naïve 日本 👩\u{200d}🚀"),
            "naïve 日本 👩\u{200d}🚀"
        );
    }

    #[test]
    fn words_of_suggested_commands_are_quoted() {
        for word in ["r1", "0f3a.2", "runs/x.db", "a:b@c"] {
            assert_eq!(shell(word), word);
        }
        for (word, quoted) in [
            ("", "''"),
            ("a b", "'a b'"),
            ("$(touch x)", "'$(touch x)'"),
            ("a;b", "'a;b'"),
            ("a`b`", "'a`b`'"),
            ("it's", "'it'\\''s'"),
            ("a\nb", "'a\nb'"),
            ("~", "'~'"),
            ("*", "'*'"),
        ] {
            assert_eq!(shell(word), quoted);
        }
    }

    #[test]
    fn what_moves_a_terminal_is_not_printed() {
        assert_eq!(
            harmless("two\n\tlines, ünïcode 🦀"),
            "two\n\tlines, ünïcode 🦀"
        );
        assert_eq!(
            harmless("\u{1b}[2Ja\rb\u{9b}c\u{7}"),
            "\u{fffd}[2Ja\u{fffd}b\u{fffd}c\u{fffd}"
        );
        assert_eq!(harmless("rm \u{202e}txt.exe"), "rm \u{fffd}txt.exe");
    }

    #[test]
    fn json_says_the_same_and_moves_no_terminal() {
        let text = "\u{1b}[2J \u{9b} \u{7f} \u{202e}x\u{200f} \u{61c}\n\"ü\\";
        let line = harmless_json(&serde_json::to_string(text).unwrap_or_default());
        assert_eq!(harmless(&line), line);
        assert_eq!(
            serde_json::from_str::<String>(&line).ok().as_deref(),
            Some(text)
        );
    }

    #[test]
    fn text_for_a_decision_is_whole_or_says_how_much_is_missing() {
        assert_eq!(whole(&"x".repeat(WHOLE)), "x".repeat(WHOLE));
        let text = format!("begin{}end", "ä".repeat(WHOLE));
        let shown = whole(&text);
        assert!(shown.starts_with("begin") && shown.ends_with("end") && shown.len() < WHOLE + 100);
        let missing: usize = shown
            .split_once("[.. ")
            .and_then(|(_, rest)| rest.split(' ').next()?.parse().ok())
            .unwrap_or(0);
        assert_eq!(
            shown.len() - " [..  bytes are not shown ..] ".len() - missing.to_string().len()
                + missing,
            text.len()
        );
    }

    #[test]
    fn what_is_long_is_cut() {
        assert_eq!(brief("ä".repeat(500)), "ä".repeat(500));
        assert_eq!(
            brief("ä".repeat(501)),
            format!("{}.. (1002 bytes)", "ä".repeat(500))
        );
    }
}
