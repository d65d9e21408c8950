//! A connection with a write timeout, which can be evicted with an error response.
//!
//! The HTTP library answers invalid request heads itself, with an empty body. This stream
//! recognizes those responses by their bytes and replaces them with JSON, so that clients get a
//! code and a message in every case. It also writes the response to evicted clients, because the
//! library cannot send a response without a request.

use std::future::{Future, pending};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The response to an evicted client: it waited too long to send its request, and another client
/// needed its slot.
const BUSY: &str = "{\"error\":{\"code\":\"too_many_connections\",\"message\":\"this connection \
    was closed to make room because it had presented no token; connect again and send the request \
    at once\"}}";

/// The bare responses of the HTTP parser, and the error code and message that clients get instead.
const PARSER_REFUSALS: [(&str, &str, &str); 3] = [
    (
        "400 Bad Request",
        "bad_request",
        "the request is not valid HTTP/1.1; check its request line and headers",
    ),
    (
        "414 URI Too Long",
        "uri_too_long",
        "the URI of the request is too long; send long data in the body",
    ),
    (
        "431 Request Header Fields Too Large",
        "head_too_large",
        "the head of the request exceeds 65536 bytes or 100 headers; send long data in the body",
    ),
];

/// Returns the response to send in place of one that the parser generated, which has no body.
fn parser_refusal(bytes: &[u8]) -> Option<String> {
    const LONGEST: usize = 512;
    let text = std::str::from_utf8(bytes)
        .ok()
        .filter(|text| text.len() <= LONGEST)?;
    let head = text.strip_prefix("HTTP/1.1 ")?.strip_suffix("\r\n\r\n")?;
    let mut lines = head.split("\r\n");
    let line = lines.next()?;
    // All other responses have a `cache-control` header, so they are not the parser's.
    let own = |line: &str| {
        matches!(
            line.split(':').next(),
            Some("connection" | "content-length" | "date")
        )
    };
    let (status, code, message) = PARSER_REFUSALS
        .iter()
        .find(|(status, ..)| *status == line)?;
    let is_empty = head.contains("\r\ncontent-length: 0") && lines.all(own);
    is_empty.then(|| {
        closing(
            status,
            "",
            &format!("{{\"error\":{{\"code\":\"{code}\",\"message\":\"{message}\"}}}}"),
        )
    })
}

/// Returns a JSON response that closes the connection.
fn closing(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\n{headers}connection: close\r\ncache-control: \
            no-store\r\nx-content-type-options: nosniff\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

/// A stream that fails if data is pending and the client reads nothing for too long. Such a client
/// is gone or hostile.
pub(super) struct TimedStream<S> {
    stream: S,
    write_timeout: Duration,
    /// The write timeout; present only while the client reads nothing.
    expired: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// Set when the client must be rejected because its slot was taken. The code that sets it polls
    /// the connection once more.
    evicted: Arc<AtomicBool>,
    /// The number of bytes sent of the rejection.
    rejection_sent: usize,
    /// The number of bytes sent of a replaced parser response.
    replaced: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> TimedStream<S> {
    pub(super) fn new(stream: S, write_timeout: Duration, evicted: Arc<AtomicBool>) -> Self {
        Self {
            stream,
            write_timeout,
            expired: None,
            evicted,
            rejection_sent: 0,
            replaced: 0,
        }
    }

    /// Returns the result of a write, or an error if the write has been pending for too long.
    ///
    /// The timer exists only while a write is pending, so a connection that reads quickly never
    /// creates one.
    fn check_timeout<T>(
        &mut self,
        cx: &mut Context<'_>,
        sent: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if sent.is_ready() {
            self.expired = None;
            return sent;
        }
        let write_timeout = self.write_timeout;
        let expired = self.expired.get_or_insert_with(|| {
            Box::pin(async move {
                let _ = tokio::time::timeout(write_timeout, pending::<()>()).await;
            })
        });
        ready!(expired.as_mut().poll(cx));
        self.expired = None;
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Sends `text` in place of `bytes`.
    ///
    /// Reports to the caller that all of `bytes` was written, although other bytes were sent.
    fn replace(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        text: &str,
    ) -> Poll<io::Result<usize>> {
        while let Some(rest) = text
            .as_bytes()
            .get(self.replaced..)
            .filter(|rest| !rest.is_empty())
        {
            let sent = Pin::new(&mut self.stream).poll_write(cx, rest);
            match ready!(self.check_timeout(cx, sent))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => self.replaced += sent,
            }
        }
        Poll::Ready(Ok(bytes.len()))
    }

    /// Sends the rejection, and then reports the end of the stream to the reader.
    fn reject(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let text = closing("503 Service Unavailable", "retry-after: 1\r\n", BUSY);
        while let Some(rest) = text
            .as_bytes()
            .get(self.rejection_sent..)
            .filter(|rest| !rest.is_empty())
        {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, rest)) {
                Ok(sent) if sent > 0 => self.rejection_sent += sent,
                _ => break,
            }
        }
        self.rejection_sent = text.len();
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for TimedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.evicted.load(Ordering::Acquire) {
            return self.reject(cx);
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TimedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Some(text) = parser_refusal(bytes) {
            return self.replace(cx, bytes, &text);
        }
        let sent = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.check_timeout(cx, sent)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let [only] = bytes
            && let Some(text) = parser_refusal(only)
        {
            return self.replace(cx, only, &text);
        }
        let sent = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.check_timeout(cx, sent)
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
