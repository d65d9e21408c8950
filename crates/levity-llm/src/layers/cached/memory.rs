use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use levity_core::Response;

/// The replies used last, within a number and a size.
#[derive(Debug, Default)]
pub(super) struct Memory {
    kept: HashMap<Arc<str>, Kept>,
    /// The keys by when they were used last.
    order: BTreeMap<u64, Arc<str>>,
    clock: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Kept {
    response: Response,
    used: u64,
    size: usize,
}

impl Memory {
    pub(super) fn get(&mut self, key: &str) -> Option<Response> {
        self.clock += 1;
        let (name, _) = self.kept.get_key_value(key)?;
        let name = name.clone();
        let kept = self.kept.get_mut(key)?;
        self.order.remove(&kept.used);
        kept.used = self.clock;
        self.order.insert(self.clock, name);
        Some(kept.response.clone())
    }

    pub(super) fn put(&mut self, key: &str, response: Response, most: usize, most_bytes: usize) {
        self.forget(key);
        // Something for the entry itself.
        let size = response.message.size() + key.len() + 512;
        if size > most_bytes || most == 0 {
            return;
        }
        self.clock += 1;
        let name: Arc<str> = key.into();
        self.order.insert(self.clock, name.clone());
        self.kept.insert(
            name,
            Kept {
                response,
                used: self.clock,
                size,
            },
        );
        self.bytes += size;
        while self.kept.len() > most || self.bytes > most_bytes {
            let Some((_, oldest)) = self.order.first_key_value() else {
                break;
            };
            let oldest = oldest.clone();
            self.forget(&oldest);
        }
    }

    fn forget(&mut self, key: &str) {
        if let Some(kept) = self.kept.remove(key) {
            self.order.remove(&kept.used);
            self.bytes -= kept.size;
        }
    }
}
