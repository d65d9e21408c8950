//! The time limit of the search before a command.
//!
//! A workspace with a million entries takes seconds to search, and the caller's limit includes
//! them: otherwise a command could make the next one slow without limit. A dropped future ends the
//! search as well.

use std::io;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::command::run::Control;

/// The time limit of a command, which includes the search before it.
pub(super) struct SearchLimit<'a> {
    start: Instant,
    time: Duration,
    /// Closed when the caller no longer waits for the command.
    control: Option<&'a Control>,
}

impl<'a> SearchLimit<'a> {
    /// Starts the clock of a search with this time limit.
    pub(super) fn start(time: Duration, control: Option<&'a Control>) -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "only a real clock measures the duration of a process"
        )]
        let start = Instant::now();
        Self {
            start,
            time,
            control,
        }
    }

    /// Returns the time since the start.
    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Returns the time that the command itself may still take.
    pub(super) fn remaining(&self) -> Duration {
        self.time.saturating_sub(self.elapsed())
    }

    /// Returns `true` if the caller no longer waits for the command.
    pub(super) fn is_abandoned(&self) -> bool {
        let Some(control) = self.control else {
            return false;
        };
        let mut polled = [PollFd::new(control, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Fails if no time remains, or if the caller no longer waits.
    pub(super) fn check(&self) -> io::Result<()> {
        if self.remaining().is_zero() {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!(
                    "the search of the workspace for denied files took longer than the command's \
                     time limit of {:?}; raise the limit, or use a smaller workspace",
                    self.time
                ),
            ));
        }
        if self.is_abandoned() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        Ok(())
    }
}

/// A limit that no test reaches.
#[cfg(test)]
pub(super) fn unlimited() -> SearchLimit<'static> {
    SearchLimit::start(Duration::MAX, None)
}
