//! What was last read or written, so that a save need not read it again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use levity_core::ConversationId;

use super::disk::Stamp;
use crate::kept::Kept;

/// So many conversations, and so many bytes of their files, are kept at most.
const MOST: usize = 64;
const MOST_BYTES: u64 = 16 << 20;

/// A conversation as its file has it.
#[derive(Clone)]
pub(super) struct Known {
    pub(super) stamp: Stamp,
    /// Whose it is, if the file says so.
    pub(super) id: Option<ConversationId>,
    pub(super) kept: Arc<Kept>,
}

#[derive(Default)]
pub(super) struct Cache {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    known: HashMap<String, (u64, Known)>,
    bytes: u64,
    /// Counts uses, to tell what was not used for longest.
    uses: u64,
}

impl Cache {
    /// What is known of a file, if it is as it was.
    pub(super) fn find(&self, name: &str, stamp: Stamp) -> Option<Known> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.uses += 1;
        let uses = inner.uses;
        let (used, known) = inner.known.get_mut(name)?;
        *used = uses;
        (known.stamp == stamp).then(|| known.clone())
    }

    pub(super) fn put(&self, name: &str, known: Known) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.remove(name);
        if known.stamp.len() > MOST_BYTES {
            return;
        }
        inner.uses += 1;
        inner.bytes += known.stamp.len();
        let uses = inner.uses;
        inner.known.insert(name.to_owned(), (uses, known));
        while inner.bytes > MOST_BYTES || inner.known.len() > MOST {
            let oldest = inner
                .known
                .iter()
                .min_by_key(|(_, (used, _))| *used)
                .map(|(name, _)| name.clone());
            let Some(oldest) = oldest else { return };
            inner.remove(&oldest);
        }
    }

    pub(super) fn remove(&self, name: &str) {
        self.inner
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(name);
    }
}

impl Inner {
    fn remove(&mut self, name: &str) {
        if let Some((_, known)) = self.known.remove(name) {
            self.bytes -= known.stamp.len();
        }
    }
}
