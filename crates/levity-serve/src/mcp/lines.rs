//! One message a line, over any pair of streams.

use std::io;
use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequest, ClientJsonRpcMessage, ClientRequest, ErrorData, JsonRpcRequest, RequestId,
    ServerJsonRpcMessage,
};
use rmcp::transport::Transport;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::{Mutex, Semaphore};
use tokio::task::JoinSet;

/// How many answers wait to be written. Beyond that nothing more is read: a client that does not read makes itself wait.
const UNWRITTEN: usize = 1024;

/// How much is kept of the beginning and of the end of a line that is too long, to find out which request it was.
const KEPT: usize = 4096;

/// The library's own line transport drops what it cannot take without a word, and the client waits for ever.
pub(super) struct Lines<R, W> {
    reader: BufReader<R>,
    line: Vec<u8>,
    /// What is left of a line that is too long: its end so far.
    tail: Option<Vec<u8>>,
    most: usize,
    writer: Arc<Mutex<W>>,
    room: Arc<Semaphore>,
    /// Refusals under way. They are tasks, as reading may be given up at any moment, and a line half written spoils the next.
    refusals: JoinSet<()>,
}

/// What a line turned out to be.
enum Read {
    Line,
    TooLong(Option<RequestId>),
    End,
}

/// What stands in a line.
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once")]
enum Parsed {
    Message(ClientJsonRpcMessage),
    /// What its client is told instead of an answer.
    Refused(ErrorData, Option<RequestId>),
    Nothing,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Lines<R, W> {
    pub(super) fn new(reader: R, writer: W, most: usize) -> Self {
        Self {
            reader: BufReader::new(reader),
            line: Vec::new(),
            tail: None,
            most,
            writer: Arc::new(Mutex::new(writer)),
            room: Arc::new(Semaphore::new(UNWRITTEN)),
            refusals: JoinSet::new(),
        }
    }

    /// Reads a line. What was read is kept when this is dropped half-way, and goes on from there.
    async fn read(&mut self) -> Read {
        loop {
            let Ok(bytes) = self.reader.fill_buf().await else { return Read::End };
            if bytes.is_empty() {
                // A last line may lack its end.
                let whole = self.tail.is_none() && !self.line.is_empty();
                return if whole { Read::Line } else { Read::End };
            }
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(bytes.len(), |end| end + 1);
            let piece = &bytes[..end.unwrap_or(taken)];
            match &mut self.tail {
                Some(tail) => keep_end(tail, piece),
                None if self.line.len() + piece.len() > self.most => {
                    let mut tail = Vec::new();
                    keep_end(&mut tail, piece);
                    self.line.extend_from_slice(&piece[..piece.len().min(KEPT)]);
                    self.line.truncate(KEPT);
                    self.line.shrink_to_fit();
                    self.tail = Some(tail);
                }
                None => self.line.extend_from_slice(piece),
            }
            self.reader.consume(taken);
            if end.is_some() {
                return match self.tail.take() {
                    None => Read::Line,
                    Some(tail) => Read::TooLong(id_in(&self.line, &tail)),
                };
            }
        }
    }

    /// What stands in the line.
    fn parse(&self) -> Parsed {
        let line = self.line.trim_ascii();
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
        let asks = value.get("method").is_some_and(serde_json::Value::is_string) || !value.is_object();
        let id = value.get("id").and_then(|id| serde_json::from_value::<RequestId>(id.clone()).ok());
        match asks && (id.is_some() || !value.is_object()) {
            true => {
                Parsed::Refused(ErrorData::invalid_request("this is no request of the protocol", None), id)
            }
            false => Parsed::Nothing,
        }
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
        let writer = self.writer.clone();
        async move {
            let _room = room;
            write(&writer, &message).await
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            // Nothing is taken in while the answers to what came before are not taken.
            drop(self.room.acquire().await.ok()?);
            let parsed = match self.read().await {
                Read::End => return None,
                Read::Line => self.parse(),
                Read::TooLong(id) => {
                    let text = format!("the message is longer than {} bytes", self.most);
                    Parsed::Refused(ErrorData::invalid_request(text, None), id)
                }
            };
            self.clear();
            match parsed {
                Parsed::Message(message) => return Some(message),
                Parsed::Refused(error, id) => self.refuse(error, id),
                Parsed::Nothing => {}
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        while self.refusals.join_next().await.is_some() {}
        self.writer.lock().await.shutdown().await
    }
}

impl<R, W> Lines<R, W>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    fn refuse(&mut self, error: ErrorData, id: Option<RequestId>) {
        let sent = self.send(ServerJsonRpcMessage::error(error, id));
        self.refusals.spawn(async move { drop(sent.await) });
        while self.refusals.try_join_next().is_some() {}
    }

    /// Makes room for the next line; one that was large does not keep its memory.
    fn clear(&mut self) {
        self.line.clear();
        self.line.shrink_to(64 << 10);
    }
}

/// The library tries one kind of message after another. Most are calls, so that is tried first.
fn message(line: &[u8]) -> serde_json::Result<ClientJsonRpcMessage> {
    let called = std::str::from_utf8(line).is_ok_and(|line| line.contains("\"tools/call\""));
    if called && let Ok(call) = serde_json::from_slice::<JsonRpcRequest<CallToolRequest>>(line) {
        return Ok(ClientJsonRpcMessage::request(ClientRequest::CallToolRequest(call.request), call.id));
    }
    serde_json::from_slice(line)
}

async fn write<W: AsyncWrite + Unpin>(writer: &Mutex<W>, message: &ServerJsonRpcMessage) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    let mut writer = writer.lock().await;
    writer.write_all(&line).await?;
    writer.flush().await
}

/// Keeps the last of what goes by.
fn keep_end(tail: &mut Vec<u8>, piece: &[u8]) {
    tail.extend_from_slice(&piece[piece.len().saturating_sub(KEPT)..]);
    let over = tail.len().saturating_sub(KEPT);
    tail.drain(..over);
}

/// The id of a message of which only the beginning and the end are there. Programs write it before the parameters or behind.
fn id_in(head: &[u8], tail: &[u8]) -> Option<RequestId> {
    let (head, tail) = (String::from_utf8_lossy(head), String::from_utf8_lossy(tail));
    let before = head.split("\"params\"").next().unwrap_or_default();
    let behind = tail.rsplit(['}', ']']).find(|piece| piece.contains("\"id\""));
    [Some(before), behind].into_iter().flatten().find_map(|text| {
        let (_, value) = text.rsplit_once("\"id\"")?;
        let value = value.trim_start().strip_prefix(':')?.trim_start();
        let mut values = serde_json::Deserializer::from_str(value).into_iter::<RequestId>();
        values.next()?.ok()
    })
}
