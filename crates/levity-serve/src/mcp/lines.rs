//! One message a line, over any pair of streams.

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

/// How many answers wait to be written. Beyond that nothing more is read: a client that does not
/// read makes itself wait.
const UNWRITTEN: usize = 1024;

/// The library's own line transport drops what it cannot take without a word, and the client waits
/// for ever.
pub(super) struct Lines<R, W> {
    reader: R,
    lines: LineBuffer,
    writer: LineWriter<W>,
    room: Arc<Semaphore>,
    /// Refusals under way. They are tasks, as reading may be given up at any moment, and a line
    /// half written ends the connection.
    refusals: JoinSet<()>,
}

/// What stands in a line.
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once")]
enum Parsed {
    Message(ClientJsonRpcMessage),
    /// What its client is told instead of an answer.
    Refused(ErrorData, Option<RequestId>),
    Nothing,
}

impl<R, W> Lines<R, W>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    pub(super) fn new(reader: R, writer: W, most: usize) -> Self {
        Self {
            reader,
            lines: LineBuffer::new(most),
            // A client that does not read is noticed where it is read from.
            writer: LineWriter::new(writer, |_| {}),
            room: Arc::new(Semaphore::new(UNWRITTEN)),
            refusals: JoinSet::new(),
        }
    }

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
        // Counted from now on, and not only when it is its turn to be written.
        let room = self.room.clone().try_acquire_owned();
        let sent = self.writer.send::<_, ()>(message, None);
        async move {
            let _room = room;
            sent.await
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            // Nothing is taken in while the answers to what came before are not taken.
            drop(self.room.acquire().await.ok()?);
            let most = self.lines.limit();
            let parsed = match self.lines.next_line() {
                Some(Line::Whole(line)) => parse(line),
                Some(Line::TooLong { head, tail, .. }) => {
                    let text = format!("the message is longer than {most} bytes");
                    Parsed::Refused(
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
                Parsed::Message(message) => return Some(message),
                Parsed::Refused(error, id) => self.refuse(error, id),
                Parsed::Nothing => {}
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        while self.refusals.join_next().await.is_some() {}
        self.writer.finish().await
    }
}

/// What stands in the line.
fn parse(line: &[u8]) -> Parsed {
    let line = line.trim_ascii();
    let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
    if line.is_empty() {
        return Parsed::Nothing;
    }
    let error = match message(line) {
        Ok(message) => return Parsed::Message(message),
        Err(error) => error,
    };
    if !error.is_data() {
        return Parsed::Refused(ErrorData::parse_error("this line is no JSON", None), None);
    }
    let value: serde_json::Value = serde_json::from_slice(line).unwrap_or_default();
    // An answer to an answer, or to a notice, could go on for ever.
    let asks = value
        .get("method")
        .is_some_and(serde_json::Value::is_string)
        || !value.is_object();
    let id = value
        .get("id")
        .and_then(|id| serde_json::from_value::<RequestId>(id.clone()).ok());
    match asks && (id.is_some() || !value.is_object()) {
        true => Parsed::Refused(
            ErrorData::invalid_request("this is no request of the protocol", None),
            id,
        ),
        false => Parsed::Nothing,
    }
}

/// The library tries one kind of message after another. Most are calls, so that is tried first.
fn message(line: &[u8]) -> serde_json::Result<ClientJsonRpcMessage> {
    let called = std::str::from_utf8(line).is_ok_and(|line| line.contains("\"tools/call\""));
    if called && let Ok(call) = serde_json::from_slice::<JsonRpcRequest<CallToolRequest>>(line) {
        return Ok(ClientJsonRpcMessage::request(
            ClientRequest::CallToolRequest(call.request),
            call.id,
        ));
    }
    serde_json::from_slice(line)
}
