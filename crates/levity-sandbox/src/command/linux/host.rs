//! The host's side of a running command: it reads the output of the command, and the watcher's
//! report on how it ended.
//!
//! The host never blocks on the command: all pipes are non-blocking, and one `poll` waits for all
//! of them. A listener that panics does not leave processes behind: the command is served to its
//! end, and the panic continues afterwards.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, fcntl_dupfd_cloexec, read, write};

use super::job::Record;
use super::watch::time;
use crate::command::captured::{CapturedOutput, Decoder, HeadTailBuffer, Stream};
use crate::command::launch;
use crate::command::run::Listener;

/// The maximum size of a chunk for the listener.
const CHUNK: usize = 8 << 10;

/// The additional time for the watcher after the command's time limit, in milliseconds.
const SLACK: u64 = 15_000;

/// Creates a pipe whose descriptors are above those of the standard streams, which the child
/// replaces.
pub(super) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = io::pipe()?;
    Ok((
        move_above_stdio(reader.into())?,
        move_above_stdio(writer.into())?,
    ))
}

pub(super) fn move_above_stdio(fd: OwnedFd) -> io::Result<OwnedFd> {
    if std::os::fd::AsRawFd::as_raw_fd(&fd) > 2 {
        return Ok(fd);
    }
    Ok(fcntl_dupfd_cloexec(fd, 3)?)
}

fn set_nonblocking(fd: &OwnedFd) -> io::Result<()> {
    let flags = fcntl_getfl(fd)?;
    Ok(fcntl_setfl(fd, flags | OFlags::NONBLOCK)?)
}

/// An output stream that is read.
pub(super) struct OutputReader {
    fd: Option<OwnedFd>,
    stream: Stream,
    decoder: Decoder,
    keep: HeadTailBuffer,
    /// The number of bytes that the listener still receives.
    room: usize,
}

impl OutputReader {
    pub(super) fn new(fd: OwnedFd, stream: Stream, room: usize) -> io::Result<Self> {
        set_nonblocking(&fd)?;
        Ok(Self {
            fd: Some(fd),
            stream,
            decoder: Decoder::default(),
            keep: HeadTailBuffer::new(room),
            room,
        })
    }

    /// Reads the available output; returns `false` if there was none.
    fn take(&mut self, buffer: &mut [u8], listener: &mut OutputListener) -> bool {
        let Some(fd) = &self.fd else { return false };
        let text = match read(fd, &mut *buffer) {
            Ok(0) => {
                self.fd = None;
                self.decoder.finish()
            }
            Ok(length) => self.decoder.decode(&buffer[..length]),
            Err(Errno::INTR) => return true,
            Err(Errno::AGAIN) => return false,
            Err(_) => {
                self.fd = None;
                return false;
            }
        };
        self.keep.push(&text);
        self.forward(&text, listener);
        self.fd.is_some()
    }

    /// Passes text to the listener in chunks of whole characters, until its share is used up. A
    /// character that does not fit ends the share.
    fn forward(&mut self, mut text: &str, listener: &mut OutputListener) {
        while !text.is_empty() && self.room > 0 {
            let max = CHUNK.min(self.room);
            let cut = text
                .char_indices()
                .map(|(at, c)| at + c.len_utf8())
                .take_while(|end| *end <= max)
                .last();
            let Some(cut) = cut.filter(|cut| *cut > 0) else {
                self.room = 0;
                return;
            };
            listener.notify(self.stream, &text[..cut]);
            self.room -= cut;
            text = &text[cut..];
        }
    }

    pub(super) fn finish(mut self, listener: &mut OutputListener) -> CapturedOutput {
        let rest = self.decoder.finish();
        self.keep.push(&rest);
        self.forward(&rest, listener);
        self.keep.finish()
    }
}

/// The listener of a command. If it panics, the panic is deferred until the command has ended.
pub(super) struct OutputListener {
    listener: Option<Arc<Listener>>,
    panic: Option<Box<dyn std::any::Any + Send>>,
}

impl OutputListener {
    pub(super) fn new(listener: Option<Arc<Listener>>) -> Self {
        Self {
            listener,
            panic: None,
        }
    }

    fn notify(&mut self, stream: Stream, text: &str) {
        if let Some(listener) = &self.listener
            && let Err(panic) = catch_unwind(AssertUnwindSafe(|| listener(stream, text)))
        {
            self.listener = None;
            self.panic = Some(panic);
        }
    }

