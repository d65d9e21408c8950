//! The stream to the other side, with its partially written message.
//!
//! A message may be written in several polls, and its sender may stop waiting between two of them.
//! The pipe therefore remembers how much of the current message is written. A message of which
//! nothing is written can be dropped; after the first byte, it must be completed, or the stream is
//! useless.
//!
//! Cancellations are extra lines. They are written between messages, never inside one, and never
//! wait for room: more than 64 KiB of them are dropped.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::AsyncWrite;

use crate::mcp::RequestId;

/// The maximum bytes of cancellations that wait for the next message; more are dropped.
const MAX_EXTRA_LINES: usize = 64 << 10;

/// A writable stream, the message that is being written to it, and extra lines to write between
/// messages.
pub(crate) struct Pipe<W> {
    /// The stream; `None` once it is closed.
    to: Option<W>,
    current: Option<MessageProgress>,
    /// Whole lines to write before the next message or after this one, and the number of bytes
    /// already written.
    extra_lines: (Vec<u8>, usize),
}

/// The progress of a message.
#[derive(Default)]
struct MessageProgress {
    id: Option<RequestId>,
    written: usize,
    whole: usize,
    cancelled: bool,
    waker: Option<Waker>,
}

impl<W> Pipe<W> {
    /// Creates a pipe without a message in progress.
    pub(crate) fn new(to: W) -> Self {
        Self {
            to: Some(to),
            current: None,
            extra_lines: (Vec::new(), 0),
        }
    }

    /// Drops the stream and wakes the sender of the current message, which then fails.
    pub(crate) fn close(&mut self) {
        self.to = None;
        if let Some(waker) = self
            .current
            .as_mut()
            .and_then(|current| current.waker.take())
        {
            waker.wake();
        }
    }

    /// Begins a message with this id.
    pub(crate) fn begin(&mut self, id: Option<&RequestId>) {
        self.current = Some(MessageProgress {
            id: id.cloned(),
            ..MessageProgress::default()
        });
    }

    /// Ends the message; returns `true` if only a part of it was written.
    pub(crate) fn end(&mut self) -> bool {
        self.current
            .take()
            .is_some_and(|current| current.is_partial())
    }

    /// Prevents the current message from being written, if it has this id. Returns `true` if a part
    /// of it is already written.
    pub(crate) fn cancel(&mut self, id: &RequestId) -> bool {
        let Some(current) = self
            .current
            .as_mut()
            .filter(|current| current.id.as_ref() == Some(id))
        else {
            return false;
        };
        current.cancelled = true;
        if let Some(waker) = current.waker.take() {
            waker.wake();
        }
        current.is_partial()
    }

    /// Adds a line to write as soon as possible.
    pub(crate) fn push_extra_line(&mut self, line: &[u8]) {
        if self.extra_lines.0.len() + line.len() <= MAX_EXTRA_LINES {
            self.extra_lines.0.extend_from_slice(line);
        }
    }
}

impl<W: AsyncWrite + Unpin> Pipe<W> {
    /// Writes the extra lines, then the line, then any new extra lines as far as possible without
    /// waiting.
    pub(crate) fn poll_write(&mut self, line: &[u8], cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self {
            to,
            current,
            extra_lines,
        } = self;
        let to = to.as_mut().ok_or_else(closed)?;
        let mut alone = MessageProgress::default();
        let current = current.as_mut().unwrap_or(&mut alone);
        current.whole = line.len();
        if current.written == 0 {
            if current.cancelled {
                return Poll::Ready(Err(io::ErrorKind::Interrupted.into()));
            }
            current.wait(poll_extra_lines(to, extra_lines, cx), cx)?;
            if extra_lines.1 < extra_lines.0.len() {
                return Poll::Pending;
            }
        }
        while current.written < line.len() {
            match poll_some(to, &line[current.written..], cx) {
                Poll::Ready(count) => current.written += count?,
                Poll::Pending => {
                    current.waker = Some(cx.waker().clone());
                    return Poll::Pending;
                }
            }
        }
        let _ = poll_extra_lines(to, extra_lines, cx)?;
        Pin::new(to).poll_flush(cx)
    }

    /// Writes the extra lines, and shuts the stream down.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let to = self.to.as_mut().ok_or_else(closed)?;
        ready!(poll_extra_lines(to, &mut self.extra_lines, cx))?;
        Pin::new(to).poll_shutdown(cx)
    }
}

/// Returns the error of each write after the pipe was closed.
pub(crate) fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the connection is closed")
}

impl MessageProgress {
    /// Returns `true` if only a part of it is written.
    fn is_partial(&self) -> bool {
        0 < self.written && self.written < self.whole
    }

    /// Registers the task of the current message if the write is not complete, so that `cancel` and
    /// `close` can wake it.
    fn wait(&mut self, poll: Poll<io::Result<()>>, cx: &Context<'_>) -> io::Result<()> {
        match poll {
            Poll::Ready(result) => result,
            Poll::Pending => {
                self.waker = Some(cx.waker().clone());
                Ok(())
            }
        }
    }
}

/// Writes the remaining extra lines; the position survives an interruption.
fn poll_extra_lines<W: AsyncWrite + Unpin>(
    to: &mut W,
    (bytes, written): &mut (Vec<u8>, usize),
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    while *written < bytes.len() {
        *written += ready!(poll_some(to, &bytes[*written..], cx))?;
    }
    bytes.clear();
    *written = 0;
    Poll::Ready(Ok(()))
}

/// Writes a part of the bytes. A stream that accepts zero bytes is an error, because a loop would
/// never end.
fn poll_some<W: AsyncWrite + Unpin>(
    to: &mut W,
    bytes: &[u8],
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    match ready!(Pin::new(to).poll_write(cx, bytes))? {
        0 => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
        count => Poll::Ready(Ok(count)),
    }
}
