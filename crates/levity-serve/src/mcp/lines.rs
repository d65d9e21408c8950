//! A transport with one message per line, over any pair of streams.
//!
//! Reading stops while 1,024 responses are not written. A client that sends requests and never
//! reads thereby blocks itself and not the server. A line that is too long is skipped in full; its
//! id is searched at both ends, so that the client gets an error for the right request.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;

use levity_rpc::mcp::{
    CallToolRequest, ClientJsonRpcMessage, ClientRequest, ErrorData, JsonRpcRequest, RequestId,
    RoleServer, ServerJsonRpcMessage, Transport,
};
use levity_rpc::{Line, LineBuffer, LineWriter, find_id};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// The maximum number of unwritten responses. Beyond that, nothing more is read, so that a client
/// that does not read delays only itself.
const MAX_UNWRITTEN: usize = 1024;

/// A line transport that answers invalid messages. The library's own transport drops them silently,
/// and the client waits forever.
pub(super) struct Lines<R, W> {
    reader: R,
    lines: LineBuffer,
    writer: LineWriter<W>,
    permits: Arc<Semaphore>,
    /// Rejections in progress. They are tasks, because a read may be cancelled at any moment, and a
    /// half-written line would break the connection.
    refusals: JoinSet<()>,
}

/// The content of a line.
#[expect(
    clippy::large_enum_variant,
    reason = "the value is matched immediately"
)]
enum ParsedLine {
    Message(ClientJsonRpcMessage),
    /// The error that the client gets instead of a response.
    Rejected(ErrorData, Option<RequestId>),
    Nothing,
}

impl<R, W> Lines<R, W>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    pub(super) fn new(reader: R, writer: W, limit: usize) -> Self {
        Self {
            reader,
            lines: LineBuffer::new(limit),
            // A client that does not read is detected on the reading side.
            writer: LineWriter::new(writer, |_| {}),
            permits: Arc::new(Semaphore::new(MAX_UNWRITTEN)),
            refusals: JoinSet::new(),
        }
    }

    /// Sends an error in place of a response, without waiting for the client to read it.
    fn refuse(&mut self, error: ErrorData, id: Option<RequestId>) {
        let sent = self.send(ServerJsonRpcMessage::error(error, id));
        self.refusals.spawn(async move { drop(sent.await) });
        while self.refusals.try_join_next().is_some() {}
    }
}

impl<R, W> Transport<RoleServer> for Lines<R, W>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        // The response counts from now on, not only when it is written.
        let permits = self.permits.clone().try_acquire_owned();
        let sent = self.writer.send::<_, ()>(message, None);
        async move {
            let _permit = permits;
            sent.await
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            // Nothing is read while responses to earlier messages are not taken.
            drop(self.permits.acquire().await.ok()?);
            let limit = self.lines.limit();
            let parsed = match self.lines.next_line() {
                Some(Line::Whole(line)) => parse(line),
                Some(Line::TooLong { head, tail, .. }) => {
                    let text = format!(
                        "the message is longer than {limit} bytes; send a shorter \
                        one"
                    );
                    ParsedLine::Rejected(
                        ErrorData::invalid_request(text, None),
                        find_id([&head, &tail], |_| true),
                    )
                }
                None => match poll_fn(|cx| self.lines.poll_fill(&mut self.reader, cx)).await {
                    true => continue,
                    false => return None,
                },
            };
            match parsed {
                ParsedLine::Message(message) => return Some(message),
                ParsedLine::Rejected(error, id) => self.refuse(error, id),
                ParsedLine::Nothing => {}
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        while self.refusals.join_next().await.is_some() {}
        self.writer.finish().await
    }
}

/// Parses a line as a message, or explains why it is rejected.
fn parse(line: &[u8]) -> ParsedLine {
    let line = line.trim_ascii();
    let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
    if line.is_empty() {
        return ParsedLine::Nothing;
    }
    let error = match message(line) {
        Ok(message) => return ParsedLine::Message(message),
        Err(error) => error,
    };
    if !error.is_data() {
        return ParsedLine::Rejected(ErrorData::parse_error("this line is not JSON", None), None);
    }
    let value: serde_json::Value = serde_json::from_slice(line).unwrap_or_default();
    // Answering a response or a notification could continue forever.
    let is_request = value
        .get("method")
        .is_some_and(serde_json::Value::is_string)
        || !value.is_object();
    let id = value
        .get("id")
        .and_then(|id| serde_json::from_value::<RequestId>(id.clone()).ok());
    match is_request && (id.is_some() || !value.is_object()) {
        true => ParsedLine::Rejected(
            ErrorData::invalid_request("this is not a request of the protocol", None),
            id,
        ),
        false => ParsedLine::Nothing,
    }
}

/// Parses a message. The library tries one kind after another; most are calls, so this tries them
/// first.
fn message(line: &[u8]) -> serde_json::Result<ClientJsonRpcMessage> {
    let is_call = std::str::from_utf8(line).is_ok_and(|line| line.contains("\"tools/call\""));
    if is_call && let Ok(call) = serde_json::from_slice::<JsonRpcRequest<CallToolRequest>>(line) {
        return Ok(ClientJsonRpcMessage::request(
            ClientRequest::CallToolRequest(call.request),
            call.id,
        ));
    }
    serde_json::from_slice(line)
}
