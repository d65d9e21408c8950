//! Conversations in the memory of the process, optionally within limits.
//!
//! A bounded store is a cache for servers. It forgets the conversation whose last save is oldest,
//! never one that a run holds, and it can give each user a fair share.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use levity_core::{
    ConversationChange, ConversationId, ConversationInfo, ConversationQuery, Lease,
    LoadedConversation, MemoryError, MemoryStore, Message, Timestamp,
};

use crate::stored::{self, StoredConversation};

/// A store that holds conversations for the lifetime of the process. Clones share them.
///
/// Use it in tests, and in programs whose conversations end with the process. `docs/memory.md`
/// compares the stores.
///
/// ```
/// # use levity_core::{ConversationChange, ConversationId, MemoryStore, Message};
/// # use levity_memory::InMemory;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::MemoryError> {
/// let store = InMemory::new();
/// let id = ConversationId::new("monday");
/// let change = ConversationChange::at(0).with_messages([Message::user("Good morning")]);
/// store.save(&id, &change).await?;
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
    conversations: HashMap<ConversationId, StoredConversation>,
    held: HashSet<ConversationId>,
    /// The limits of a bounded store; `None` for an unbounded one.
    bounds: Option<Bounds>,
}

/// The limits of a bounded store and its current usage.
///
/// `clock` counts saves, which is enough to order them and independent of the system clock.
struct Bounds {
    limit: Usage,
    /// The limit for each owner, and the function that returns the owner of a conversation.
    share: Option<(Usage, OwnerOf)>,
    /// The size, last use and owner of each conversation.
    sizes: HashMap<ConversationId, Size>,
    total: Usage,
    /// The usage of each owner; conversations without an owner share the `None` entry. Owners
    /// without conversations are absent.
    by_owner: HashMap<Option<Arc<str>>, Usage>,
    clock: u64,
}

/// Returns the owner of a conversation.
type OwnerOf = Box<dyn Fn(&ConversationId) -> Option<Arc<str>> + Send + Sync>;

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Usage {
    count: usize,
    bytes: usize,
}

#[derive(Clone, Default)]
struct Size {
    bytes: usize,
    used: u64,
    owner: Option<Arc<str>>,
}

/// The limit that is exceeded.
enum Excess {
    /// This owner exceeds its share.
    Share(Option<Arc<str>>),
    /// The store exceeds its limit, and this owner uses the largest part of it.
    Whole(Option<Arc<str>>),
}

impl Inner {
    /// Records the size of a conversation, and removes others to make room for it.
    ///
    /// It stops when only held conversations remain: a limit that is exceeded for a moment is
    /// better than a run that loses its conversation.
    fn enforce_limits(&mut self, id: &ConversationId) {
        let Self {
            conversations,
            held,
            bounds: Some(bounds),
        } = self
        else {
            return;
        };
        let Some(stored) = conversations.get_mut(id) else {
            bounds.forget(id);
            return;
        };
        let mut bytes = size(stored);
        // One conversation may use a sixteenth of the bytes; beyond that, its oldest messages are
        // removed.
        while bytes > bounds.limit.bytes / 16 && stored.messages.len() > 1 {
            let half = stored.first + stored.messages.len().div_ceil(2) as u64;
            stored.trim(half);
            bytes = size(stored);
        }
        bounds.record(id, bytes);
        while let Some(excess) = bounds.excess(id) {
            let idle = || {
                bounds
                    .sizes
                    .iter()
                    .filter(|(other, _)| *other != id && !held.contains(*other))
            };
            let of_owner = |owner: &Option<Arc<str>>| {
                idle()
                    .filter(|(_, size)| size.owner == *owner)
                    .min_by_key(|(_, size)| size.used)
            };
            let any = || idle().min_by_key(|(_, size)| size.used);
            let oldest = match &excess {
                Excess::Share(owner) => of_owner(owner),
                Excess::Whole(owner) => of_owner(owner).or_else(any),
            };
            let Some(oldest) = oldest.map(|(id, _)| id.clone()) else {
                return;
            };
            conversations.remove(&oldest);
            bounds.forget(&oldest);
        }
    }
}

impl Usage {
    fn is_within(self, limit: Self) -> bool {
        self.count <= limit.count && self.bytes <= limit.bytes
    }

    fn change(&mut self, before: Option<usize>, now: Option<usize>) {
        self.count = self.count + usize::from(now.is_some()) - usize::from(before.is_some());
        self.bytes = self.bytes + now.unwrap_or(0) - before.unwrap_or(0);
    }

