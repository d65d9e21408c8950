//! Lines that somebody types, or that come through a pipe.

use std::io::{self, BufRead, IsTerminal as _, Read as _, Write as _};
use std::sync::mpsc;
use std::thread;

use levity::core::text::is_blank;
use tokio::sync::mpsc as async_mpsc;

use crate::terminal::harmless;

/// How long a line may be: 1 MiB.
const LONGEST: usize = 1 << 20;

/// A goal as it is given.
///
/// # Errors
/// When there is nothing in it that anybody can see.
pub(crate) fn goal(text: &str) -> Result<String, String> {
    match is_blank(text) {
        true => Err("it has no visible text; write what is to be done".to_owned()),
        false => Ok(text.to_owned()),
    }
}

/// The standard input, line by line. A thread reads a line only when one is wanted, and a line that
/// nobody waited for to the end goes to whoever wants the next.
pub(crate) struct Input {
    wants: mpsc::Sender<()>,
    lines: async_mpsc::Receiver<io::Result<Option<String>>>,
    wanted: bool,
}

impl Input {
    /// Nothing is read yet.
    pub(crate) fn new() -> Self {
        let (wants, wanted) = mpsc::channel();
        let (sender, lines) = async_mpsc::channel(1);
        // The end of the program does not wait for this thread: nobody may ever press return.
        thread::spawn(move || {
            while wanted.recv().is_ok() {
                let line = read(&mut io::stdin().lock());
                if sender.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            wants,
            lines,
            wanted: false,
        }
    }

    /// Whether somebody sits there.
    pub(crate) fn is_terminal() -> bool {
        io::stdin().is_terminal()
    }

    /// Throws away what was typed and not read yet: it was meant for something else.
    pub(crate) fn forget(&mut self) {
        if self.lines.try_recv().is_ok() {
            self.wanted = false;
        }
        #[cfg(unix)]
        let _ = rustix::termios::tcflush(io::stdin(), rustix::termios::QueueSelector::IFlush);
    }

    /// The next line without its end; nothing once the input has ended. Whoever sits there is shown
    /// `prompt` first, beside what is printed. Dropping the future loses no line.
    ///
    /// # Errors
    /// When it cannot be read, or a line is longer than 1 MiB.
    pub(crate) async fn line(&mut self, prompt: &str) -> io::Result<Option<String>> {
        if Self::is_terminal() {
            let _ = write!(io::stderr(), "{}", harmless(prompt));
        }
        if !self.wanted {
            self.wanted = self.wants.send(()).is_ok();
        }
        let line = self.lines.recv().await;
        self.wanted = false;
        line.unwrap_or(Ok(None))
    }
}

fn read(input: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    input
        .take(LONGEST as u64 + 1)
        .read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.len() > LONGEST && line.last() != Some(&b'\n') {
        let problem = format!("a line is longer than {LONGEST} bytes");
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
    use super::{LONGEST, read};

    #[test]
    fn lines_are_read_to_the_end() {
        let mut input = &b"one\r\n\ntwo \xff\nthree"[..];
        let mut line = || read(&mut input).ok().flatten();
        assert_eq!(line().as_deref(), Some("one"));
        assert_eq!(line().as_deref(), Some(""));
        assert_eq!(line().as_deref(), Some("two \u{fffd}"));
        assert_eq!(line().as_deref(), Some("three"));
        assert_eq!(line(), None);
    }

    #[test]
    fn a_line_has_a_longest_length() {
        let whole = [&b"x".repeat(LONGEST)[..], b"\n"].concat();
        assert!(
            read(&mut &whole[..]).is_ok_and(|line| line.is_some_and(|line| line.len() == LONGEST))
        );
        let long = b"x".repeat(LONGEST + 1);
        assert!(read(&mut &long[..]).is_err_and(|error| error.to_string().contains("longer than")));
    }
}
