//! Reads the messages that come in answer to one request.

use std::sync::Arc;

use rmcp::model::{ClientJsonRpcMessage, RequestId, ServerJsonRpcMessage};

use crate::link::decode::{Decoded, Queue, decode};
use crate::link::pending::Pending;

/// What is read for one request. Of answers there is one at most, and it is the request's, whatever id the server gave it.
#[derive(Debug)]
pub(super) struct Reader {
    server: Arc<str>,
    id: RequestId,
    pending: Pending,
    queue: Queue,
}

impl Reader {
    /// A reader for the answer to this message; none when it wants no answer.
    pub(super) fn of(server: &Arc<str>, message: &ClientJsonRpcMessage) -> Option<Self> {
        let ClientJsonRpcMessage::Request(request) = message else { return None };
        let pending = Pending::default();
        pending.sent(message);
        Some(Self { server: server.clone(), id: request.id.clone(), pending, queue: Queue::new() })
    }

    /// The request.
    pub(super) fn id(&self) -> RequestId {
        self.id.clone()
    }

    /// Takes in the bytes of a message.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Decoded {
        decode(bytes, &self.server, &self.pending, &mut self.queue)
    }

    /// The next message.
    pub(super) fn pop(&mut self) -> Option<ServerJsonRpcMessage> {
        self.queue.pop_front()
    }

    /// The answer, if it has come; what came before it is left out.
    pub(super) fn answer(&mut self) -> Option<ServerJsonRpcMessage> {
        std::iter::from_fn(|| self.queue.pop_front()).find(is_answer)
    }
}

/// Whether it answers a request.
pub(super) fn is_answer(message: &ServerJsonRpcMessage) -> bool {
    matches!(message, ServerJsonRpcMessage::Response(_) | ServerJsonRpcMessage::Error(_))
}
