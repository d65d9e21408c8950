//! The stdio transport: one JSON message per line, over any pair of byte streams.
//!
//! Servers in this process use it too, over a pipe in memory. The reader never blocks the writer: a
//! server that does not read delays only senders. Programs print banners and log lines to stdout by
//! mistake. Such lines are skipped, and the first ones of a row appear in the stderr log. A row of
//! 1,000 lines or 1 MiB ends the connection with an error that says so.
//!
//! A server that sends requests and does not read the answers has to wait: above 64 such requests,
//! nothing behind the next one is read.
//!
//! After the process has exited, the reader takes what is still in the pipe and then stops, even if
//! a descendant holds the pipe open.

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
use tokio::task::coop::{cooperative, has_budget_remaining};

use super::close::{CloseCause, CloseState, Stage};
use super::decode::{DecodeOutcome, Queue, decode, fail_too_large};
use super::failure;
use super::pending::{Pending, record};
use super::process::Process;
use super::unanswered::Unanswered;
use crate::config::{ServerConfig, Stdio};
use crate::event::Events;
use crate::{Error, ErrorKind, Result};

/// Starts a server's program and opens a connection to it.
///
/// # Errors
/// Returns an error if the program cannot be started.
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

/// The maximum number of consecutive lines that are not messages, and their maximum total size.
const MAX_JUNK: (usize, u64) = (1_000, 1 << 20);
/// The maximum number of such lines that are reported each time they start.
const MAX_REPORTED_JUNK: usize = 5;

/// A callback for lines that are not messages.
pub(crate) type OnJunk = Box<dyn Fn(&[u8]) + Send + Sync>;

/// A transport with one JSON message per line, in both directions.
///
/// - `receive` may be dropped at any time without losing data.
/// - A partially written message that no caller waits for ends the connection, because later data
///   would be read as the rest of it.
/// - A line over the limit is discarded. The request that it answers fails, and the connection
///   continues.
pub(crate) struct StdioTransport<R, W> {
    server: Arc<str>,
    read: R,
    lines: LineBuffer,
    queue: Queue,
    pending: Arc<Pending>,
    unanswered: Unanswered,
    writer: LineWriter<W>,
    close_state: CloseState,
    junk: (usize, u64),
    on_junk: Option<OnJunk>,
}

