//! A connection that does not wait for ever for a client to take something, and that can be turned
//! away.

use std::future::{Future, pending};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The answer to a client that waited so long to send its request that another one has its place.
const BUSY: &str = "{\"error\":{\"code\":\"too_many_connections\",\"message\":\"another connection \
    took the place of this \
                    one, which had shown no token; connect again, and send the request at once\"}}";

/// What the parser of requests answers by itself, and what clients get instead: the cause, by a
/// code and in words.
const PARSER_REFUSALS: [(&str, &str, &str); 3] = [
    (
        "400 Bad Request",
        "bad_request",
        "the request is not HTTP/1.1 as this server reads it; check its line and its headers",
    ),
    (
        "414 URI Too Long",
        "uri_too_long",
        "the address of the request is too long; send what is long in the body",
    ),
    (
        "431 Request Header Fields Too Large",
        "head_too_large",
        "the head of a request has 65536 bytes and 100 headers at most; send what is long in the \
            body",
    ),
];

/// The answer to be sent in place of one that the parser made by itself, which has no body.
fn parser_refusal(bytes: &[u8]) -> Option<String> {
    const LONGEST: usize = 512;
    let text = std::str::from_utf8(bytes)
        .ok()
        .filter(|text| text.len() <= LONGEST)?;
    let head = text.strip_prefix("HTTP/1.1 ")?.strip_suffix("\r\n\r\n")?;
    let mut lines = head.split("\r\n");
    let line = lines.next()?;
    // All others that answer say how long their answer may be kept.
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

/// An answer in JSON after which the connection closes.
fn closing(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\n{headers}connection: close\r\ncache-control: \
            no-store\r\nx-content-type-options: nosniff\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

/// Fails when something waits to be sent and the client has taken nothing for so long: it is gone,
/// or means harm.
pub(super) struct Stalled<S> {
    stream: S,
    longest: Duration,
    /// Ends when it is too long; there only while the client takes nothing.
    over: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// Set when the client is to be told that there is no place for it. Whoever sets it polls the
    /// connection once more.
    turned_away: Arc<AtomicBool>,
    /// How much of that was sent.
    told: usize,
    /// How much was sent of what is sent in place of an answer of the parser's.
    replaced: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Stalled<S> {
    pub(super) fn new(stream: S, longest: Duration, turned_away: Arc<AtomicBool>) -> Self {
        Self {
            stream,
            longest,
            over: None,
            turned_away,
            told: 0,
            replaced: 0,
        }
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

    /// Sends `text` in place of `bytes`.
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
            match ready!(self.judge(cx, sent))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => self.replaced += sent,
            }
        }
        Poll::Ready(Ok(bytes.len()))
    }

    /// Tells the client that there is no place, and then that there is nothing more to read.
    fn turn_away(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let text = closing("503 Service Unavailable", "retry-after: 1\r\n", BUSY);
        while let Some(rest) = text
            .as_bytes()
            .get(self.told..)
            .filter(|rest| !rest.is_empty())
        {
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
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Some(text) = parser_refusal(bytes) {
            return self.replace(cx, bytes, &text);
        }
        let sent = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.judge(cx, sent)
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
