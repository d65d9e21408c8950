//! Lines from the terminal or a pipe.
//!
//! Reading standard input blocks, and a blocked read cannot be cancelled. A thread of its own
//! therefore reads, one line per request; the async side can stop waiting (Ctrl-C, an answer
//! elsewhere) without losing the line. Nothing is read ahead: input that nobody asked for stays in
//! the pipe for a child process or the shell.

use std::io::{self, BufRead, IsTerminal as _, Read as _, Write as _};
use std::sync::mpsc;
use std::thread;

use levity::core::text::is_blank;
use tokio::sync::mpsc as async_mpsc;

use crate::terminal::sanitize;

/// The maximum length of a line: 1 MiB.
///
/// Bounds the memory that a pipe without line breaks can take.
const MAX_LINE: usize = 1 << 20;

/// Parses the goal of a run.
///
/// Invisible characters alone count as blank.
///
/// # Errors
/// Returns an error if the goal has no visible text.
pub(crate) fn goal(text: &str) -> Result<String, String> {
    match is_blank(text) {
        true => Err("the goal has no visible text; describe the task".to_owned()),
        false => Ok(text.to_owned()),
    }
}

/// The standard input, line by line. A thread reads a line only on request. If the caller stops
/// waiting, the next request receives that line.
///
/// At most one request is open at a time, as `requested` records; the channel of lines holds one.
pub(crate) struct Input {
    requests: mpsc::Sender<()>,
    lines: async_mpsc::Receiver<io::Result<Option<String>>>,
    /// True if the thread has a request whose line has not been received yet.
    requested: bool,
}

impl Input {
    /// Creates the input without reading anything.
    pub(crate) fn new() -> Self {
        let (requests, requested) = mpsc::channel();
        let (sender, lines) = async_mpsc::channel(1);
        // The end of the program does not wait for this thread, because the user may never press
        // return.
        thread::spawn(move || {
            while requested.recv().is_ok() {
                let line = read(&mut io::stdin().lock());
                if sender.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            requests,
            lines,
            requested: false,
        }
    }

    /// Returns `true` if the standard input is a terminal.
    pub(crate) fn is_terminal() -> bool {
        io::stdin().is_terminal()
    }

    /// Discards text that was typed but not read yet, because it was meant for something else.
    ///
    /// Keys that a user pressed while a run was printing must not approve a call that appears a
    /// moment later. It clears the line that was already read and the queue of the terminal; a pipe
    /// keeps its content apart from that line.
    pub(crate) fn discard_typed(&mut self) {
        if self.lines.try_recv().is_ok() {
            self.requested = false;
        }
        #[cfg(unix)]
        let _ = rustix::termios::tcflush(io::stdin(), rustix::termios::QueueSelector::IFlush);
    }

    /// Returns the next line without its line ending, or `None` at the end of the input. On a
    /// terminal, `prompt` is first printed to the standard error. Dropping the future loses no
    /// line.
    ///
    /// # Errors
    /// Returns an error if reading fails, or if a line is longer than 1 MiB.
    pub(crate) async fn line(&mut self, prompt: &str) -> io::Result<Option<String>> {
        if Self::is_terminal() {
            let _ = write!(io::stderr(), "{}", sanitize(prompt));
        }
        if !self.requested {
            self.requested = self.requests.send(()).is_ok();
        }
        let line = self.lines.recv().await;
        self.requested = false;
        line.unwrap_or(Ok(None))
    }
}

/// Removes `\n` or `\r\n`. Bytes that are not UTF-8 are replaced, and an empty read is the end of
/// the input.
fn read(input: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    input
        .take(MAX_LINE as u64 + 1)
        .read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.len() > MAX_LINE && line.last() != Some(&b'\n') {
        let problem = format!("a line is longer than {MAX_LINE} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    }
    let line = String::from_utf8_lossy(&line);
    Ok(Some(
        line.strip_suffix('\n')
            .map_or(&*line, |line| line.strip_suffix('\r').unwrap_or(line))
            .to_owned(),
    ))
}

#[cfg(test)]
mod tests {
    use super::{MAX_LINE, read};

    #[test]
    fn read_returns_each_line_until_end_of_input() {
        let mut input = &b"one\r\n\ntwo \xff\nthree"[..];
        let mut line = || read(&mut input).ok().flatten();
        assert_eq!(line().as_deref(), Some("one"));
        assert_eq!(line().as_deref(), Some(""));
        assert_eq!(line().as_deref(), Some("two \u{fffd}"));
        assert_eq!(line().as_deref(), Some("three"));
        assert_eq!(line(), None);
    }

    #[test]
    fn read_returns_error_for_too_long_line() {
        let longest = [&b"x".repeat(MAX_LINE)[..], b"\n"].concat();
        assert!(
            read(&mut &longest[..])
                .is_ok_and(|line| line.is_some_and(|line| line.len() == MAX_LINE))
        );
        let long = b"x".repeat(MAX_LINE + 1);
        assert!(read(&mut &long[..]).is_err_and(|error| error.to_string().contains("longer than")));
    }
}
