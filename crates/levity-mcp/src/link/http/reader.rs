//! Reads the messages that come in answer to one request.

use std::sync::Arc;

use levity_core::Timestamp;
use levity_rpc::mcp::{ClientJsonRpcMessage, RequestId, ServerJsonRpcMessage};

use super::typed::{Typed, Written};
use crate::link::decode::{Decoded, Queue, decode};
use crate::link::pending::{Pending, note};

/// What is read for one request. Of answers there is one at most, and it is the request's, whatever
/// id the server gave it.
#[derive(Debug)]
pub(super) struct Reader {
    server: Arc<str>,
    id: RequestId,
    typed: Typed,
    written: Arc<Written>,
    pending: Pending,
    queue: Queue,
    /// When the answer must be there; none for what stays open by design.
    end: Option<Timestamp>,
}

impl Reader {
    /// A reader for the answer to this message; none when it wants no answer.
    pub(super) fn of(
        server: &Arc<str>,
        message: &ClientJsonRpcMessage,
        typed: Typed,
        written: &Arc<Written>,
        end: Option<Timestamp>,
    ) -> Option<Self> {
        let ClientJsonRpcMessage::Request(request) = message else {
            return None;
        };
        let pending = Pending::default();
        note(&pending, message);
        let (server, id, written) = (server.clone(), request.id.clone(), written.clone());
        Some(Self {
            server,
            id,
            typed,
            written,
            pending,
            queue: Queue::new(),
            end,
        })
    }

    /// The request.
    pub(super) fn id(&self) -> RequestId {
        self.id.clone()
    }

    /// When the answer must be there.
    pub(super) fn end(&self) -> Option<Timestamp> {
        self.end
    }

    /// Whether the worker has to understand the answer.
    pub(super) fn is_understood(&self) -> bool {
        self.typed != Typed::Nothing
    }

    /// Takes in the bytes of a message.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Decoded {
        let read = decode(bytes, &self.server, &self.pending, &mut self.queue);
        self.queue
            .iter_mut()
            .for_each(|message| self.written.keep(message, self.typed));
        read
    }

    /// The next message.
    pub(super) fn pop(&mut self) -> Option<ServerJsonRpcMessage> {
        self.queue.pop_front()
    }

    /// An answer for the worker to read.
    pub(super) fn empty(&self, message: ServerJsonRpcMessage) -> ServerJsonRpcMessage {
        self.written.empty(message)
    }

    /// The answer, if it has come; what came before it is left out.
    pub(super) fn answer(&mut self) -> Option<ServerJsonRpcMessage> {
        std::iter::from_fn(|| self.queue.pop_front()).find(is_answer)
    }
}

/// Whether it answers a request.
pub(super) fn is_answer(message: &ServerJsonRpcMessage) -> bool {
    matches!(
        message,
        ServerJsonRpcMessage::Response(_) | ServerJsonRpcMessage::Error(_)
    )
}
