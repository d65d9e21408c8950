//! The requests that wait for a response, with the little that decoding must know about them.

use levity_rpc::mcp::{ClientJsonRpcMessage, ClientRequest, cancelled_id};

/// The requests that were sent and have not been answered or cancelled.
pub(crate) type Pending = levity_rpc::PendingCalls<Kind>;

/// The kind of a request, as far as it determines how the response is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A request that stays open while the connection lasts; rmcp itself reads its response.
    Listen,
    /// A request of any other kind.
    Other,
}

impl Kind {
    pub(crate) fn stays_open(&self) -> bool {
        *self == Self::Listen
    }
}

/// Records a message that is about to be sent.
pub(crate) fn record(pending: &Pending, message: &ClientJsonRpcMessage) {
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
