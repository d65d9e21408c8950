//! Messages as lines: one JSON message per line, over any pair of byte streams.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use levity_core::World;
use levity_rpc::mcp::{
    ClientJsonRpcMessage, RoleClient, ServerJsonRpcMessage, Transport, cancelled_id, request_id,
};
use levity_rpc::{Line, LineBuffer, LineWriter, WriterEnd};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::task::coop::has_budget_remaining;

use super::decode::{Decoded, Queue, decode, too_large};
use super::end::{Cause, End, Stage};
use super::failure;
use super::pending::{Pending, note};
use super::process::Process;
use crate::config::{ServerConfig, Stdio};
use crate::event::Events;
use crate::{Error, ErrorKind, Result};

/// Starts a server's program and opens a connection to it.
///
/// # Errors
/// When the program cannot be started.
pub(crate) fn open(
    config: &ServerConfig,
    stdio: &Stdio,
    events: &Events,
    world: &Arc<dyn World>,
) -> Result<(StdioTransport<ChildStdout, ChildStdin>, Arc<Process>)> {
    let (process, pipes) = Process::start(config, stdio, events.clone(), world.clone())?;
    Ok((pipes, Arc::new(process)))
}

/// Opens a connection over a pair of streams.
pub(crate) fn lines<R, W>(
    server: Arc<str>,
    read: R,
    write: W,
    max_message: usize,
) -> StdioTransport<R, W>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    StdioTransport::new(server, read, write, max_message)
}

/// How many lines in a row may be no messages, and how many bytes they may have in all.
const MAX_JUNK: (usize, u64) = (1_000, 1 << 20);
/// How many of them are told, each time they begin.
const TOLD: usize = 5;

/// Hears of lines that are no messages.
pub(crate) type OnJunk = Box<dyn Fn(&[u8]) + Send + Sync>;

/// One JSON message per line, in both directions.
///
/// - `receive` may be dropped at any time; nothing is lost.
/// - A message that was begun and not finished, because nobody waits for it any more, ends the
///   connection: what came after it would be read as its rest.
/// - A line over the limit is not kept; the request it answers fails, and the connection goes on.
pub(crate) struct StdioTransport<R, W> {
    server: Arc<str>,
    read: R,
    lines: LineBuffer,
    queue: Queue,
    pending: Arc<Pending>,
    writer: LineWriter<W>,
    end: End,
    junk: (usize, u64),
    on_junk: Option<OnJunk>,
}

