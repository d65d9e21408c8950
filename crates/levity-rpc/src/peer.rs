//! Calls of this side, over any connection that carries texts.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::mcp::RequestId;
use crate::{PendingCalls, RpcMessage};

/// How many messages wait to be sent.
const WAITING: usize = 64;

/// The other end of a connection, for whoever calls it.
///
/// # Promises
/// - Every call ends: with its answer, or with an error once the connection is
///   [closed](Self::close).
/// - A call that was not sent says so; it can be made again whatever it does.
/// - Dropping a call cancels it. The other side is told, unless too much waits to be sent.
#[derive(Debug)]
pub struct Peer {
    send: mpsc::Sender<Outgoing>,
    pending: Arc<PendingCalls<Answer>>,
    next: AtomicI64,
    limit: AtomicUsize,
    cancel: &'static str,
}

/// Messages on their way to the other end.
#[derive(Debug)]
pub struct PeerOutbox {
    waiting: mpsc::Receiver<Outgoing>,
    pending: Arc<PendingCalls<Answer>>,
}

type Answer = oneshot::Sender<Result<Value, CallError>>;

/// A text, and the call that it is of.
type Outgoing = (Option<RequestId>, String);

/// Why a call has no result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The other side answered with this error object.
    #[error("the other side refused the call")]
    Refused(Value),
    /// The call is larger than the other side takes, and was not sent.
    #[error("the message has {size} bytes, and the other side takes at most {limit}")]
    TooLarge {
        /// How many bytes it has.
        size: usize,
        /// How many it may have.
        limit: usize,
    },
    /// The connection broke after the call was sent; nobody knows what came of it.
    #[error("the connection broke before the answer came")]
    Lost,
    /// The connection broke before the call was sent.
    #[error("the connection broke before the call was sent")]
    Unsent,
}

impl Peer {
    /// Creates both ends of a connection's queue. `cancel` is the notification that takes a call
    /// back, by its `id`.
    pub fn new(cancel: &'static str) -> (Self, PeerOutbox) {
        let (send, waiting) = mpsc::channel(WAITING);
        let pending = Arc::<PendingCalls<Answer>>::default();
        let outbox = PeerOutbox {
            waiting,
            pending: pending.clone(),
        };
        let (next, limit) = (AtomicI64::new(1), AtomicUsize::new(usize::MAX));
        (
            Self {
                send,
                pending,
                next,
                limit,
                cancel,
            },
            outbox,
        )
    }

    /// Sets how large a message may be, in bytes; there is no limit at first.
    pub fn set_limit(&self, bytes: usize) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// Calls a method, and waits for its answer. Dropping the future cancels the call.
    ///
    /// # Errors
    /// When the other side refuses, the message is too large, or the connection breaks.
    pub async fn call(&self, method: &str, params: &Value) -> Result<Value, CallError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let text = RpcMessage::request(id, method, params);
        let (size, limit) = (text.len(), self.limit.load(Ordering::Relaxed));
        if size > limit {
            return Err(CallError::TooLarge { size, limit });
        }
        let (answer, answered) = oneshot::channel();
        if !self.pending.insert(RequestId::Number(id), answer) {
            return Err(CallError::Unsent);
        }
        let _cancel = CancelOnDrop { peer: self, id };
        let sent = self.send.send((Some(RequestId::Number(id)), text)).await;
        sent.map_err(|_| CallError::Unsent)?;
        answered.await.unwrap_or(Err(CallError::Lost))
    }

    /// Takes in a text of the other side. An answer goes to its caller; anything else that can be
    /// read is returned.
    pub fn receive(&self, text: &str) -> Option<RpcMessage> {
        match RpcMessage::parse(text).ok()? {
            RpcMessage::Answer { id, result } => {
                let call = self.pending.take(&id?)?;
                // Whoever called may have left.
                let _ = call.value.send(result.map_err(CallError::Refused));
                None
            }
            other => Some(other),
        }
    }

    /// Ends all calls: nothing more comes. Later ones fail at once.
    pub fn close(&self) {
        for call in self.pending.close() {
            let error = if call.sent {
                CallError::Lost
            } else {
                CallError::Unsent
            };
            let _ = call.value.send(Err(error));
        }
    }

    /// Whether the connection was closed.
    pub fn is_closed(&self) -> bool {
        self.pending.is_closed()
    }
}

