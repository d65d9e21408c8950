//! Calls of the other side.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use levity_core::CancelToken;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Requests of the other side that are worked on. Cloning gives another handle on the same.
#[derive(Clone, Debug)]
pub struct InflightRequests {
    table: Arc<Mutex<Table>>,
    places: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    /// By the id as JSON. One that is used anew means the new request.
    calls: HashMap<String, (u64, CancelToken)>,
}

/// A request that is worked on. Dropped, it cannot be cancelled any more, and its place is free.
#[derive(Debug)]
pub struct InflightRequest {
    table: Arc<Mutex<Table>>,
    id: String,
    number: u64,
    cancel: CancelToken,
    place: Option<OwnedSemaphorePermit>,
}

impl InflightRequests {
    /// Creates a table with room for this many requests.
    pub fn new(limit: usize) -> Self {
        Self {
            table: Arc::default(),
            places: Arc::new(Semaphore::new(limit)),
        }
    }

    /// Begins a request, so that it can be cancelled; nothing when there is no room.
    pub fn begin(&self, id: &Value) -> Option<InflightRequest> {
        let place = Some(self.places.clone().try_acquire_owned().ok()?);
        let (id, cancel, mut table) = (id.to_string(), CancelToken::new(), lock(&self.table));
        table.next += 1;
        let number = table.next;
        table.calls.insert(id.clone(), (number, cancel.clone()));
        Some(InflightRequest {
            table: self.table.clone(),
            id,
            number,
            cancel,
            place,
        })
    }

    /// Cancels the request with this id, if it is worked on.
    pub fn cancel(&self, id: &Value) {
        if let Some((_, cancel)) = lock(&self.table).calls.remove(&id.to_string()) {
            cancel.cancel();
        }
    }
}

impl InflightRequest {
    /// Returns the token that is cancelled when the other side takes the request back.
    pub fn cancel_token(&self) -> &CancelToken {
        &self.cancel
    }

    /// Ends the request. Its place is taken until what is returned is dropped.
    pub fn finish(mut self) -> Option<OwnedSemaphorePermit> {
        self.place.take()
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
    fn a_request_is_cancelled_by_its_id_and_not_by_another_spelling() {
        let inflight = InflightRequests::new(8);
        let running = inflight.begin(&json!(1)).unwrap();
        inflight.cancel(&json!("1"));
        assert!(!running.cancel_token().is_cancelled());
        inflight.cancel(&json!(1));
        assert!(running.cancel_token().is_cancelled());
    }

    #[test]
    fn an_id_used_anew_means_the_new_request_until_that_ends() {
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
    fn a_place_is_taken_until_the_answer_is_gone() {
        let inflight = InflightRequests::new(1);
        let place = inflight.begin(&json!(1)).unwrap().finish();
        assert!(place.is_some() && inflight.begin(&json!(2)).is_none());
        drop(place);
        assert!(inflight.begin(&json!(2)).is_some());
    }
}