    /// Returns the used part of `limit` in millionths: of conversations or of bytes, whichever is
    /// larger.
    ///
    /// Comparing the larger of the two parts treats a user with many short conversations like one
    /// with few long ones.
    fn part_of(self, limit: Self) -> u128 {
        let part = |used: usize, limit: usize| used as u128 * 1_000_000 / (limit as u128).max(1);
        part(self.count, limit.count).max(part(self.bytes, limit.bytes))
    }
}

impl Bounds {
    fn record(&mut self, id: &ConversationId, bytes: usize) {
        self.clock += 1;
        let owner = self.share.as_ref().and_then(|(_, owner_of)| owner_of(id));
        let size = Size {
            bytes,
            used: self.clock,
            owner: owner.clone(),
        };
        let before = self.sizes.insert(id.clone(), size).map(|size| size.bytes);
        self.total.change(before, Some(bytes));
        self.by_owner
            .entry(owner)
            .or_default()
            .change(before, Some(bytes));
    }

    fn forget(&mut self, id: &ConversationId) {
        let Some(size) = self.sizes.remove(id) else {
            return;
        };
        self.total.change(Some(size.bytes), None);
        if let Some(owner_usage) = self.by_owner.get_mut(&size.owner) {
            owner_usage.change(Some(size.bytes), None);
            if owner_usage.count == 0 {
                self.by_owner.remove(&size.owner);
            }
        }
    }

    /// Returns the limit that is exceeded after `id` was saved, if any.
    fn excess(&self, id: &ConversationId) -> Option<Excess> {
        let owner = &self.sizes.get(id)?.owner;
        let owner_usage = self.by_owner.get(owner).copied().unwrap_or_default();
        let share = self
            .share
            .as_ref()
            .filter(|_| owner.is_some())
            .map(|(share, _)| *share);
        // A single conversation may be larger than the share.
        if share.is_some_and(|share| owner_usage.count > 1 && !owner_usage.is_within(share)) {
            return Some(Excess::Share(owner.clone()));
        }
        if self.total.is_within(self.limit) {
            return None;
        }
        let largest = self
            .by_owner
            .iter()
            .max_by_key(|(_, owner_usage)| owner_usage.part_of(self.limit));
        largest.map(|(owner, _)| Excess::Whole(owner.clone()))
    }
}

/// Returns the size of a conversation as JSON, in bytes.
fn size(stored: &StoredConversation) -> usize {
    struct Count(usize);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    for message in &stored.messages {
        // A message that cannot be serialized counts up to the point of failure.
        let _ = serde_json::to_writer(&mut count, message);
    }
    count.0
        + stored
            .summary
            .as_ref()
            .map_or(0, |summary| summary.text.len())
}

impl InMemory {
    /// Creates an empty store without limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty store that holds at most `limit` conversations and `bytes` bytes of
    /// messages, measured as JSON.
    ///
    /// Beyond these limits, the store removes the conversations with the oldest saves. A
    /// conversation larger than a sixteenth of the bytes loses its oldest messages.
    /// [Held](MemoryStore::hold) conversations are never removed, so usage may exceed the limit by
    /// a sixteenth for each run in progress.
    ///
    /// ```
    /// use levity_core::{ConversationChange, ConversationId, MemoryStore, Message};
    /// use levity_memory::InMemory;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::MemoryError> {
    /// let store = InMemory::bounded(2, 1 << 20);
    /// let change = ConversationChange::at(0).with_messages([Message::user("Hello")]);
    /// for id in ["monday", "tuesday", "wednesday"] {
    ///     store.save(&ConversationId::new(id), &change).await?;
    /// }
    /// assert_eq!(store.load(&ConversationId::new("monday"), 10).await?.end, 0); // forgotten
    /// assert_eq!(store.load(&ConversationId::new("wednesday"), 10).await?.end, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn bounded(limit: usize, bytes: usize) -> Self {
        let limit = Usage {
            count: limit.max(1),
            bytes,
        };
        let (sizes, by_owner, total) = (HashMap::new(), HashMap::new(), Usage::default());
        let bounds = Bounds {
            limit,
            share: None,
            sizes,
            total,
            by_owner,
            clock: 0,
        };
        let inner = Inner {
            bounds: Some(bounds),
            ..Inner::default()
        };
        Self {
            inner: Arc::new(Mutex::new(inner)),
        }
    }

    /// Divides a bounded store among owners: each may use this percentage of it, but at least one
    /// conversation. An owner above its share loses its own conversations.
    ///
    /// When the whole store is full, the owner with the highest usage loses conversations first.
    /// `owner_of` returns the owner of a conversation by its id; conversations without an owner
    /// have no separate share. Call this method before the first save. It has no effect on an
    /// unbounded store.
    ///
    /// ```
    /// use levity_core::ConversationId;
    /// use levity_memory::InMemory;
    ///
    /// /// Returns the user in ids such as `ann/monday`.
    /// fn user(id: &ConversationId) -> Option<std::sync::Arc<str>> {
    ///     id.as_str().split_once('/').map(|(user, _)| user.into())
    /// }
    ///
    /// let store = InMemory::bounded(1_000, 64 << 20).with_share(5, user);
    /// # drop(store);
    /// ```
    #[must_use]
    pub fn with_share(
        self,
        percent: u8,
        owner_of: impl Fn(&ConversationId) -> Option<Arc<str>> + Send + Sync + 'static,
    ) -> Self {
        if let Some(bounds) = &mut self.lock().bounds {
            let part = |limit: usize| (limit as u128 * u128::from(percent.min(100)) / 100) as usize;
            let share = Usage {
                count: part(bounds.limit.count).max(1),
                bytes: part(bounds.limit.bytes),
            };
            bounds.share = Some((share, Box::new(owner_of)));
        }
        self
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a conversation; an unknown one reads as empty.
    fn with_conversation<T: Default>(
        &self,
        id: &ConversationId,
        read: impl FnOnce(&StoredConversation) -> T,
    ) -> T {
        self.lock()
            .conversations
            .get(id)
            .map(read)
            .unwrap_or_default()
    }

    fn remove(
        &self,
        id: &ConversationId,
        condition: impl Fn(&StoredConversation) -> bool,
    ) -> Result<bool, MemoryError> {
        let mut inner = self.lock();
        if inner.held.contains(id) {
            return Err(MemoryError::busy(id));
        }
        let matches = inner.conversations.get(id).is_some_and(condition);
        let removed = if matches {
            inner.conversations.remove(id)
        } else {
            None
        };
        inner.enforce_limits(id);
        drop(inner);
        Ok(removed.is_some())
    }
}