impl PeerOutbox {
    /// Waits for the next message to send. From then on the other side may know of it. `None` when
    /// the peer is gone.
    pub async fn next(&mut self) -> Option<String> {
        let (call, text) = self.waiting.recv().await?;
        if let Some(call) = call {
            self.pending.mark_sent(&call);
        }
        Some(text)
    }
}

/// Tells the other side that nobody waits for an answer any more.
struct CancelOnDrop<'a> {
    peer: &'a Peer,
    id: i64,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if self
            .peer
            .pending
            .remove(&RequestId::Number(self.id))
            .is_some()
        {
            let text = RpcMessage::notification(self.peer.cancel, &json!({"id": self.id}));
            let _ = self.peer.send.try_send((None, text));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt as _;

    use super::*;

    fn sent(outbox: &mut PeerOutbox) -> RpcMessage {
        RpcMessage::parse(&outbox.next().now_or_never().flatten().unwrap()).unwrap()
    }

    #[tokio::test]
    async fn answers_reach_their_calls_in_any_order() {
        let (peer, mut outbox) = Peer::new("cancel");
        let params = json!({});
        let (mut one, mut two) = (pin!(peer.call("a", &params)), pin!(peer.call("b", &params)));
        assert!((&mut one).now_or_never().is_none() && (&mut two).now_or_never().is_none());
        assert!(matches!(sent(&mut outbox), RpcMessage::Request { id, .. } if id == 1));
        assert!(matches!(sent(&mut outbox), RpcMessage::Request { id, .. } if id == 2));
        let answers = [
            r#"{"jsonrpc":"2.0","id":3,"result":"nobody asked"}"#,
            r#"{"jsonrpc":"2.0","id":"2","result":"two"}"#,
            r#"{"jsonrpc":"2.0","id":2,"result":"twice"}"#,
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":7}}"#,
            "no JSON",
        ];
        for answer in answers {
            assert_eq!(peer.receive(answer), None, "{answer}");
        }
        assert_eq!(two.await, Ok(json!("two")));
        assert_eq!(one.await, Err(CallError::Refused(json!({"code": 7}))));
        let told = peer.receive(r#"{"jsonrpc":"2.0","method":"news","params":{}}"#);
        assert!(matches!(told, Some(RpcMessage::Notification { .. })));
    }

    #[tokio::test]
    async fn a_dropped_call_is_cancelled_and_its_answer_is_nobodys() {
        let (peer, mut outbox) = Peer::new("cancel");
        assert!(peer.call("slow", &json!({})).now_or_never().is_none());
        assert!(matches!(sent(&mut outbox), RpcMessage::Request { .. }));
        let cancelled = RpcMessage::Notification {
            method: "cancel".into(),
            params: json!({"id": 1}),
        };
        assert_eq!(sent(&mut outbox), cancelled);
        assert_eq!(peer.receive(r#"{"jsonrpc":"2.0","id":1,"result":1}"#), None);
        assert!(peer.pending.is_empty());
    }

    #[tokio::test]
    async fn a_closed_connection_says_which_calls_were_sent() {
        let (peer, mut outbox) = Peer::new("cancel");
        let params = json!({});
        let (mut one, mut two) = (pin!(peer.call("a", &params)), pin!(peer.call("b", &params)));
        assert!((&mut one).now_or_never().is_none() && (&mut two).now_or_never().is_none());
        sent(&mut outbox);
        peer.close();
        assert_eq!(
            (one.await, two.await),
            (Err(CallError::Lost), Err(CallError::Unsent))
        );
        assert_eq!(peer.call("c", &params).await, Err(CallError::Unsent));
        assert!(peer.is_closed());
    }

    #[tokio::test]
    async fn a_call_over_the_limit_is_not_sent() {
        let (peer, mut outbox) = Peer::new("cancel");
        peer.set_limit(100);
        let refused = peer.call("a", &json!({"text": "x".repeat(100)})).await;
        assert!(
            matches!(refused, Err(CallError::TooLarge { limit: 100, .. })),
            "{refused:?}"
        );
        assert!(outbox.next().now_or_never().is_none());
    }
}
