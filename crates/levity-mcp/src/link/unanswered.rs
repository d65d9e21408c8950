//! The server's requests that levity has not answered yet, and their limit.
//!
//! A server that sends requests and does not read the answers would fill the memory of its client.
//! So a transport passes on a further request only below the limit. Until then it reads nothing
//! behind that request, and the server has to wait. Notifications and responses before it are
//! passed on.
//!
//! A request counts from the moment the service gets it until its answer is written or has failed.
//! The service sends no answer to a request that the server cancelled. Requests during the
//! handshake do not count, because the handshake ignores most of them.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use levity_rpc::mcp::{
    ClientJsonRpcMessage, ClientRequest, RequestId, ServerJsonRpcMessage, ServerNotification,
};

/// The maximum number of unanswered requests of a server.
pub(crate) const MAX_UNANSWERED: usize = 64;
/// The length of an id above which a request counts as several, in bytes: an answer repeats the id.
const ID_LEN: usize = 1 << 10;

/// The unanswered requests of one server. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unanswered(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// `true` after the handshake.
    is_counting: bool,
    /// The requests whose answers were not sent yet.
    waiting: HashSet<RequestId>,
    /// The number of the requests above, and of answers that are being written.
    count: usize,
    /// The readers that wait for the count to decrease.
    readers: Vec<Waker>,
}

impl Unanswered {
    /// Returns `false` for a request over the limit, which the service must not get yet.
    #[cfg(any(feature = "http", test))]
    pub(crate) fn has_room(&self, message: &ServerJsonRpcMessage) -> bool {
        !matches!(message, ServerJsonRpcMessage::Request(_)) || self.lock().has_room()
    }

    /// Waits until the service may get `message`.
    pub(crate) fn poll_room(
        &self,
        message: &ServerJsonRpcMessage,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        if !matches!(message, ServerJsonRpcMessage::Request(_)) {
            return Poll::Ready(());
        }
        let mut state = self.lock();
        if state.has_room() {
            return Poll::Ready(());
        }
        let waker = cx.waker();
        if !state.readers.iter().any(|reader| reader.will_wake(waker)) {
            state.readers.push(waker.clone());
        }
        Poll::Pending
    }

    /// Waits until the service may get `message`.
    #[cfg(feature = "http")]
    pub(crate) async fn room(&self, message: &ServerJsonRpcMessage) {
        std::future::poll_fn(|cx| self.poll_room(message, cx)).await;
    }

    /// Records a message that the service gets.
    pub(crate) fn record_received(&self, message: &ServerJsonRpcMessage) {
        let mut state = self.lock();
        match message {
            ServerJsonRpcMessage::Request(request) if state.is_counting => {
                state.insert(&request.id);
            }
            ServerJsonRpcMessage::Notification(note) => {
                if let ServerNotification::CancelledNotification(note) = &note.notification
                    && let Some(id) = &note.params.request_id
                {
                    state.remove(id);
                }
            }
            _ => {}
        }
    }

    /// Records a message that is about to be sent. An answer counts until the returned guard is
    /// dropped.
    pub(crate) fn record_sent(&self, message: &ClientJsonRpcMessage) -> Option<UnwrittenAnswer> {
        let mut state = self.lock();
        let id = match message {
            ClientJsonRpcMessage::Response(response) => &response.id,
            ClientJsonRpcMessage::Error(error) => error.id.as_ref()?,
            ClientJsonRpcMessage::Request(request) => {
                state.is_counting |= !matches!(
                    request.request,
                    ClientRequest::InitializeRequest(_) | ClientRequest::DiscoverRequest(_)
                );
                return None;
            }
            ClientJsonRpcMessage::Notification(_) => {
                state.is_counting = true;
                return None;
            }
        };
        let weight = weight(id);
        state.count += weight;
        state.remove(id);
        drop(state);
        let unanswered = self.clone();
        Some(UnwrittenAnswer { unanswered, weight })
    }

    /// Returns the number of unanswered requests.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.lock().count
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn has_room(&self) -> bool {
        self.count < MAX_UNANSWERED
    }

