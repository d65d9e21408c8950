//! A connection that does not wait for ever for a client to take something.

use std::future::{Future, pending};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Fails when something waits to be sent and the client has taken nothing for so long: it is gone, or means harm.
pub(super) struct Stalled {
    stream: TcpStream,
    longest: Duration,
    /// Ends when it is too long; there only while the client takes nothing.
    over: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Stalled {
    pub(super) fn new(stream: TcpStream, longest: Duration) -> Self {
        Self { stream, longest, over: None }
    }

    /// What came of sending, unless that has waited for too long.
    fn judge<T>(&mut self, cx: &mut Context<'_>, sent: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if sent.is_ready() {
            self.over = None;
            return sent;
        }
        let longest = self.longest;
        let over = self.over.get_or_insert_with(|| {
            Box::pin(async move {
                let _ = tokio::time::timeout(longest, pending::<()>()).await;
            })
        });
        ready!(over.as_mut().poll(cx));
        self.over = None;
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Stalled {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Stalled {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.judge(cx, sent)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.judge(cx, sent)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
