//! Which requests still wait for an answer.

use levity_rpc::mcp::{ClientJsonRpcMessage, ClientRequest, cancelled_id};

/// The requests that were sent and not yet answered or cancelled.
pub(crate) type Pending = levity_rpc::PendingCalls<Kind>;

/// What was asked, as far as it decides how the answer is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A request that stays open while the connection lasts, and that rmcp itself reads the answer
    /// to.
    Listen,
    /// Anything else.
    Other,
}

impl Kind {
    pub(crate) fn stays_open(&self) -> bool {
        *self == Self::Listen
    }
}

/// Notes a message that is about to be sent.
pub(crate) fn note(pending: &Pending, message: &ClientJsonRpcMessage) {
    if let ClientJsonRpcMessage::Request(request) = message {
        let kind = match &request.request {
            ClientRequest::SubscriptionsListenRequest(_) => Kind::Listen,
            _ => Kind::Other,
        };
        pending.insert(request.id.clone(), kind);
    } else if let Some(id) = cancelled_id(message) {
        pending.remove(id);
    }
}
