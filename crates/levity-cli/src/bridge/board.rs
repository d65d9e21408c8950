//! What whoever sits at a host is told.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::terminal::say;

/// How many lines wait to be printed. What comes beyond them is left out, and it is said how much
/// that was.
const WAITING: usize = 1024;
/// How long the end of the process waits until all is printed.
const LAST: Duration = Duration::from_secs(1);

/// Prints lines on a thread of its own: a terminal that is stopped, or a pipe that nobody reads,
/// holds nothing else up.
#[derive(Clone)]
pub(super) struct Board(Arc<Mutex<Lines>>);

struct Lines {
    send: SyncSender<Option<String>>,
    left_out: u64,
    /// Ends when the last line is printed.
    printed: Receiver<()>,
}

impl Board {
    pub(super) fn new() -> io::Result<Self> {
        let (send, lines) = sync_channel::<Option<String>>(WAITING);
        let (done, printed) = sync_channel(0);
        thread::Builder::new()
            .name("notices".to_owned())
            .spawn(move || {
                let _done: SyncSender<()> = done;
                lines
                    .iter()
                    .map_while(|line| line)
                    .for_each(|line| say(&line));
            })?;
        Ok(Self(Arc::new(Mutex::new(Lines {
            send,
            left_out: 0,
            printed,
        }))))
    }

    /// Prints a text as one line, as soon as that can be.
    pub(super) fn line(&self, text: &str) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let line = format!("{}\n", text.replace('\n', " "));
        if !lines.make_up() || lines.send.try_send(Some(line)).is_err() {
            lines.left_out += 1;
        }
    }

    /// Prints what is left, as far as somebody takes it.
    pub(super) fn end(self) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.make_up() && lines.send.try_send(None).is_ok() {
            let _ = lines.printed.recv_timeout(LAST);
        }
    }
}

impl Lines {
    /// Says what was left out, where it was; false if there is no room for that either.
    fn make_up(&mut self) -> bool {
        if self.left_out > 0 {
            let line = format!(
                "{} lines were left out, since nobody took them\n",
                self.left_out
            );
            if self.send.try_send(Some(line)).is_err() {
                return false;
            }
            self.left_out = 0;
        }
        true
    }
}