    /// Inserts a request. The service answers concurrent requests with the same id only once.
    fn insert(&mut self, id: &RequestId) {
        if self.waiting.insert(id.clone()) {
            self.count += weight(id);
        }
    }

    /// Removes a request whose answer is sent or will never be sent.
    fn remove(&mut self, id: &RequestId) {
        if self.waiting.remove(id) {
            self.release(weight(id));
        }
    }

    fn release(&mut self, weight: usize) {
        self.count = self.count.saturating_sub(weight);
        if self.has_room() {
            self.readers.drain(..).for_each(Waker::wake);
        }
    }
}

/// An answer that is not written yet; dropping it ends the request.
#[derive(Debug)]
pub(crate) struct UnwrittenAnswer {
    unanswered: Unanswered,
    weight: usize,
}

impl Drop for UnwrittenAnswer {
    fn drop(&mut self) {
        self.unanswered.lock().release(self.weight);
    }
}

/// Returns how much a request counts: 1, and 1 more for each KiB of its id.
fn weight(id: &RequestId) -> usize {
    match id {
        RequestId::Number(_) => 1,
        RequestId::String(text) => 1 + text.len() / ID_LEN,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn request(id: impl Into<Value>) -> ServerJsonRpcMessage {
        serde_json::from_value(json!({"jsonrpc": "2.0", "id": id.into(), "method": "ping"}))
            .unwrap()
    }

    fn answer(id: impl Into<Value>) -> ClientJsonRpcMessage {
        serde_json::from_value(json!({"jsonrpc": "2.0", "id": id.into(), "result": {}})).unwrap()
    }

    fn has_room(unanswered: &Unanswered) -> bool {
        unanswered.has_room(&request(0))
    }

    /// Returns a list that counts, with `count` requests.
    fn with_requests(count: usize) -> Unanswered {
        let unanswered = Unanswered::default();
        unanswered.lock().is_counting = true;
        (0..count).for_each(|id| unanswered.record_received(&request(id)));
        unanswered
    }

    #[test]
    fn request_counts_until_its_answer_is_written() {
        let unanswered = with_requests(MAX_UNANSWERED);
        assert!(!has_room(&unanswered));
        let unwritten = unanswered.record_sent(&answer(3));
        assert!(!has_room(&unanswered), "the answer is not written yet");
        drop(unwritten);
        assert!(has_room(&unanswered));
    }

    #[test]
    fn cancelled_request_does_not_count() {
        let unanswered = with_requests(MAX_UNANSWERED);
        let note = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
            "params": {"requestId": 3}});
        unanswered.record_received(&serde_json::from_value(note).unwrap());
        assert!(has_room(&unanswered));
        assert_eq!(unanswered.count(), MAX_UNANSWERED - 1);
    }

    #[test]
    fn answers_to_repeated_id_count_each() {
        let unanswered = with_requests(0);
        let mut unwritten = Vec::new();
        for _ in 0..MAX_UNANSWERED {
            assert!(has_room(&unanswered));
            unanswered.record_received(&request(1));
            unanswered.record_received(&request(1));
            unwritten.extend(unanswered.record_sent(&answer(1)));
        }
        assert!(!has_room(&unanswered));
        drop(unwritten);
        assert_eq!(unanswered.count(), 0);
    }

    #[test]
    fn long_id_counts_as_several_requests() {
        let unanswered = with_requests(0);
        let id = "x".repeat(MAX_UNANSWERED * ID_LEN);
        unanswered.record_received(&request(id.clone()));
        assert!(!has_room(&unanswered));
        drop(unanswered.record_sent(&answer(id)));
        assert_eq!(unanswered.count(), 0);
    }

    #[test]
    fn requests_during_handshake_do_not_count() {
        let unanswered = Unanswered::default();
        (0..1_000).for_each(|id| unanswered.record_received(&request(id)));
        assert!(has_room(&unanswered));
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        unanswered.record_sent(&serde_json::from_value(initialized).unwrap());
        (0..MAX_UNANSWERED).for_each(|id| unanswered.record_received(&request(id)));
        assert!(!has_room(&unanswered));
    }
}
