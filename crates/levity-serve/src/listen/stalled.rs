//! A connection that does not wait for ever for a client to take something, and that can be turned away.

use std::future::{Future, pending};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The answer to a client that waited so long to send its request that another one has its place.
const BUSY: &str = "{\"error\":{\"code\":\"too_many_connections\",\"message\":\"another connection took the place of this \
                    one, which had shown no token; connect again, and send the request at once\"}}";

/// Fails when something waits to be sent and the client has taken nothing for so long: it is gone, or means harm.
pub(super) struct Stalled<S> {
    stream: S,
    longest: Duration,
    /// Ends when it is too long; there only while the client takes nothing.
    over: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// Set when the client is to be told that there is no place for it. Whoever sets it polls the connection once more.
    turned_away: Arc<AtomicBool>,
    /// How much of that was sent.
    told: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Stalled<S> {
    pub(super) fn new(stream: S, longest: Duration, turned_away: Arc<AtomicBool>) -> Self {
        Self { stream, longest, over: None, turned_away, told: 0 }
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

    /// Tells the client that there is no place, and then that there is nothing more to read.
    fn turn_away(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let length = BUSY.len();
        let text = format!(
            "HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncache-control: no-store\r\n\
             x-content-type-options: nosniff\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{BUSY}"
        );
        while let Some(rest) = text.as_bytes().get(self.told..).filter(|rest| !rest.is_empty()) {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, rest)) {
                Ok(sent) if sent > 0 => self.told += sent,
                _ => break,
            }
        }
        self.told = text.len();
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stalled<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.turned_away.load(Ordering::Acquire) {
            return self.turn_away(cx);
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stalled<S> {
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
