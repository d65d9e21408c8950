//! Output to the terminal, and input from files and pipes.
//!
//! All output of the commands passes through this module, because most of it is untrusted: models,
//! tools, web pages and stored runs can contain escape sequences that move the cursor, recolour
//! text or change the title, and characters that reorder or hide text. Text is printed with such
//! characters replaced by U+FFFD; JSON is printed with them escaped, so its value stays the same.
//!
//! Streams: answers and JSON go to standard output, notes and errors to standard error with the
//! prefix `levity: `. A closed pipe (`levity .. | head`) is no error. Each error is one line of the
//! form `problem; next step`.
//!
//! Input from files and pipes has a limit in bytes, and a longer input fails instead of being cut:
//! half a plan or half a script would be another plan.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

pub(crate) use levity::core::text::chain;

/// Prints text to the standard output, and ignores a closed pipe.
///
/// The text has no line break added. The output is flushed at once, because the deltas of a model
/// arrive in pieces without a line break.
pub(crate) fn print_text(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out
        .write_all(sanitize(text).as_bytes())
        .and_then(|()| out.flush());
}

/// Replaces characters that would control a terminal or disguise the text. Models and web pages may
/// have written it.
///
/// Line breaks and tabs stay. Text without such characters, which is nearly all of it, is borrowed.
pub(crate) fn sanitize(text: &str) -> Cow<'_, str> {
    if text.contains(is_unsafe) {
        text.replace(is_unsafe, "\u{fffd}").into()
    } else {
        text.into()
    }
}

/// The maximum size of a plan or a script, in bytes.
///
/// 64 MiB, far above any plan that a person or a model writes, and far below the memory of a
/// machine.
const MAX_TEXT: u64 = 64 << 20;

/// Reads a file that the user names, or a pipe, unless it is too large.
///
/// The limit is checked while reading and not by the size of the file, because a pipe or a device
/// has no size. Fails for a file that cannot be opened, that is not UTF-8, or that is too large.
pub(crate) fn read_text(path: &Path) -> Result<String, String> {
    let failed = |error: io::Error| format!("cannot read `{}`: {error}", path.display());
    let mut text = String::new();
    File::open(path)
        .map_err(failed)?
        .take(MAX_TEXT + 1)
        .read_to_string(&mut text)
        .map_err(failed)?;
    match text.len() as u64 > MAX_TEXT {
        true => Err(format!(
            "`{}` is larger than {} MiB; use a smaller file",
            path.display(),
            MAX_TEXT >> 20
        )),
        false => Ok(text),
    }
}

/// Reads standard input to its end; fails if it has more than `max` bytes.
pub(crate) fn read_stdin(max: u64) -> Result<Vec<u8>, String> {
    read_all(io::stdin().lock(), max)
        .map_err(|error| format!("cannot read standard input: {error}"))
}

/// Reads one byte more than allowed to tell an input of exactly `max` bytes from a longer one.
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

/// Quotes a word for a shell, for use in a suggested command. Ids and paths may come from an
/// untrusted folder.
///
/// A user copies suggested commands into a shell, so an id such as `x; rm -rf ~` must stay one
/// word. Words of letters, digits and `._/:@%+=,-` stay as they are; all others are set in single
/// quotes.
pub(crate) fn shell_quote(word: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._/:@%+=,-".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', "'\\''")).into(),
    }
}

/// Returns `true` if a character is invisible or shown as a blank, so that it can disguise a text.
///
/// Zero-width joiners and the selector of emoji are not in the list, because emoji and several
/// scripts need them.
fn is_invisible(char: char) -> bool {
    matches!(
        char,
        '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{fe00}'..='\u{fe0e}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d159}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{200b}' | '\u{2028}' | '\u{2029}' | '\u{2060}'..='\u{2064}'
            | '\u{206a}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}' | '\u{e0100}'..='\u{e01ef}'
    )
}

/// Returns `true` if a character controls a terminal, changes the direction of text, or is
/// invisible.
///
/// A text that changes its direction can show the arguments of a call in another order than the one
/// that is executed, so these characters are as dangerous for an approval as escape sequences.
fn is_unsafe(char: char) -> bool {
    let changes_direction = matches!(
        char,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    changes_direction || is_invisible(char) || (char.is_control() && !matches!(char, '\n' | '\t'))
}

/// Escapes the characters of JSON for which [`is_unsafe`] is `true`. They occur only in its
/// strings, so the value stays the same.
///
/// Characters above U+FFFF become a pair of surrogates, as JSON requires.
fn sanitize_json(json: &str) -> String {
    let mut line = String::with_capacity(json.len());
    for char in json.chars() {
        match is_unsafe(char) {
            true => char
                .encode_utf16(&mut [0; 2])
                .iter()
                .for_each(|unit| line.push_str(&format!("\\u{unit:04x}"))),
            false => line.push(char),
        }
    }
    line
}

/// Shortens a long text to its beginning.
///
/// The beginning has 500 characters; the length of the whole text in bytes follows, as in `abc..
/// (81920 bytes)`.
pub(crate) fn shorten(text: String) -> String {
    const MAX_CHARS: usize = 500;
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}.. ({} bytes)", &text[..end], text.len()),
        None => text,
    }
}