    pub(super) fn resume_panic(self) {
        if let Some(panic) = self.panic {
            std::panic::resume_unwind(panic);
        }
    }
}

/// The input that is written to the command.
pub(super) struct InputWriter {
    fd: Option<OwnedFd>,
    bytes: Vec<u8>,
    written: usize,
}

impl InputWriter {
    pub(super) fn new(fd: Option<OwnedFd>, bytes: Vec<u8>) -> io::Result<Self> {
        fd.iter().try_for_each(set_nonblocking)?;
        Ok(Self {
            fd,
            bytes,
            written: 0,
        })
    }

    /// Writes as much as the pipe takes. The pipe closes after the last byte, so the command sees
    /// the end.
    fn write_input(&mut self) {
        let Some(fd) = &self.fd else { return };
        match write(fd, &self.bytes[self.written..]) {
            Ok(length) => self.written += length,
            Err(Errno::AGAIN | Errno::INTR) => return,
            // The command has closed its input.
            Err(_) => self.written = self.bytes.len(),
        }
        if self.written == self.bytes.len() {
            self.fd = None;
        }
    }
}

/// All pipes between the host and a command.
pub(super) struct HostPipes {
    pub(super) report: OwnedFd,
    pub(super) out: OutputReader,
    pub(super) err: OutputReader,
    pub(super) feed: InputWriter,
}

impl HostPipes {
    /// Serves the command until its watcher has ended, and returns the watcher's records. A watcher
    /// that is still running long after the command's time limit was stopped by another process,
    /// and is killed.
    pub(super) fn serve(
        &mut self,
        listener: &mut OutputListener,
        watcher: i32,
        millis: u64,
    ) -> Vec<Record> {
        let end = launch::millis()
            .saturating_add(millis)
            .saturating_add(SLACK);
        let mut records = Vec::new();
        let mut buffer = vec![0; 64 << 10];
        loop {
            let remaining = end.saturating_sub(launch::millis());
            if remaining == 0 {
                let _ = launch::kill(watcher, libc::SIGKILL);
                if launch::millis() > end.saturating_add(SLACK) {
                    // A process that was not killed holds the report pipe.
                    break;
                }
            }
            let ready = self.wait(remaining.max(1));
            if ready.out {
                self.out.take(&mut buffer, listener);
            }
            if ready.err {
                self.err.take(&mut buffer, listener);
            }
            if ready.feed {
                self.feed.write_input();
            }
            // The end is the watcher's last record, even if a process that it could not kill holds
            // the report pipe.
            let ended = |records: &[Record]| matches!(records.last(), Some(Record::Ended { .. }));
            if ready.report && (!next(&self.report, &mut records) || ended(&records)) {
                break;
            }
        }
        // All writers are dead, so this ends; a process that still holds a pipe is not waited for.
        while self.out.take(&mut buffer, listener) {}
        while self.err.take(&mut buffer, listener) {}
        records
    }

    /// Waits for at most `millis`, and returns which pipes are ready.
    fn wait(&self, millis: u64) -> Ready {
        let fds = [
            (Some(&self.report), PollFlags::IN),
            (self.out.fd.as_ref(), PollFlags::IN),
            (self.err.fd.as_ref(), PollFlags::IN),
            (self.feed.fd.as_ref(), PollFlags::OUT),
        ];
        let mut polled: Vec<_> = fds
            .iter()
            .filter_map(|(fd, flags)| fd.map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), *flags)))
            .collect();
        let failed = poll(&mut polled, Some(&time(millis))).is_err();
        let mut results = polled.iter().map(|fd| !failed && !fd.revents().is_empty());
        let mut ready = fds
            .map(|(fd, _)| fd.is_some() && results.next().unwrap_or(false))
            .into_iter();
        let mut next = || ready.next().unwrap_or(false);
        Ready {
            report: next(),
            out: next(),
            err: next(),
            feed: next(),
        }
    }
}

struct Ready {
    report: bool,
    out: bool,
    err: bool,
    feed: bool,
}

/// Reads a record; returns `false` if there are no more.
fn next(report: &OwnedFd, records: &mut Vec<Record>) -> bool {
    let mut bytes = [0; Record::SIZE];
    // Records are shorter than an atomic write to a pipe, so each arrives whole.
    match read(report, &mut bytes) {
        Ok(Record::SIZE) => {
            records.extend(Record::decode(&bytes));
            true
        }
        Err(Errno::INTR) => true,
        _ => false,
    }
}
