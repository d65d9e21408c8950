//! Output for the operator of a host.
//!
//! The host's protocol must not depend on its terminal: a stopped terminal (Ctrl-S) or a pipe that
//! nobody reads would block a write, and with it all clients. Lines therefore pass through a
//! bounded queue to a thread. A full queue drops lines and reports their number later, in order,
//! instead of growing.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::terminal::print_text;

/// The maximum number of lines that wait to be printed. Further lines are dropped and counted.
const MAX_QUEUED: usize = 1024;
/// The time that the end of the process waits for the remaining lines.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Prints lines on a separate thread, so that a stopped terminal or an unread pipe blocks nothing
/// else.
///
/// Clones share the queue; each part of the host holds one.
#[derive(Clone)]
pub(super) struct LinePrinter(Arc<Mutex<Lines>>);

/// The sending side of the queue; `None` in it ends the printing.
struct Lines {
    /// The queue; `None` is the last entry and ends the thread.
    send: SyncSender<Option<String>>,
    dropped: u64,
    /// A channel that closes when the last line is printed.
    printed: Receiver<()>,
}

impl LinePrinter {
    /// Fails if the system cannot start another thread.
    pub(super) fn new() -> io::Result<Self> {
        let (send, lines) = sync_channel::<Option<String>>(MAX_QUEUED);
        let (done, printed) = sync_channel(0);
        thread::Builder::new()
            .name("notices".to_owned())
            .spawn(move || {
                let _done: SyncSender<()> = done;
                lines
                    .iter()
                    .map_while(|line| line)
                    .for_each(|line| print_text(&line));
            })?;
        Ok(Self(Arc::new(Mutex::new(Lines {
            send,
            dropped: 0,
            printed,
        }))))
    }

    /// Queues a text to be printed as one line.
    ///
    /// Never blocks. Line breaks become blanks, so text of a client stays on its line.
    pub(super) fn line(&self, text: &str) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let line = format!("{}\n", text.replace('\n', " "));
        if !lines.report_dropped() || lines.send.try_send(Some(line)).is_err() {
            lines.dropped += 1;
        }
    }

    /// Prints the remaining lines, if the output accepts them in time.
    pub(super) fn end(self) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.report_dropped() && lines.send.try_send(None).is_ok() {
            let _ = lines.printed.recv_timeout(END_TIMEOUT);
        }
    }
}

impl Lines {
    /// Reports the number of dropped lines, if there are any. Returns `false` if the queue is full.
    fn report_dropped(&mut self) -> bool {
        if self.dropped > 0 {
            let line = match self.dropped {
                1 => "1 line was dropped, because the output was blocked\n".to_owned(),
                many => format!("{many} lines were dropped, because the output was blocked\n"),
            };
            if self.send.try_send(Some(line)).is_err() {
                return false;
            }
            self.dropped = 0;
        }
        true
    }
}
