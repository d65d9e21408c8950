//! The queue of entries to be written. Senders never block: entries that do not fit are counted.
//!
//! The queue has two limits, a number of items and 16 MiB, since one item can be large. Overflow is
//! counted per destination, and the writer logs each count in the file in which entries are
//! missing.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use levity_core::Event;

use crate::entry::Entry;

/// The maximum number of queued bytes: 16 MiB.
pub(super) const MAX_BYTES: usize = 16 << 20;

/// The destination of entries.
#[derive(Default)]
pub(super) struct Destination {
    /// The session's folder; without one, each run has a separate folder.
    pub(super) folder: Option<String>,
    /// The number of entries that did not fit.
    dropped: AtomicU64,
}

impl Destination {
    pub(super) fn new(folder: Option<String>) -> Arc<Self> {
        Arc::new(Self {
            folder,
            ..Self::default()
        })
    }
}

/// An item to be written.
pub(super) enum QueueItem {
    /// An event of a run. The content of a tool result is not retained, only its size.
    Event {
        destination: Arc<Destination>,
        event: Box<Event>,
        result_bytes: u64,
    },
    /// A log line from a `tracing` event.
    Line(Entry),
}

/// A queued item and its size in bytes.
pub(super) type QueuedItem = (QueueItem, usize);

/// The sending half of the queue.
pub(super) struct Queue {
    sender: SyncSender<QueuedItem>,
    pub(super) state: Arc<QueueState>,
}

/// The state that both halves share.
///
/// `accepted` and `done` count items. A flush waits until `done` reaches the value that `accepted`
/// had at its start.
#[derive(Default)]
pub(super) struct QueueState {
    bytes: AtomicUsize,
    accepted: AtomicU64,
    dropped: AtomicU64,
    done: Mutex<u64>,
    changed: Condvar,
    /// The destination of lines without a session.
    pub(super) common: Arc<Destination>,
    /// The destinations with dropped entries.
    take_overflowed: Mutex<Vec<Arc<Destination>>>,
}

impl QueueState {
    fn done(&self) -> MutexGuard<'_, u64> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that entries were written, and frees their bytes.
    pub(super) fn finish(&self, items: u64, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::AcqRel);
        *self.done() += items;
        self.changed.notify_all();
    }

    /// Records lines that could not be written.
    pub(super) fn record_lost(&self, lines: u64) {
        self.dropped.fetch_add(lines, Ordering::AcqRel);
    }

    /// Returns the number of entries that did not fit or could not be written.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Acquire)
    }

    fn overflowed_destinations(&self) -> MutexGuard<'_, Vec<Arc<Destination>>> {
        self.take_overflowed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the destinations with dropped entries, and their number.
    pub(super) fn take_overflowed(&self) -> Vec<(Arc<Destination>, u64)> {
        let with_count = |destination: Arc<Destination>| {
            let dropped = destination.dropped.swap(0, Ordering::AcqRel);
            (destination, dropped)
        };
        let mut overflowed_destinations = self.overflowed_destinations();
        overflowed_destinations.drain(..).map(with_count).collect()
    }
}

impl Queue {
    pub(super) fn new(capacity: usize) -> (Self, Receiver<QueuedItem>) {
        let (sender, receiver) = sync_channel(capacity);
        (
            Self {
                sender,
                state: Arc::default(),
            },
            receiver,
        )
    }

    /// Queues an entry, or counts it as dropped.
    pub(super) fn push(&self, destination: &Arc<Destination>, size: usize, item: QueueItem) {
        let state = &self.state;
        let queued = state.bytes.fetch_add(size, Ordering::AcqRel);
        if queued.saturating_add(size) <= MAX_BYTES && self.sender.try_send((item, size)).is_ok() {
            state.accepted.fetch_add(1, Ordering::AcqRel);
            return;
        }
        state.bytes.fetch_sub(size, Ordering::AcqRel);
        state.dropped.fetch_add(1, Ordering::AcqRel);
        // Counting under the lock ensures that the destination is on the list whenever its count is
        // not 0.
        let mut overflowed_destinations = state.overflowed_destinations();
        if destination.dropped.fetch_add(1, Ordering::AcqRel) == 0 {
            overflowed_destinations.push(destination.clone());
        }
    }

    /// Waits up to `time` until all queued entries are written.
    pub(super) fn flush(&self, time: Duration) -> bool {
        let target = self.state.accepted.load(Ordering::Acquire);
        let waited = self
            .state
            .changed
            .wait_timeout_while(self.state.done(), time, |done| *done < target);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}