impl<R, W> StdioTransport<R, W>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    /// A connection to this server over these streams; `max_message` is the largest line it takes
    /// in.
    fn new(server: Arc<str>, read: R, write: W, max_message: usize) -> Self {
        let end = End::default();
        let ends = end.clone();
        let writer = LineWriter::new(write, move |end| match end {
            WriterEnd::Gone => ends.gone(),
            WriterEnd::Stuck => {
                let message = "it stopped reading in the middle of a message".to_owned();
                ends.over(Some(Cause {
                    kind: ErrorKind::Closed,
                    message,
                }));
            }
        });
        Self {
            server,
            read,
            lines: LineBuffer::new(max_message),
            queue: Queue::new(),
            pending: Arc::default(),
            writer,
            end,
            junk: (0, 0),
            on_junk: None,
        }
    }

    /// Hands lines that are no messages to this function: the first few each time they begin.
    pub(crate) fn on_junk(mut self, hear: OnJunk) -> Self {
        self.on_junk = Some(hear);
        self
    }

    /// The connection's end, which says later why it came.
    pub(crate) fn end(&self) -> End {
        self.end.clone()
    }

    /// What can close the way to the server.
    pub(crate) fn writer(&self) -> LineWriter<W> {
        self.writer.clone()
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Option<ServerJsonRpcMessage>> {
        self.end.register(cx.waker());
        loop {
            if let Some(message) = self.queue.pop_front() {
                return Poll::Ready(Some(message));
            }
            if self.end.stage() == Stage::Over {
                self.writer.close();
                return Poll::Ready(self.last());
            }
            if self.take_line() {
                continue;
            }
            if !ready!(self.poll_read(cx)) {
                self.end.over(None);
            }
        }
    }

    /// Once the connection is over for a cause of its own, whoever still waits is told that; one
    /// after the other.
    fn last(&mut self) -> Option<ServerJsonRpcMessage> {
        let Cause { kind, message } = self.end.cause()?;
        let error = Error::new(kind, self.server.clone(), message);
        self.queue.extend(failure::answers(&error, &self.pending));
        self.queue.pop_front()
    }

    /// Takes in one line, if a whole one is there.
    fn take_line(&mut self) -> bool {
        let limit = self.lines.limit();
        let Some(line) = self.lines.next_line() else {
            return false;
        };
        let decoded = match line {
            Line::Whole(bytes) => {
                let decoded = decode(bytes, &self.server, &self.pending, &mut self.queue);
                if decoded == Decoded::Junk {
                    let (lines, size) = &mut self.junk;
                    if *lines < TOLD
                        && let Some(hear) = &self.on_junk
                    {
                        hear(bytes);
                    }
                    (*lines, *size) = (*lines + 1, *size + bytes.len() as u64);
                }
                decoded
            }
            Line::TooLong { head, tail, size } => {
                let before = self.queue.len();
                let words = format!(
                    "its answer has {size} bytes and {limit} are allowed; raise `max_message` to \
                        take it"
                );
                let error = Error::new(ErrorKind::TooLarge, self.server.clone(), words);
                too_large([&head, &tail], &error, &self.pending, &mut self.queue);
                // What answered nothing and looked like nothing is junk.
                if self.queue.len() > before {
                    Decoded::Message
                } else {
                    self.skipped(size)
                }
            }
        };
        self.count(decoded);
        true
    }

    fn skipped(&mut self, size: u64) -> Decoded {
        self.junk = (self.junk.0 + 1, self.junk.1);
        if let Some(hear) = &self.on_junk {
            hear(format!("a line of {size} bytes was skipped").as_bytes());
        }
        Decoded::Junk
    }

    fn count(&mut self, decoded: Decoded) {
        match decoded {
            Decoded::Message => self.junk = (0, 0),
            Decoded::Junk if self.junk.0 >= MAX_JUNK.0 || self.junk.1 >= MAX_JUNK.1 => {
                let (lines, size) = self.junk;
                let message = format!(
                    "it wrote {lines} lines ({size} bytes) to stdout that are no messages; a \
                        server has to log to stderr"
                );
                self.end.over(Some(Cause {
                    kind: ErrorKind::Protocol,
                    message,
                }));
            }
            Decoded::Junk | Decoded::Blank => {}
        }
    }

    /// Reads more; false at the end of the stream.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        match self.lines.poll_fill(&mut self.read, cx) {
            Poll::Ready(more) => Poll::Ready(more),
            // A task that has had its share of the runtime is told to wait whether there is more to
            // read or not.
            Poll::Pending if self.end.stage() == Stage::Open || !has_budget_remaining() => {
                Poll::Pending
            }
            // Whoever still holds the stream open is not the server, and has nothing to say.
            Poll::Pending => Poll::Ready(self.lines.finish()),
        }
    }
}

impl<R, W> Transport<RoleClient> for StdioTransport<R, W>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let sent = match cancelled_id(&message) {
            Some(id) => {
                self.writer.cancel(id, &message, &self.pending);
                None
            }
            None => {
                note(&self.pending, &message);
                let call = request_id(&message).map(|id| (id.clone(), self.pending.clone()));
                Some(self.writer.send(message, call))
            }
        };
        async move {
            match sent {
                Some(sent) => sent.await,
                None => Ok(()),
            }
        }
    }

    fn receive(&mut self) -> impl Future<Output = Option<ServerJsonRpcMessage>> + Send {
        poll_fn(|cx| self.poll_receive(cx))
    }

    async fn close(&mut self) -> io::Result<()> {
        self.end.over(None);
        self.writer.close();
        Ok(())
    }
}

// A transport may be dropped without being closed.
impl<R, W> Drop for StdioTransport<R, W> {
    fn drop(&mut self) {
        self.end.over(None);
        self.writer.close();
    }
}

#[cfg(test)]
mod tests;
