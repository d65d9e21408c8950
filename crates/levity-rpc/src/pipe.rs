//! The bytes on their way to the other side.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::AsyncWrite;

use crate::mcp::RequestId;

/// How many bytes of cancellations may wait for the next message; more are dropped.
const MAX_CARRY: usize = 64 << 10;

/// A writable stream, the message that is being written to it, and what is to be written next to
/// messages.
pub(crate) struct Pipe<W> {
    /// None once it is closed.
    to: Option<W>,
    current: Option<Current>,
    /// Whole lines that are written before the next message, or after this one; how much of them is
    /// written.
    carry: (Vec<u8>, usize),
}

/// How far a message is.
#[derive(Default)]
struct Current {
    id: Option<RequestId>,
    written: usize,
    whole: usize,
    cancelled: bool,
    waker: Option<Waker>,
}

impl<W> Pipe<W> {
    pub(crate) fn new(to: W) -> Self {
        Self {
            to: Some(to),
            current: None,
            carry: (Vec::new(), 0),
        }
    }

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

    /// A message begins.
    pub(crate) fn begin(&mut self, id: Option<&RequestId>) {
        self.current = Some(Current {
            id: id.cloned(),
            ..Current::default()
        });
    }

    /// The message ends, one way or the other; says whether it was written in part.
    pub(crate) fn end(&mut self) -> bool {
        self.current.take().is_some_and(|current| current.torn())
    }

    /// Keeps the current message from being written, if it is this one; says whether it is too late
    /// for that because a part of it is out.
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
        current.torn()
    }

    /// Adds a line that is written when it can be.
    pub(crate) fn carry(&mut self, line: &[u8]) {
        if self.carry.0.len() + line.len() <= MAX_CARRY {
            self.carry.0.extend_from_slice(line);
        }
    }
}

impl<W: AsyncWrite + Unpin> Pipe<W> {
    /// Writes what is carried, then the line; then once more what is carried, as far as that goes
    /// at once.
    pub(crate) fn poll_write(&mut self, line: &[u8], cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { to, current, carry } = self;
        let to = to.as_mut().ok_or_else(closed)?;
        let mut alone = Current::default();
        let current = current.as_mut().unwrap_or(&mut alone);
        current.whole = line.len();
        if current.written == 0 {
            if current.cancelled {
                return Poll::Ready(Err(io::ErrorKind::Interrupted.into()));
            }
            current.wait(poll_carry(to, carry, cx), cx)?;
            if carry.1 < carry.0.len() {
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
        let _ = poll_carry(to, carry, cx)?;
        Pin::new(to).poll_flush(cx)
    }

    /// Writes what is carried, and says that nothing more comes.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let to = self.to.as_mut().ok_or_else(closed)?;
        ready!(poll_carry(to, &mut self.carry, cx))?;
        Pin::new(to).poll_shutdown(cx)
    }
}

pub(crate) fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the connection is closed")
}

impl Current {
    /// Whether a part of it is out, and not the whole.
    fn torn(&self) -> bool {
        0 < self.written && self.written < self.whole
    }

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

fn poll_carry<W: AsyncWrite + Unpin>(
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
