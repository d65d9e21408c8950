//! The reader of the messages in response to one request.

use std::sync::Arc;

use levity_core::Timestamp;
use levity_rpc::mcp::{ClientJsonRpcMessage, RequestId, ServerJsonRpcMessage};

use super::originals::{OriginalResponses, ResultType};
use crate::link::decode::{DecodeOutcome, Queue, decode};
use crate::link::pending::{Pending, record};

/// The state of reading for one request. There is at most one response, and it belongs to the
/// request, whatever id the server gave it.
#[derive(Debug)]
pub(super) struct Reader {
    server: Arc<str>,
    id: RequestId,
    result_type: ResultType,
    originals: Arc<OriginalResponses>,
    pending: Pending,
    queue: Queue,
    /// The deadline of the response; `None` for requests that stay open by design.
    deadline: Option<Timestamp>,
}

impl Reader {
    /// Creates a reader for the response to this message; `None` if it expects no response.
    pub(super) fn of(
        server: &Arc<str>,
        message: &ClientJsonRpcMessage,
        result_type: ResultType,
        originals: &Arc<OriginalResponses>,
        deadline: Option<Timestamp>,
    ) -> Option<Self> {
        let ClientJsonRpcMessage::Request(request) = message else {
            return None;
        };
        let pending = Pending::default();
        record(&pending, message);
        let (server, id, originals) = (server.clone(), request.id.clone(), originals.clone());
        Some(Self {
            server,
            id,
            result_type,
            originals,
            pending,
            queue: Queue::new(),
            deadline,
        })
    }

    /// Returns the id of the request.
    pub(super) fn id(&self) -> RequestId {
        self.id.clone()
    }

    /// Returns the deadline of the response.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        self.deadline
    }

    /// Returns `true` if the worker must parse the result.
    pub(super) fn needs_typed_result(&self) -> bool {
        self.result_type != ResultType::Nothing
    }

    /// Decodes the bytes of a message.
    pub(super) fn push(&mut self, bytes: &[u8]) -> DecodeOutcome {
        let read = decode(bytes, &self.server, &self.pending, &mut self.queue);
        self.queue
            .iter_mut()
            .for_each(|message| self.originals.convert(message, self.result_type));
        read
    }

    /// Returns the next message, which stays in the queue.
    pub(super) fn peek(&self) -> Option<&ServerJsonRpcMessage> {
        self.queue.front()
    }

    /// Removes and returns the next message.
    pub(super) fn pop(&mut self) -> Option<ServerJsonRpcMessage> {
        self.queue.pop_front()
    }

    /// Replaces a response with an empty one for the worker.
    pub(super) fn replace_with_empty(&self, message: ServerJsonRpcMessage) -> ServerJsonRpcMessage {
        self.originals.replace_with_empty(message)
    }

    /// Returns the response, if it has arrived; drops the messages before it.
    pub(super) fn answer(&mut self) -> Option<ServerJsonRpcMessage> {
        std::iter::from_fn(|| self.queue.pop_front()).find(is_answer)
    }
}

/// Returns `true` if the message is a response to a request.
pub(super) fn is_answer(message: &ServerJsonRpcMessage) -> bool {
    matches!(
        message,
        ServerJsonRpcMessage::Response(_) | ServerJsonRpcMessage::Error(_)
    )
}