impl<R, W> StdioTransport<R, W>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    /// Creates a connection to the server over these streams; `max_message` is the maximum length
    /// of a received line.
    fn new(server: Arc<str>, read: R, write: W, max_message: usize) -> Self {
        let close_state = CloseState::default();
        let state = close_state.clone();
        let writer = LineWriter::new(write, move |end| match end {
            WriterEnd::Gone => state.peer_closed(),
            WriterEnd::Stuck => {
                let message = "it stopped reading in the middle of a message".to_owned();
                state.close(Some(CloseCause {
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
            unanswered: Unanswered::default(),
            writer,
            close_state,
            junk: (0, 0),
            on_junk: None,
        }
    }

    /// Passes lines that are not messages to this callback: the first few each time they start.
    pub(crate) fn on_junk(mut self, callback: OnJunk) -> Self {
        self.on_junk = Some(callback);
        self
    }

    /// Returns the closing state of the connection, which later has the cause of its end.
    pub(crate) fn close_state(&self) -> CloseState {
        self.close_state.clone()
    }

    /// Returns the writer, which can close the connection to the server.
    pub(crate) fn writer(&self) -> LineWriter<W> {
        self.writer.clone()
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Option<ServerJsonRpcMessage>> {
        self.close_state.register(cx.waker());
        loop {
            if let Some(message) = self.queue.front() {
                // A server that has ended sends nothing more than what is in the pipe.
                if self.close_state.stage() == Stage::Open {
                    ready!(self.unanswered.poll_room(message, cx));
                }
                self.unanswered.record_received(message);
                return Poll::Ready(self.queue.pop_front());
            }
            if self.close_state.stage() == Stage::Closed {
                self.writer.close();
                return Poll::Ready(self.next_failure());
            }
            if self.take_line() {
                continue;
            }
            if !ready!(self.poll_read(cx)) {
                self.close_state.close(None);
            }
        }
    }

    /// After levity closed the connection, returns error responses to pending requests, one after
    /// the other.
    fn next_failure(&mut self) -> Option<ServerJsonRpcMessage> {
        let CloseCause { kind, message } = self.close_state.cause()?;
        let error = Error::new(kind, self.server.clone(), message);
        self.queue.extend(failure::answers(&error, &self.pending));
        self.queue.pop_front()
    }

    /// Processes one line, if a complete one is available.
    fn take_line(&mut self) -> bool {
        let limit = self.lines.limit();
        let Some(line) = self.lines.next_line() else {
            return false;
        };
        let decoded = match line {
            Line::Whole(bytes) => {
                let decoded = decode(bytes, &self.server, &self.pending, &mut self.queue);
                if decoded == DecodeOutcome::Junk {
                    let (lines, size) = &mut self.junk;
                    if *lines < MAX_REPORTED_JUNK
                        && let Some(callback) = &self.on_junk
                    {
                        callback(bytes);
                    }
                    (*lines, *size) = (*lines + 1, *size + bytes.len() as u64);
                }
                decoded
            }
            Line::TooLong { head, tail, size } => {
                let before = self.queue.len();
                let message = format!(
                    "its response has {size} bytes, and the limit is {limit}; raise `max_message` \
                        to \
                        accept it"
                );
                let error = Error::new(ErrorKind::TooLarge, self.server.clone(), message);
                fail_too_large([&head, &tail], &error, &self.pending, &mut self.queue);
                // A long line that answers no request and resembles no message is junk.
                if self.queue.len() > before {
                    DecodeOutcome::Message
                } else {
                    self.record_skipped(size)
                }
            }
        };
        self.count(decoded);
        true
    }

    /// Counts and reports a long line that is no message.
    fn record_skipped(&mut self, size: u64) -> DecodeOutcome {
        self.junk = (self.junk.0 + 1, self.junk.1);
        if let Some(callback) = &self.on_junk {
            callback(format!("a line of {size} bytes was skipped").as_bytes());
        }
        DecodeOutcome::Junk
    }

    /// Ends a row of junk at the next message, or the connection if the row is too long.
    fn count(&mut self, decoded: DecodeOutcome) {
        match decoded {
            DecodeOutcome::Message => self.junk = (0, 0),
            DecodeOutcome::Junk if self.junk.0 >= MAX_JUNK.0 || self.junk.1 >= MAX_JUNK.1 => {
                let (lines, size) = self.junk;
                let message = format!(
                    "it wrote {lines} lines ({size} bytes) to stdout that are not messages; a \
                        server must log to stderr"
                );
                self.close_state.close(Some(CloseCause {
                    kind: ErrorKind::Protocol,
                    message,
                }));
            }
            DecodeOutcome::Junk | DecodeOutcome::Blank => {}
        }
    }

    /// Reads more data; returns `false` at the end of the stream.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        match self.lines.poll_fill(&mut self.read, cx) {
            Poll::Ready(more) => Poll::Ready(more),
            // A task that has used up its budget gets `Pending` even if more data is available.
            Poll::Pending if self.close_state.stage() == Stage::Open || !has_budget_remaining() => {
                Poll::Pending
            }
            // The process that still holds the stream open is not the server and sends nothing.
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
        let unwritten = self.unanswered.record_sent(&message);
        let sent = match cancelled_id(&message) {
            Some(id) => {
                self.writer.cancel(id, &message, &self.pending);
                None
            }
            None => {
                record(&self.pending, &message);
                let call = request_id(&message).map(|id| (id.clone(), self.pending.clone()));
                Some(self.writer.send(message, call))
            }
        };
        async move {
            let _unwritten = unwritten;
            match sent {
                Some(sent) => sent.await,
                None => Ok(()),
            }
        }
    }

    fn receive(&mut self) -> impl Future<Output = Option<ServerJsonRpcMessage>> + Send {
        // One read contains thousands of short messages, and the service starts a task for each.
        // Those tasks must run before it starts more.
        cooperative(poll_fn(|cx| self.poll_receive(cx)))
    }

    async fn close(&mut self) -> io::Result<()> {
        self.close_state.close(None);
        self.writer.close();
        Ok(())
    }
}

// A transport may be dropped without being closed.
impl<R, W> Drop for StdioTransport<R, W> {
    fn drop(&mut self) {
        self.close_state.close(None);
        self.writer.close();
    }
}

#[cfg(test)]
mod tests;
