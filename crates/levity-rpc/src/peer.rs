//! Calls to the other side over any connection that transports texts.
//!
//! A [`Peer`] numbers calls and matches answers; a [`PeerOutbox`] is the queue to the connection.
//! Neither reads nor writes a socket, so the same code works over WebSockets, pipes and in tests.
//! The queue holds at most 64 messages. A full queue delays callers, and drops cancellations, which
//! nobody waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::mcp::RequestId;
use crate::{PendingCalls, RpcMessage};

/// The maximum number of messages that wait to be sent.
const MAX_QUEUED: usize = 64;

/// A handle for calls to the other end of a connection.
///
/// # Guarantees
/// - Every call ends: with its answer, or with an error once the connection is
///   [closed](Self::close).
/// - A call that was not sent is reported as such; it is always safe to repeat.
/// - Dropping a call cancels it. The other side is notified, unless too many messages wait to be
///   sent.
///
/// ```
/// use futures_util::FutureExt as _;
/// use levity_rpc::Peer;
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let (peer, mut outbox) = Peer::new("$/cancelRequest");
/// // The future is polled once and dropped, as if its caller stopped waiting.
/// assert!(peer.call("slow", &json!({})).now_or_never().is_none());
///
/// let request = outbox.next().await.unwrap_or_default();
/// assert!(request.contains(r#""method":"slow""#));
/// let cancel = outbox.next().await.unwrap_or_default();
/// assert_eq!(cancel, r#"{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}"#);
/// # }
/// ```
#[derive(Debug)]
pub struct Peer {
    send: mpsc::Sender<Outgoing>,
    pending: Arc<PendingCalls<Answer>>,
    next: AtomicI64,
    limit: AtomicUsize,
    cancel: &'static str,
}

/// The messages on their way to the other end.
///
/// A connection takes messages with [`next`](Self::next) and writes them in this order. If it drops
/// the outbox, later calls fail with [`CallError::Unsent`].
#[derive(Debug)]
pub struct PeerOutbox {
    waiting: mpsc::Receiver<Outgoing>,
    pending: Arc<PendingCalls<Answer>>,
}

type Answer = oneshot::Sender<Result<Value, CallError>>;

/// A text and the id of its call.
type Outgoing = (Option<RequestId>, String);

/// The reason why a call has no result.
///
/// Only [`Unsent`](Self::Unsent) and [`TooLarge`](Self::TooLarge) guarantee that the other side did
/// not see the call. After [`Lost`](Self::Lost), repeat only calls without effects.
///
/// ```
/// use levity_rpc::{CallError, Peer};
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let (peer, _outbox) = Peer::new("$/cancelRequest");
/// peer.set_limit(16);
/// let refused = peer.call("write_file", &json!({"text": "hello"})).await;
/// assert!(matches!(refused, Err(CallError::TooLarge { limit: 16, .. })));
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The other side answered with this error object.
    #[error("the other side rejected the call")]
    Refused(Value),
    /// The call is larger than the other side accepts, and was not sent.
    #[error("the message has {size} bytes, but the other side accepts at most {limit}")]
    TooLarge {
        /// The size of the message in bytes.
        size: usize,
        /// The maximum size in bytes.
        limit: usize,
    },
    /// The connection broke after the call was sent; its outcome is unknown.
    #[error("the connection broke before the answer arrived")]
    Lost,
    /// The connection broke before the call was sent.
    #[error("the connection broke before the call was sent")]
    Unsent,
}

impl Peer {
    /// Creates both ends of a connection's queue. `cancel` is the notification that cancels a call
    /// by its `id`.
    pub fn new(cancel: &'static str) -> (Self, PeerOutbox) {
        let (send, waiting) = mpsc::channel(MAX_QUEUED);
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

    /// Sets the maximum size of a message, in bytes; unlimited by default.
    ///
    /// Set it after the other side has announced what it accepts. It applies to calls, and not to
    /// cancellations.
    pub fn set_limit(&self, bytes: usize) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// Calls a method and waits for its answer. Dropping the future cancels the call.
    ///
    /// The call has no timeout of its own; drop the future to stop waiting. It waits for room while
    /// 64 messages are queued.
    ///
    /// # Errors
    /// - [`CallError::Refused`] with the error object of the other side;
    /// - [`CallError::TooLarge`] if the message exceeds the [limit](Self::set_limit);
    /// - [`CallError::Unsent`] if the connection is closed, or closes before the message is taken;
    /// - [`CallError::Lost`] if the connection closes after that.
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

    /// Handles a text from the other side. An answer goes to its caller; any other valid message is
    /// returned.
    ///
    /// A text that is not a valid message is ignored, and so is an answer to a call that nobody
    /// waits for. Use [`RpcMessage::parse`] first to answer invalid requests with an error.
    ///
    /// ```
    /// use levity_rpc::{Peer, RpcMessage};
    ///
    /// let (peer, _outbox) = Peer::new("$/cancelRequest");
    /// let message = peer.receive(r#"{"jsonrpc": "2.0", "method": "changed"}"#);
    /// assert!(matches!(message, Some(RpcMessage::Notification { .. })));
    /// assert_eq!(peer.receive(r#"{"jsonrpc": "2.0", "id": 9, "result": 1}"#), None);
    /// ```
    pub fn receive(&self, text: &str) -> Option<RpcMessage> {
        match RpcMessage::parse(text).ok()? {
            RpcMessage::Answer { id, result } => {
                let call = self.pending.take(&id?)?;
                // The caller may have stopped waiting.
                let _ = call.value.send(result.map_err(CallError::Refused));
                None
            }
            other => Some(other),
        }
    }

    /// Ends all calls, because no more answers arrive. Later calls fail immediately.
    ///
    /// ```
    /// use levity_rpc::{CallError, Peer};
    /// use serde_json::json;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let (peer, mut outbox) = Peer::new("$/cancelRequest");
    /// let params = json!({});
    /// let break_connection = async {
    ///     outbox.next().await;
    ///     peer.close();
    /// };
    /// let (answer, ()) = tokio::join!(peer.call("slow", &params), break_connection);
    /// assert_eq!(answer, Err(CallError::Lost), "the message was taken, so it may have arrived");
    /// assert!(peer.is_closed());
    /// # }
    /// ```
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

    /// Returns `true` if the connection was closed.
    pub fn is_closed(&self) -> bool {
        self.pending.is_closed()
    }
}

impl PeerOutbox {
    /// Waits for the next message to send. From then on the other side may have received it.
    /// Returns `None` once the peer is dropped.
    ///
    /// Dropping the future loses no message.
    pub async fn next(&mut self) -> Option<String> {
        let (call, text) = self.waiting.recv().await?;
        if let Some(call) = call {
            self.pending.mark_sent(&call);
        }
        Some(text)
    }
}

/// Notifies the other side that the caller no longer waits for an answer.
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
            r#"{"jsonrpc":"2.0","id":3,"result":"unknown call"}"#,
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
        let notification = peer.receive(r#"{"jsonrpc":"2.0","method":"news","params":{}}"#);
        assert!(matches!(
            notification,
            Some(RpcMessage::Notification { .. })
        ));
    }

    #[tokio::test]
    async fn dropped_call_is_cancelled_and_its_answer_ignored() {
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
    async fn close_reports_which_calls_were_sent() {
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
    async fn call_over_limit_is_not_sent() {
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
