//! The calls that wait for an answer.
//!
//! The table answers one question for every part of a connection: who waits for this id? Each call
//! remembers if it was sent, because that decides if it is safe to repeat after the connection
//! breaks. Closing the table and adding a call exclude each other by one lock, so no call can be
//! added that nobody would end.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::mcp::RequestId;

/// Calls that have begun and are neither answered nor cancelled, each with a value of its caller.
///
/// ```
/// use levity_rpc::PendingCalls;
/// use levity_rpc::mcp::RequestId;
///
/// let calls = PendingCalls::default();
/// calls.insert(RequestId::Number(1), "read");
/// calls.mark_sent(&RequestId::Number(1));
///
/// // Some peers return a number as a text.
/// let call = calls.take(&RequestId::String("1".into())).expect("it waits");
/// assert_eq!((call.value, call.sent), ("read", true));
///
/// calls.close();
/// assert!(!calls.insert(RequestId::Number(2), "late"));
/// ```
#[derive(Debug)]
pub struct PendingCalls<T>(Mutex<Table<T>>);

#[derive(Debug)]
struct Table<T> {
    closed: bool,
    calls: HashMap<RequestId, Entry<T>>,
}

#[derive(Debug)]
struct Entry<T> {
    value: T,
    sent: bool,
}

/// A call that was removed from [`PendingCalls`].
#[derive(Debug, PartialEq, Eq)]
pub struct PendingCall<T> {
    /// The id that it was sent with.
    pub id: RequestId,
    /// The value of its caller.
    pub value: T,
    /// `true` if the other side may have received it.
    pub sent: bool,
}

impl<T> PendingCalls<T> {
    /// Adds a call that is about to be sent; returns `false` if the connection is closed.
    ///
    /// A call with the same id is replaced, and its value is dropped.
    pub fn insert(&self, id: RequestId, value: T) -> bool {
        let mut table = self.lock();
        if !table.closed {
            table.calls.insert(id, Entry { value, sent: false });
        }
        !table.closed
    }

    /// Marks a call as sent.
    ///
    /// Mark a call as soon as the other side may act on it; until then it counts as safe to repeat.
    /// An unknown id is ignored.
    pub fn mark_sent(&self, id: &RequestId) {
        if let Some(entry) = self.lock().calls.get_mut(id) {
            entry.sent = true;
        }
    }

    /// Returns `true` if a call waits for an answer with this id.
    pub fn contains(&self, id: &RequestId) -> bool {
        let table = self.lock();
        table.calls.contains_key(id) || alias(id).is_some_and(|id| table.calls.contains_key(&id))
    }

    /// Removes the call of exactly this id: it was cancelled, or never sent.
    pub fn remove(&self, id: &RequestId) -> Option<PendingCall<T>> {
        self.lock().calls.remove_entry(id).map(call)
    }

    /// Removes the call that an answer with this id belongs to. It also matches ids that the peer
    /// converted from a number to a string, or back.
    pub fn take(&self, id: &RequestId) -> Option<PendingCall<T>> {
        let calls = &mut self.lock().calls;
        calls
            .remove_entry(id)
            .or_else(|| calls.remove_entry(&alias(id)?))
            .map(call)
    }

    /// Removes every call that an answer without an id may belong to. It is unknown which call that
    /// is, and failing other calls is better than letting one wait forever. Calls that stay open by
    /// design are excluded, unless there are no others.
    ///
    /// ```
    /// use levity_rpc::PendingCalls;
    /// use levity_rpc::mcp::RequestId;
    ///
    /// let calls = PendingCalls::default();
    /// calls.insert(RequestId::Number(1), "listen");
    /// calls.insert(RequestId::Number(2), "read");
    /// let failed = calls.take_any(|method| *method == "listen");
    /// assert_eq!(failed[0].value, "read");
    /// assert_eq!(calls.len(), 1, "the stream of changes stays open");
    /// ```
    pub fn take_any(&self, stays_open: impl Fn(&T) -> bool) -> Vec<PendingCall<T>> {
        let calls = &mut self.lock().calls;
        let alone = calls.values().all(|entry| stays_open(&entry.value));
        calls
            .extract_if(|_, entry| alone || !stays_open(&entry.value))
            .map(call)
            .collect()
    }

    /// Closes the table and removes all calls: no more answers arrive.
    ///
    /// ```
    /// use levity_rpc::PendingCalls;
    /// use levity_rpc::mcp::RequestId;
    ///
    /// let calls = PendingCalls::default();
    /// calls.insert(RequestId::Number(1), "write");
    /// let unsafe_to_repeat = calls.close().into_iter().filter(|call| call.sent).count();
    /// assert_eq!(unsafe_to_repeat, 0, "the call was never sent");
    /// assert!(calls.is_closed() && calls.is_empty());
    /// ```
    pub fn close(&self) -> Vec<PendingCall<T>> {
        let mut table = self.lock();
        table.closed = true;
        std::mem::take(&mut table.calls)
            .into_iter()
            .map(call)
            .collect()
    }

    /// Returns `true` if the table was closed.
    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Returns the number of waiting calls.
    pub fn len(&self) -> usize {
        self.lock().calls.len()
    }

    /// Returns `true` if no call waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, Table<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Default for PendingCalls<T> {
    fn default() -> Self {
        Self(Mutex::new(Table {
            closed: false,
            calls: HashMap::new(),
        }))
    }
}

fn call<T>((id, Entry { value, sent }): (RequestId, Entry<T>)) -> PendingCall<T> {
    PendingCall { id, value, sent }
}

/// Returns the same id in the other form: a number as a string, or a string as its number.
fn alias(id: &RequestId) -> Option<RequestId> {
    match id {
        RequestId::Number(number) => Some(RequestId::String(number.to_string().into())),
        RequestId::String(text) => text.parse().ok().map(RequestId::Number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn take_matches_id_in_other_form_once() {
        let pending = PendingCalls::default();
        assert!(
            pending.insert(RequestId::Number(1), "a") && pending.insert(RequestId::Number(2), "b")
        );
        pending.mark_sent(&RequestId::Number(1));
        let text = RequestId::String("1".into());
        assert!(pending.contains(&text));
        assert_eq!(pending.remove(&text), None, "only the exact id is removed");
        let call = pending.take(&text);
        assert_eq!(
            call,
            Some(PendingCall {
                id: RequestId::Number(1),
                value: "a",
                sent: true
            })
        );
        assert_eq!(pending.take(&text), None);
        assert_eq!(pending.len(), 1);
    }

    #[test]
    fn take_any_takes_open_calls_only_if_alone() {
        let pending = PendingCalls::default();
        for (id, open) in [(1, true), (2, false)] {
            pending.insert(RequestId::Number(id), open);
        }
        let ids = |calls: Vec<PendingCall<bool>>| {
            calls.into_iter().map(|call| call.id).collect::<Vec<_>>()
        };
        assert_eq!(ids(pending.take_any(|open| *open)), [RequestId::Number(2)]);
        assert_eq!(ids(pending.take_any(|open| *open)), [RequestId::Number(1)]);
    }

    #[test]
    fn close_returns_all_calls_and_rejects_new_ones() {
        let pending = PendingCalls::default();
        pending.insert(RequestId::Number(1), ());
        assert_eq!(pending.close().len(), 1);
        assert!(
            !pending.insert(RequestId::Number(2), ()) && pending.is_closed() && pending.is_empty()
        );
    }
}
