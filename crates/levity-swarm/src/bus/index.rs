use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::message::{BusMessage, Recipient};

/// Below this an index keeps its room, so that small ones are not moved again and again.
const KEPT_ROOM: usize = 64;

/// Where the messages for each worker are. Nothing is ever listed from it, so no order follows from
/// its hashes.
#[derive(Clone, Default)]
pub(super) struct Index {
    direct: HashMap<Arc<str>, VecDeque<u64>>,
    broadcasts: VecDeque<Broadcast>,
}

#[derive(Clone)]
struct Broadcast {
    id: u64,
    from: Arc<str>,
    /// The newest broadcast before it that somebody else sent; 0 when there is none. By it a
    /// worker's own ones are passed over in one step, however many they are.
    other: u64,
}

impl Index {
    /// Notes a message that is newer than all others.
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

    /// Forgets a message that is older than all others. It is the first of its list, too.
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

    /// The ids of what was said to `worker` alone before the message `upto`, newest first.
    pub(super) fn direct(&self, worker: &str, upto: u64) -> impl Iterator<Item = u64> {
        let ids = self.direct.get(worker);
        ids.into_iter().flat_map(move |ids| {
            let end = ids.partition_point(|id| *id < upto);
            ids.range(..end).rev().copied()
        })
    }

    /// The ids of what others than `worker` said to everybody before the message `upto`, newest
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

    /// How many broadcasts there are before the message `upto`.
    fn before(&self, upto: u64) -> usize {
        self.broadcasts
            .partition_point(|broadcast| broadcast.id < upto)
    }

    /// How many lists and entries there are.
    #[cfg(test)]
    pub(super) fn size(&self) -> (usize, usize) {
        let entries =
            self.direct.values().map(VecDeque::len).sum::<usize>() + self.broadcasts.len();
        (self.direct.len(), entries)
    }

    /// For how many entries the lists have room.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.direct.values().map(VecDeque::capacity).sum::<usize>() + self.broadcasts.capacity()
    }
}

/// Takes the first one off. A list that has become much shorter gives its room back, so that all
/// lists together take no more than the messages that are there.
fn pop<T>(list: &mut VecDeque<T>) {
    list.pop_front();
    if list.capacity() > KEPT_ROOM && list.len() < list.capacity() / 4 {
        list.shrink_to(list.len() * 2);
    }
}
