//! The index of the bus by recipient.
//!
//! The index holds ids and no positions, because positions shift when the oldest message is
//! dropped. Broadcasts of a worker to all others are skipped for that worker in one step: each
//! broadcast stores the last one of another sender, so a worker that floods the bus does not slow
//! down its own context.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::message::{BusMessage, Recipient};

/// The capacity below which an index never shrinks, so that small ones are not moved repeatedly.
const KEPT_ROOM: usize = 64;

/// The positions of the messages for each worker. No code iterates over the map, so the order of
/// hashes does not matter.
#[derive(Clone, Default)]
pub(super) struct Index {
    direct: HashMap<Arc<str>, VecDeque<u64>>,
    broadcasts: VecDeque<Broadcast>,
}

#[derive(Clone)]
struct Broadcast {
    id: u64,
    from: Arc<str>,
    /// The newest earlier broadcast of another sender; 0 if there is none. It allows skipping a
    /// worker's own broadcasts in one step.
    other: u64,
}

impl Index {
    /// Adds a message that is newer than all others.
    pub(super) fn add(&mut self, message: &BusMessage) {
        let Recipient::One(name) = &message.to else {
            return self.add_broadcast(message);
        };
        match self.direct.get_mut(name) {
            Some(ids) => ids.push_back(message.id),
            None => drop(
                self.direct
                    .insert(name.clone(), VecDeque::from([message.id])),
            ),
        }
    }

    fn add_broadcast(&mut self, message: &BusMessage) {
        let other = match self.broadcasts.back() {
            Some(last) if last.from == message.from => last.other,
            Some(last) => last.id,
            None => 0,
        };
        self.broadcasts.push_back(Broadcast {
            id: message.id,
            from: message.from.clone(),
            other,
        });
    }

    /// Removes a message that is older than all others. It is also the first of its list.
    pub(super) fn drop_oldest(&mut self, message: &BusMessage) {
        let Recipient::One(name) = &message.to else {
            return pop(&mut self.broadcasts);
        };
        if let Some(ids) = self.direct.get_mut(name) {
            pop(ids);
            if ids.is_empty() {
                self.direct.remove(name);
            }
        }
    }

    /// Returns the ids of messages to `worker` alone before the message `upto`, newest first.
    pub(super) fn direct(&self, worker: &str, upto: u64) -> impl Iterator<Item = u64> {
        let ids = self.direct.get(worker);
        ids.into_iter().flat_map(move |ids| {
            let end = ids.partition_point(|id| *id < upto);
            ids.range(..end).rev().copied()
        })
    }

    /// Returns the ids of broadcasts by others than `worker` before the message `upto`, newest
    /// first.
    pub(super) fn broadcasts(&self, worker: &str, upto: u64) -> impl Iterator<Item = u64> {
        let mut end = self.before(upto);
        std::iter::from_fn(move || {
            let mut found = self.broadcasts.get(end.checked_sub(1)?)?;
            if &*found.from == worker {
                end = self.before(found.other.saturating_add(1));
                found = self.broadcasts.get(end.checked_sub(1)?)?;
            }
            end -= 1;
            Some(found.id)
        })
    }

    /// Returns the number of broadcasts before the message `upto`.
    fn before(&self, upto: u64) -> usize {
        self.broadcasts
            .partition_point(|broadcast| broadcast.id < upto)
    }

    /// Returns the numbers of lists and entries.
    #[cfg(test)]
    pub(super) fn size(&self) -> (usize, usize) {
        let entries =
            self.direct.values().map(VecDeque::len).sum::<usize>() + self.broadcasts.len();
        (self.direct.len(), entries)
    }

    /// Returns the total capacity of the lists.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.direct.values().map(VecDeque::capacity).sum::<usize>() + self.broadcasts.capacity()
    }
}

/// Removes the first element. A list that has become much shorter releases memory, so the lists
/// together need no more than the stored messages.
fn pop<T>(list: &mut VecDeque<T>) {
    list.pop_front();
    if list.capacity() > KEPT_ROOM && list.len() < list.capacity() / 4 {
        list.shrink_to(list.len() * 2);
    }
}