/// Returns a text for a decision in full, unless it is longer than 8 KiB. Then it leaves out the
/// middle, and states how many bytes are missing.
///
/// A person who approves a call must see both of its ends: a harmless beginning could otherwise
/// hide a harmful end behind a long middle. The stated number of bytes makes the gap visible, and
/// `is_shown_in_full` lets callers refuse a decision on a call with a gap.
pub(crate) fn omit_middle(text: &str) -> Cow<'_, str> {
    if is_shown_in_full(text) {
        return text.into();
    }
    let head = levity::core::text::head(text, MAX_SHOWN / 2);
    let rest = &text[head.len()..];
    let most = rest.len() - MAX_SHOWN / 2;
    let start = (most..=rest.len()).find(|at| rest.is_char_boundary(*at));
    let hidden = start.unwrap_or(rest.len());
    let tail = &rest[hidden..];
    format!("{head} [.. {hidden} bytes are not shown ..] {tail}").into()
}

/// Returns `true` if [`omit_middle`] leaves nothing out of a text.
pub(crate) fn is_shown_in_full(text: &str) -> bool {
    text.len() <= MAX_SHOWN
}

/// The maximum number of bytes of a call that the user is shown for a decision.
const MAX_SHOWN: usize = 8 << 10;

/// Prints a value as one line of JSON.
///
/// A value that cannot be serialized prints nothing. Unsafe characters are escaped on pipes too,
/// because the line often ends on a terminal after `jq` or `grep`.
pub(crate) fn print_json(value: &impl serde::Serialize) {
    if let Ok(line) = serde_json::to_string(value) {
        print_text(&format!("{}\n", sanitize_json(&line)));
    }
}

/// Prints JSON unchanged. On a terminal, escapes replace characters that would control the
/// terminal.
///
/// Exports of runs must be byte-identical to be imported again and compared, so a file or a pipe
/// receives the bytes as they are. Bytes that are not UTF-8 are replaced on a terminal only.
pub(crate) fn write_json(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.is_terminal() {
        true => out.write_all(sanitize_json(&String::from_utf8_lossy(bytes)).as_bytes())?,
        false => out.write_all(bytes)?,
    }
    out.flush()
}

/// Prints a note to the standard error.
///
/// System errors in the text are explained first, see `explain`. A failed write is ignored: a
/// program without standard error should still do its work.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr(), "levity: {}", sanitize(&explain(text)));
}

/// Replaces the text of a system error by a plain reason, and adds the next step if the message has
/// none.
///
/// For example, "cannot read `a.json`: No such file or directory (os error 2)" becomes "cannot read
/// `a.json`: no such file or folder; check the path".
fn explain(text: &str) -> Cow<'_, str> {
    plain_reason(text).map_or(text.into(), |(problem, reason, step, rest)| {
        let has_step = problem.contains("; ") || !rest.is_empty();
        let step = if has_step { "" } else { step };
        format!("{problem}{reason}{step}{rest}").into()
    })
}

/// Splits a message at a system error: the text before it, its reason, the next step, and the rest.
///
/// The words of the system are recognized by asking the system for its text of the same code, so
/// this works in every language of the system. Returns `None` for codes without a plain reason, and
/// the message then stays unchanged.
fn plain_reason(text: &str) -> Option<(&str, &'static str, &'static str, &str)> {
    if let Some(problem) = text.strip_suffix("stream did not contain valid UTF-8") {
        return Some((problem, "it is not UTF-8", "; save it as UTF-8", ""));
    }
    let (before, after) = text.split_once(" (os error ")?;
    let (code, rest) = after.split_once(')')?;
    let error = io::Error::from_raw_os_error(code.parse().ok()?);
    let words = error.to_string();
    let problem = before.strip_suffix(words.split(" (os error ").next()?)?;
    let (reason, step) = match error.kind() {
        io::ErrorKind::NotFound => ("no such file or folder", "; check the path"),
        io::ErrorKind::AlreadyExists => ("a file has this name", "; choose another path"),
        io::ErrorKind::IsADirectory => ("it is a folder", "; use the path of a file"),
        io::ErrorKind::NotADirectory => ("it is not a folder", "; use the path of a folder"),
        io::ErrorKind::PermissionDenied => ("permission denied", "; check the permissions"),
        io::ErrorKind::StorageFull => ("the disk is full", "; free some space"),
        io::ErrorKind::QuotaExceeded => ("the disk quota is used up", "; free some space"),
        io::ErrorKind::FileTooLarge => ("the file is too large", "; raise the system's limit"),
        io::ErrorKind::ReadOnlyFilesystem => {
            ("the file system is read-only", "; choose another path")
        }
        io::ErrorKind::AddrInUse => ("the address is in use", "; choose another address"),
        io::ErrorKind::ConnectionRefused => ("connection refused", "; is the server running?"),
        _ => return None,
    };
    Some((problem, reason, step, rest))
}

