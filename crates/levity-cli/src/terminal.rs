//! What the commands print, and how.

use std::error::Error;
use std::io::{self, Write as _};
use std::process::ExitCode;

/// Prints, and does not mind a reader who has gone away.
pub(crate) fn say(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Prints a value as one line of JSON.
pub(crate) fn say_json(value: &impl serde::Serialize) {
    if let Ok(line) = serde_json::to_string(value) {
        say(&format!("{line}\n"));
    }
}

/// Says something beside what is printed.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr(), "levity: {text}");
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
