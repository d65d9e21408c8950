//! The in-memory half of a [`Cache`](super::Cache): least recently used replies leave first.
//!
//! A counter orders the uses. `order` maps each value of the counter to the key that was used then,
//! so the oldest entry is its first one, and each operation takes logarithmic time. Invariant:
//! `entries` and `order` have the same keys, and `bytes` is the sum of all sizes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use levity_core::Response;

/// The most recently used replies, limited by number and total size.
#[derive(Debug, Default)]
pub(super) struct Memory {
    entries: HashMap<Arc<str>, Entry>,
    /// The keys, ordered by the time of their last use.
    order: BTreeMap<u64, Arc<str>>,
    /// The number of uses up to now, which orders them.
    clock: u64,
    /// The total size of all entries.
    bytes: usize,
}

/// A reply with the time of its last use and its size when it was stored.
#[derive(Debug)]
struct Entry {
    response: Response,
    used: u64,
    size: usize,
}

impl Memory {
    /// Returns a reply and marks it as the most recently used one.
    pub(super) fn get(&mut self, key: &str) -> Option<Response> {
        self.clock += 1;
        let (name, _) = self.entries.get_key_value(key)?;
        let name = name.clone();
        let entry = self.entries.get_mut(key)?;
        self.order.remove(&entry.used);
        entry.used = self.clock;
        self.order.insert(self.clock, name);
        Some(entry.response.clone())
    }

    /// Stores a reply, then removes the oldest ones until both limits hold.
    ///
    /// The limits are parameters, because clones of a cache may have different ones for the same
    /// store.
    pub(super) fn put(
        &mut self,
        key: &str,
        response: Response,
        max_entries: usize,
        max_bytes: usize,
    ) {
        self.remove(key);
        // The constant accounts for the overhead of the entry itself.
        let size = response.message.size() + key.len() + 512;
        if size > max_bytes || max_entries == 0 {
            return;
        }
        self.clock += 1;
        let name: Arc<str> = key.into();
        self.order.insert(self.clock, name.clone());
        self.entries.insert(
            name,
            Entry {
                response,
                used: self.clock,
                size,
            },
        );
        self.bytes += size;
        while self.entries.len() > max_entries || self.bytes > max_bytes {
            let Some((_, oldest)) = self.order.first_key_value() else {
                break;
            };
            let oldest = oldest.clone();
            self.remove(&oldest);
        }
    }

    /// Removes an entry from both maps and its size from the total.
    fn remove(&mut self, key: &str) {
        if let Some(entry) = self.entries.remove(key) {
            self.order.remove(&entry.used);
            self.bytes -= entry.size;
        }
    }
}