/// Adds the next step to a message that has none.
///
/// A message with `; ` already has a step, by the convention of all messages of the workspace.
pub(crate) fn advise(problem: String, step: &str) -> String {
    match problem.contains("; ") {
        true => problem,
        false => format!("{problem}; {step}"),
    }
}

/// Prints an error message, and returns its exit code.
///
/// Use the code 0 for a message about a run that still has an answer.
pub(crate) fn report_error(problem: &str, code: u8) -> ExitCode {
    note(problem);
    ExitCode::from(code)
}

#[cfg(test)]
mod tests {
    use super::{
        MAX_SHOWN, advise, counted, explain, omit_middle, read_all, sanitize, sanitize_json,
        shell_quote, shorten,
    };

    #[test]
    fn read_all_rejects_input_over_limit() {
        assert_eq!(read_all(&b"abc"[..], 3).unwrap(), b"abc");
        assert!(read_all(&b"abcd"[..], 3).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn explain_replaces_system_error_and_adds_step_once() {
        let missing = std::io::Error::from_raw_os_error(2);
        for (text, expected) in [
            (
                format!("cannot read `a`: {missing}"),
                "cannot read `a`: no such file or folder; check the path",
            ),
            (
                format!("`a`: {missing}; name a suite"),
                "`a`: no such file or folder; name a suite",
            ),
            (
                format!("choose another; `a`: {missing}"),
                "choose another; `a`: no such file or folder",
            ),
            (
                "`a`: stream did not contain valid UTF-8".to_owned(),
                "`a`: it is not UTF-8; save it as UTF-8",
            ),
        ] {
            assert_eq!(explain(&text), expected);
        }
        for text in ["", "(os error 2)", "odd (os error 2)", "x (os error y)"] {
            assert_eq!(explain(text), text);
        }
    }

    #[test]
    fn advise_adds_step_to_message_without_one() {
        assert_eq!(advise("a is odd".to_owned(), "fix it"), "a is odd; fix it");
        assert_eq!(advise("a; b".to_owned(), "fix it"), "a; b");
    }

    #[test]
    fn counted_uses_plural_unless_number_is_one() {
        let shown = [0, 1, 2].map(|number| counted(number, "turn"));
        assert_eq!(shown, ["0 turns", "1 turn", "2 turns"]);
    }

    #[test]
    fn sanitize_replaces_invisible_characters() {
        let invisible = "\u{200b}\u{2060}\u{ad}\u{2028}\u{2029}\u{3164}\u{2800}\u{feff}\
                         \u{180e}\u{115f}\u{e0041}\u{e0100}";
        for char in invisible.chars() {
            let text = format!("rm{char}x");
            assert_eq!(sanitize(&text), "rm\u{fffd}x", "{:x}", u32::from(char));
            let json = serde_json::to_string(&text).unwrap();
            let shown = sanitize_json(&json);
            assert!(shown.is_ascii(), "{shown}");
            assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
        }
        assert_eq!(
            sanitize("naïve 日本 👩\u{200d}🚀"),
            "naïve 日本 👩\u{200d}🚀"
        );
    }

    #[test]
    fn shell_quote_quotes_special_characters() {
        for word in ["r1", "0f3a.2", "runs/x.db", "a:b@c"] {
            assert_eq!(shell_quote(word), word);
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
            assert_eq!(shell_quote(word), quoted);
        }
    }

    #[test]
    fn sanitize_replaces_control_characters() {
        assert_eq!(
            sanitize("two\n\tlines, ünïcode 🦀"),
            "two\n\tlines, ünïcode 🦀"
        );
        assert_eq!(
            sanitize("\u{1b}[2Ja\rb\u{9b}c\u{7}"),
            "\u{fffd}[2Ja\u{fffd}b\u{fffd}c\u{fffd}"
        );
        assert_eq!(sanitize("rm \u{202e}txt.exe"), "rm \u{fffd}txt.exe");
    }

    #[test]
    fn sanitize_json_keeps_value_and_escapes_control_characters() {
        let text = "\u{1b}[2J \u{9b} \u{7f} \u{202e}x\u{200f} \u{61c}\n\"ü\\";
        let line = sanitize_json(&serde_json::to_string(text).unwrap_or_default());
        assert_eq!(sanitize(&line), line);
        assert_eq!(
            serde_json::from_str::<String>(&line).ok().as_deref(),
            Some(text)
        );
    }

    #[test]
    fn text_for_decision_is_full_or_states_missing_bytes() {
        assert_eq!(omit_middle(&"x".repeat(MAX_SHOWN)), "x".repeat(MAX_SHOWN));
        let text = format!("begin{}end", "ä".repeat(MAX_SHOWN));
        let shown = omit_middle(&text);
        assert!(
            shown.starts_with("begin") && shown.ends_with("end") && shown.len() < MAX_SHOWN + 100
        );
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
    fn shorten_cuts_long_text() {
        assert_eq!(shorten("ä".repeat(500)), "ä".repeat(500));
        assert_eq!(
            shorten("ä".repeat(501)),
            format!("{}.. (1002 bytes)", "ä".repeat(500))
        );
    }
}
