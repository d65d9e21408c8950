//! What waits to be written. Whoever logs never waits: what does not fit is counted.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use levity_core::Event;

use crate::entry::Entry;

/// How many bytes may wait: 16 MiB.
pub(super) const MAX_BYTES: usize = 16 << 20;

/// Whose entries they are.
#[derive(Default)]
pub(super) struct Place {
    /// The session's folder; without one, each run has its own.
    pub(super) folder: Option<String>,
    /// How many entries did not fit.
    dropped: AtomicU64,
}

impl Place {
    pub(super) fn new(folder: Option<String>) -> Arc<Self> {
        Arc::new(Self {
            folder,
            ..Self::default()
        })
    }
}

/// What is to be written.
pub(super) enum Note {
    /// Something happened in a run. What a tool answered is not kept, but for how much it was.
    Event {
        place: Arc<Place>,
        event: Box<Event>,
        answered: u64,
    },
    /// Somebody logged something by `tracing`.
    Line(Entry),
}

/// A note, and how many bytes it takes.
pub(super) type Waiting = (Note, usize);

/// The near end.
pub(super) struct Queue {
    sender: SyncSender<Waiting>,
    pub(super) count: Arc<Count>,
}

/// What both ends know.
#[derive(Default)]
pub(super) struct Count {
    bytes: AtomicUsize,
    accepted: AtomicU64,
    dropped: AtomicU64,
    done: Mutex<u64>,
    changed: Condvar,
    /// Of lines that belong to no session.
    pub(super) common: Arc<Place>,
    /// The places of which something did not fit.
    overflowed: Mutex<Vec<Arc<Place>>>,
}

impl Count {
    fn done(&self) -> MutexGuard<'_, u64> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many are written, and so many bytes wait no longer.
    pub(super) fn finish(&self, notes: u64, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::AcqRel);
        *self.done() += notes;
        self.changed.notify_all();
    }

    /// So many lines could not be written.
    pub(super) fn lost(&self, lines: u64) {
        self.dropped.fetch_add(lines, Ordering::AcqRel);
    }

    /// How many notes did not fit, or could not be written.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Acquire)
    }

    fn places(&self) -> MutexGuard<'_, Vec<Arc<Place>>> {
        self.overflowed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The places of which something did not fit, and how much.
    pub(super) fn overflowed(&self) -> Vec<(Arc<Place>, u64)> {
        let count = |place: Arc<Place>| {
            let dropped = place.dropped.swap(0, Ordering::AcqRel);
            (place, dropped)
        };
        let mut places = self.places();
        places.drain(..).map(count).collect()
    }
}

impl Queue {
    pub(super) fn new(capacity: usize) -> (Self, Receiver<Waiting>) {
        let (sender, receiver) = sync_channel(capacity);
        (
            Self {
                sender,
                count: Arc::default(),
            },
            receiver,
        )
    }

    /// Takes a note, or counts it.
    pub(super) fn push(&self, place: &Arc<Place>, size: usize, note: Note) {
        let count = &self.count;
        let waiting = count.bytes.fetch_add(size, Ordering::AcqRel);
        if waiting.saturating_add(size) <= MAX_BYTES && self.sender.try_send((note, size)).is_ok() {
            count.accepted.fetch_add(1, Ordering::AcqRel);
            return;
        }
        count.bytes.fetch_sub(size, Ordering::AcqRel);
        count.dropped.fetch_add(1, Ordering::AcqRel);
        // Within the lock, so that it is counted before the place is taken from the list, or puts
        // it there again.
        let mut places = count.places();
        if place.dropped.fetch_add(1, Ordering::AcqRel) == 0 {
            places.push(place.clone());
        }
    }

    /// Waits until all that was taken is written, for so long at most.
    pub(super) fn flush(&self, time: Duration) -> bool {
        let until = self.count.accepted.load(Ordering::Acquire);
        let waited = self
            .count
            .changed
            .wait_timeout_while(self.count.done(), time, |done| *done < until);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}
