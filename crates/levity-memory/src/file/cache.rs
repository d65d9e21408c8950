//! A cache of recently read or written conversations, so that a save need not read the file again.
//!
//! An entry is valid only for the exact file that it came from: inode, length and time of change.
//! The cache holds at most 64 conversations and 16 MiB of files; the least recently used leave
//! first.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use levity_core::ConversationId;

use super::disk::Stamp;
use crate::stored::StoredConversation;

/// The maximum number of cached conversations, and the maximum total size of their files.
const MAX_ENTRIES: usize = 64;
const MAX_BYTES: u64 = 16 << 20;

/// A conversation as stored in its file.
#[derive(Clone)]
pub(super) struct CachedConversation {
    pub(super) stamp: Stamp,
    /// The id of the conversation, if the file contains it.
    pub(super) id: Option<ConversationId>,
    pub(super) stored: Arc<StoredConversation>,
}

#[derive(Default)]
pub(super) struct Cache {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    cached: HashMap<String, (u64, CachedConversation)>,
    bytes: u64,
    /// Counts uses, to find the least recently used entry.
    uses: u64,
}

impl Cache {
    /// Returns the cached content of a file if the file is unchanged.
    ///
    /// A miss because of another stamp leaves the old entry in place until the new content replaces
    /// it.
    pub(super) fn find(&self, name: &str, stamp: Stamp) -> Option<CachedConversation> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.uses += 1;
        let uses = inner.uses;
        let (used, cached) = inner.cached.get_mut(name)?;
        *used = uses;
        (cached.stamp == stamp).then(|| cached.clone())
    }

    pub(super) fn put(&self, name: &str, cached: CachedConversation) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.remove(name);
        if cached.stamp.len() > MAX_BYTES {
            return;
        }
        inner.uses += 1;
        inner.bytes += cached.stamp.len();
        let uses = inner.uses;
        inner.cached.insert(name.to_owned(), (uses, cached));
        while inner.bytes > MAX_BYTES || inner.cached.len() > MAX_ENTRIES {
            let oldest = inner
                .cached
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
        if let Some((_, cached)) = self.cached.remove(name) {
            self.bytes -= cached.stamp.len();
        }
    }
}
