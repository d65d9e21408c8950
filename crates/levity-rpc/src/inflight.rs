//! Calls from the other side that are in progress.
//!
//! A connection needs two things for such a call: a way to cancel it by its id, and a limit on how
//! many run at once. The table is keyed by the JSON of the id, because a peer may use numbers and
//! texts. Each entry also has a number of its own. A peer that reuses an id replaces the entry, and
//! the older request then does not remove the newer one when it ends.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use levity_core::CancelToken;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The requests from the other side that are in progress. Clones share the same table.
///
/// ```
/// use levity_rpc::InflightRequests;
/// use serde_json::json;
///
/// let requests = InflightRequests::new(1);
/// let request = requests.begin(&json!(7)).expect("there is room for one request");
/// assert!(requests.begin(&json!(8)).is_none(), "answer it with an error");
///
/// requests.cancel(&json!(7));
/// assert!(request.cancel_token().is_cancelled());
/// drop(request);
/// assert!(requests.begin(&json!(8)).is_some());
/// ```
#[derive(Clone, Debug)]
pub struct InflightRequests {
    table: Arc<Mutex<Table>>,
    slots: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    /// The requests by id as JSON. A reused id refers to the newer request.
    calls: HashMap<String, (u64, CancelToken)>,
}

/// A request in progress. Dropping it makes it impossible to cancel, and frees its slot.
#[derive(Debug)]
pub struct InflightRequest {
    table: Arc<Mutex<Table>>,
    id: String,
    number: u64,
    cancel: CancelToken,
    slot: Option<OwnedSemaphorePermit>,
}

impl InflightRequests {
    /// Creates a table with room for this many requests.
    pub fn new(limit: usize) -> Self {
        Self {
            table: Arc::default(),
            slots: Arc::new(Semaphore::new(limit)),
        }
    }

    /// Begins a request, so that it can be cancelled; returns `None` if there is no room.
    ///
    /// Begin a request before it is spawned, so that a cancellation that arrives directly after it
    /// finds it. If the id is already in use, a later [`cancel`](Self::cancel) refers to the new
    /// request.
    pub fn begin(&self, id: &Value) -> Option<InflightRequest> {
        let slot = Some(self.slots.clone().try_acquire_owned().ok()?);
        let (id, cancel, mut table) = (id.to_string(), CancelToken::new(), lock(&self.table));
        table.next += 1;
        let number = table.next;
        table.calls.insert(id.clone(), (number, cancel.clone()));
        Some(InflightRequest {
            table: self.table.clone(),
            id,
            number,
            cancel,
            slot,
        })
    }

    /// Cancels the request with this id, if it is in progress.
    ///
    /// An unknown id is ignored: the request may have ended while the cancellation was on its way.
    pub fn cancel(&self, id: &Value) {
        if let Some((_, cancel)) = lock(&self.table).calls.remove(&id.to_string()) {
            cancel.cancel();
        }
    }
}

impl InflightRequest {
    /// Returns the token that is cancelled when the other side cancels the request.
    pub fn cancel_token(&self) -> &CancelToken {
        &self.cancel
    }

    /// Ends the request. Its slot is in use until the returned permit is dropped.
    ///
    /// Keep the permit until the answer is written. Otherwise a peer that does not read its answers
    /// could start requests without a limit.
    ///
    /// ```
    /// use levity_rpc::InflightRequests;
    /// use serde_json::json;
    ///
    /// let requests = InflightRequests::new(1);
    /// let request = requests.begin(&json!("a")).expect("there is room");
    /// let permit = request.finish();
    /// assert!(requests.begin(&json!("b")).is_none(), "the answer is not written yet");
    /// drop(permit);
    /// assert!(requests.begin(&json!("b")).is_some());
    /// ```
    pub fn finish(mut self) -> Option<OwnedSemaphorePermit> {
        self.slot.take()
    }
}

impl Drop for InflightRequest {
    fn drop(&mut self) {
        let calls = &mut lock(&self.table).calls;
        if calls
            .get(&self.id)
            .is_some_and(|(number, _)| *number == self.number)
        {
            calls.remove(&self.id);
        }
    }
}

fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cancel_matches_exact_id_only() {
        let inflight = InflightRequests::new(8);
        let running = inflight.begin(&json!(1)).unwrap();
        inflight.cancel(&json!("1"));
        assert!(!running.cancel_token().is_cancelled());
        inflight.cancel(&json!(1));
        assert!(running.cancel_token().is_cancelled());
    }

    #[test]
    fn reused_id_refers_to_newer_request() {
        let inflight = InflightRequests::new(8);
        let old = inflight.begin(&json!("a")).unwrap();
        let new = inflight.begin(&json!("a")).unwrap();
        drop(old);
        inflight.cancel(&json!("a"));
        assert!(new.cancel_token().is_cancelled());
        drop(new);
        assert!(lock(&inflight.table).calls.is_empty());
    }

    #[test]
    fn slot_is_in_use_until_permit_is_dropped() {
        let inflight = InflightRequests::new(1);
        let slot = inflight.begin(&json!(1)).unwrap().finish();
        assert!(slot.is_some() && inflight.begin(&json!(2)).is_none());
        drop(slot);
        assert!(inflight.begin(&json!(2)).is_some());
    }
}