#[async_trait]
impl MemoryStore for InMemory {
    async fn load(
        &self,
        id: &ConversationId,
        limit: usize,
    ) -> Result<LoadedConversation, MemoryError> {
        Ok(self.with_conversation(id, |stored| stored.load(limit)))
    }

    async fn read(
        &self,
        id: &ConversationId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Arc<Message>)>, MemoryError> {
        Ok(self.with_conversation(id, |stored| stored.read(from, limit)))
    }

    async fn save(
        &self,
        id: &ConversationId,
        change: &ConversationChange,
    ) -> Result<(), MemoryError> {
        let mut inner = self.lock();
        if let Some(stored) = inner.conversations.get_mut(id) {
            stored.save(id, change)?;
            inner.enforce_limits(id);
            return Ok(());
        }
        let mut stored = StoredConversation::default();
        if stored.save(id, change)? {
            inner.conversations.insert(id.clone(), stored);
            inner.enforce_limits(id);
        }
        Ok(())
    }

    async fn search(
        &self,
        id: &ConversationId,
        query: &str,
        limit: usize,
    ) -> Result<Vec<(u64, Arc<Message>)>, MemoryError> {
        // Clone the shared messages first, so that the search runs without the lock.
        let stored = self.with_conversation(id, StoredConversation::clone);
        Ok(stored.search(query, limit))
    }

    async fn trim(&self, id: &ConversationId, before: u64) -> Result<(), MemoryError> {
        let mut inner = self.lock();
        if let Some(stored) = inner.conversations.get_mut(id) {
            stored.trim(before);
            inner.enforce_limits(id);
        }
        Ok(())
    }

    async fn forget(&self, id: &ConversationId) -> Result<bool, MemoryError> {
        self.remove(id, |_| true)
    }

    async fn expire(
        &self,
        id: &ConversationId,
        unchanged_since: Timestamp,
    ) -> Result<bool, MemoryError> {
        self.remove(id, |stored| stored.changed < unchanged_since)
    }

    async fn list(&self, query: &ConversationQuery) -> Result<Vec<ConversationInfo>, MemoryError> {
        let inner = self.lock();
        let infos: Vec<_> = inner
            .conversations
            .iter()
            .map(|(id, stored)| stored.info(id))
            .collect();
        drop(inner);
        Ok(stored::select(infos.into_iter(), query))
    }

    async fn hold(&self, id: &ConversationId) -> Result<Lease, MemoryError> {
        if !self.lock().held.insert(id.clone()) {
            return Err(MemoryError::busy(id));
        }
        Ok(Lease::new(HoldGuard {
            store: self.clone(),
            id: id.clone(),
        }))
    }
}

struct HoldGuard {
    store: InMemory,
    id: ConversationId,
}

impl Drop for HoldGuard {
    fn drop(&mut self) {
        self.store.lock().held.remove(&self.id);
    }
}

impl fmt::Debug for InMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InMemory")
            .field("conversations", &self.lock().conversations.len())
            .finish()
    }
}
