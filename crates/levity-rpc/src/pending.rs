//! Which calls still wait for an answer.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::mcp::RequestId;

/// Calls that were begun and not yet answered or cancelled, each with something of its caller's.
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

/// A call that was taken out of [`PendingCalls`].
#[derive(Debug, PartialEq, Eq)]
pub struct PendingCall<T> {
    /// The id that it was sent with.
    pub id: RequestId,
    /// What its caller put there.
    pub value: T,
    /// Whether the other side may know of it.
    pub sent: bool,
}

impl<T> PendingCalls<T> {
    /// Adds a call that is about to be sent; false when the connection is closed.
    pub fn insert(&self, id: RequestId, value: T) -> bool {
        let mut table = self.lock();
        if !table.closed {
            table.calls.insert(id, Entry { value, sent: false });
        }
        !table.closed
    }

    /// Notes that a call was sent.
    pub fn mark_sent(&self, id: &RequestId) {
        if let Some(entry) = self.lock().calls.get_mut(id) {
            entry.sent = true;
        }
    }

    /// Whether a call waits for an answer with this id.
    pub fn contains(&self, id: &RequestId) -> bool {
        let table = self.lock();
        table.calls.contains_key(id) || alias(id).is_some_and(|id| table.calls.contains_key(&id))
    }

    /// Takes the call of exactly this id: it was cancelled, or never sent.
    pub fn remove(&self, id: &RequestId) -> Option<PendingCall<T>> {
        self.lock().calls.remove_entry(id).map(call)
    }

    /// Takes the call that an answer with this id belongs to. Peers that turn numbers into strings,
    /// or back, are understood.
    pub fn take(&self, id: &RequestId) -> Option<PendingCall<T>> {
        let calls = &mut self.lock().calls;
        calls
            .remove_entry(id)
            .or_else(|| calls.remove_entry(&alias(id)?))
            .map(call)
    }

    /// Takes every call that an answer without an id may belong to: nobody can tell which it is,
    /// and a call that fails for another's sake is better than one that waits for ever. Calls that
    /// stay open by design are left out, unless there are only those.
    pub fn take_any(&self, stays_open: impl Fn(&T) -> bool) -> Vec<PendingCall<T>> {
        let calls = &mut self.lock().calls;
        let alone = calls.values().all(|entry| stays_open(&entry.value));
        calls
            .extract_if(|_, entry| alone || !stays_open(&entry.value))
            .map(call)
            .collect()
    }

    /// Closes the table and takes all calls: no answer comes any more.
    pub fn close(&self) -> Vec<PendingCall<T>> {
        let mut table = self.lock();
        table.closed = true;
        std::mem::take(&mut table.calls)
            .into_iter()
            .map(call)
            .collect()
    }

    /// Whether the table was closed.
    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Returns how many calls wait.
    pub fn len(&self) -> usize {
        self.lock().calls.len()
    }

    /// Whether no call waits.
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

/// The same id written the other way: a number as a string, or a string as the number it spells.
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
    fn an_answer_takes_its_call_once_also_when_its_id_is_written_otherwise() {
        let pending = PendingCalls::default();
        assert!(
            pending.insert(RequestId::Number(1), "a") && pending.insert(RequestId::Number(2), "b")
        );
        pending.mark_sent(&RequestId::Number(1));
        let text = RequestId::String("1".into());
        assert!(pending.contains(&text));
        assert_eq!(pending.remove(&text), None, "only the very id is removed");
        let taken = pending.take(&text);
        assert_eq!(
            taken,
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
    fn calls_that_stay_open_fail_only_when_they_are_alone() {
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
    fn a_closed_table_gives_all_calls_and_takes_no_more() {
        let pending = PendingCalls::default();
        pending.insert(RequestId::Number(1), ());
        assert_eq!(pending.close().len(), 1);
        assert!(
            !pending.insert(RequestId::Number(2), ()) && pending.is_closed() && pending.is_empty()
        );
    }
}
