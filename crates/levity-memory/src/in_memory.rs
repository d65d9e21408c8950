use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use levity_core::{
    Change, ConversationId, ConversationInfo, ConversationQuery, Hold, MemoryError, MemoryStore, Message,
    Remembered, Timestamp,
};

use crate::kept::{self, Kept};

/// Keeps conversations for as long as the process lives. Clones share them.
///
/// For tests, and for programs whose conversations end with them. `docs/memory.md` compares the stores.
///
/// ```
/// # use levity_core::{Change, ConversationId, MemoryStore, Message};
/// # use levity_memory::InMemory;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::MemoryError> {
/// let store = InMemory::new();
/// let id = ConversationId::new("monday");
/// store.save(&id, &Change::at(0).with_messages([Message::user("Good morning")])).await?;
/// assert_eq!(store.load(&id, 10).await?.end, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct InMemory {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    conversations: HashMap<ConversationId, Kept>,
    held: HashSet<ConversationId>,
}

impl InMemory {
    /// No conversations yet.
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at a conversation; an unknown one is an empty one.
    fn look<T: Default>(&self, id: &ConversationId, look: impl FnOnce(&Kept) -> T) -> T {
        self.lock().conversations.get(id).map(look).unwrap_or_default()
    }

    fn remove(&self, id: &ConversationId, wanted: impl Fn(&Kept) -> bool) -> Result<bool, MemoryError> {
        let mut inner = self.lock();
        if inner.held.contains(id) {
            return Err(MemoryError::busy(id));
        }
        let there = inner.conversations.get(id).is_some_and(wanted);
        let removed = if there { inner.conversations.remove(id) } else { None };
        drop(inner);
        Ok(removed.is_some())
    }
}

#[async_trait]
impl MemoryStore for InMemory {
    async fn load(&self, id: &ConversationId, limit: usize) -> Result<Remembered, MemoryError> {
        Ok(self.look(id, |kept| kept.load(limit)))
    }

    async fn read(
        &self,
        id: &ConversationId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Arc<Message>)>, MemoryError> {
        Ok(self.look(id, |kept| kept.read(from, limit)))
    }

    async fn save(&self, id: &ConversationId, change: &Change) -> Result<(), MemoryError> {
        let mut inner = self.lock();
        if let Some(kept) = inner.conversations.get_mut(id) {
            return kept.save(id, change).map(drop);
        }
        let mut kept = Kept::default();
        if kept.save(id, change)? {
            inner.conversations.insert(id.clone(), kept);
        }
        Ok(())
    }

    async fn search(
        &self,
        id: &ConversationId,
        query: &str,
        limit: usize,
    ) -> Result<Vec<(u64, Arc<Message>)>, MemoryError> {
        // The messages are shared, so that nobody waits while they are looked through.
        let kept = self.look(id, Kept::clone);
        Ok(kept.search(query, limit))
    }

    async fn trim(&self, id: &ConversationId, before: u64) -> Result<(), MemoryError> {
        if let Some(kept) = self.lock().conversations.get_mut(id) {
            kept.trim(before);
        }
        Ok(())
    }

    async fn forget(&self, id: &ConversationId) -> Result<bool, MemoryError> {
        self.remove(id, |_| true)
    }

    async fn expire(&self, id: &ConversationId, unchanged_since: Timestamp) -> Result<bool, MemoryError> {
        self.remove(id, |kept| kept.changed < unchanged_since)
    }

    async fn list(&self, query: &ConversationQuery) -> Result<Vec<ConversationInfo>, MemoryError> {
        let inner = self.lock();
        let infos: Vec<_> = inner.conversations.iter().map(|(id, kept)| kept.info(id)).collect();
        drop(inner);
        Ok(kept::select(infos.into_iter(), query))
    }

    async fn hold(&self, id: &ConversationId) -> Result<Hold, MemoryError> {
        if !self.lock().held.insert(id.clone()) {
            return Err(MemoryError::busy(id));
        }
        Ok(Hold::new(Held { store: self.clone(), id: id.clone() }))
    }
}

struct Held {
    store: InMemory,
    id: ConversationId,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.store.lock().held.remove(&self.id);
    }
}

impl fmt::Debug for InMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InMemory").field("conversations", &self.lock().conversations.len()).finish()
    }
}
