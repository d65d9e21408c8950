use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use levity_core::{
    ConversationChange, ConversationId, ConversationInfo, ConversationQuery, Lease, MemoryError,
    MemoryStore, Message, Remembered, Timestamp,
};

use crate::kept::{self, Kept};

/// Keeps conversations for as long as the process lives. Clones share them.
///
/// For tests, and for programs whose conversations end with them. `docs/memory.md` compares the
/// stores.
///
/// ```
/// # use levity_core::{ConversationChange, ConversationId, MemoryStore, Message};
/// # use levity_memory::InMemory;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::MemoryError> {
/// let store = InMemory::new();
/// let id = ConversationId::new("monday");
/// store.save(&id, &ConversationChange::at(0).with_messages([Message::user("Good morning")])).await?;
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
    /// There only where the store is bounded.
    bounds: Option<Bounds>,
}

/// How much a bounded store keeps, and what it has.
struct Bounds {
    most: Use,
    /// How much one owner may have, and who owns a conversation.
    share: Option<(Use, OwnerOf)>,
    /// Of each conversation, how large it is, when it was last used and whose it is.
    sizes: HashMap<ConversationId, Size>,
    all: Use,
    /// What each owner has; those without an owner are together. Only owners that have something
    /// are here.
    owned: HashMap<Option<Arc<str>>, Use>,
    clock: u64,
}

/// Says whose a conversation is.
type OwnerOf = Box<dyn Fn(&ConversationId) -> Option<Arc<str>> + Send + Sync>;

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Use {
    count: usize,
    bytes: usize,
}

#[derive(Clone, Default)]
struct Size {
    bytes: usize,
    used: u64,
    owner: Option<Arc<str>>,
}

/// What there is too much of.
enum Excess {
    /// This owner has more than its share.
    Share(Option<Arc<str>>),
    /// The store has more than it may, and of all owners, this one has most of it.
    Whole(Option<Arc<str>>),
}

impl Inner {
    /// Counts what a conversation has now, and makes room for it.
    fn settle(&mut self, id: &ConversationId) {
        let Self {
            conversations,
            held,
            bounds: Some(bounds),
        } = self
        else {
            return;
        };
        let Some(kept) = conversations.get_mut(id) else {
            bounds.forget(id);
            return;
        };
        let mut bytes = size(kept);
        // One conversation has a sixteenth of the room; its oldest messages go.
        while bytes > bounds.most.bytes / 16 && kept.messages.len() > 1 {
            let half = kept.first + kept.messages.len().div_ceil(2) as u64;
            kept.trim(half);
            bytes = size(kept);
        }
        bounds.note(id, bytes);
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

impl Use {
    fn is_within(self, most: Self) -> bool {
        self.count <= most.count && self.bytes <= most.bytes
    }

    fn change(&mut self, before: Option<usize>, now: Option<usize>) {
        self.count = self.count + usize::from(now.is_some()) - usize::from(before.is_some());
        self.bytes = self.bytes + now.unwrap_or(0) - before.unwrap_or(0);
    }

    /// The part of `most` that is used, in millionths: of conversations or of bytes, whichever is
    /// more.
    fn part_of(self, most: Self) -> u128 {
        let part = |used: usize, most: usize| used as u128 * 1_000_000 / (most as u128).max(1);
        part(self.count, most.count).max(part(self.bytes, most.bytes))
    }
}

impl Bounds {
    fn note(&mut self, id: &ConversationId, bytes: usize) {
        self.clock += 1;
        let owner = self.share.as_ref().and_then(|(_, owner_of)| owner_of(id));
        let size = Size {
            bytes,
            used: self.clock,
            owner: owner.clone(),
        };
        let before = self.sizes.insert(id.clone(), size).map(|size| size.bytes);
        self.all.change(before, Some(bytes));
        self.owned
            .entry(owner)
            .or_default()
            .change(before, Some(bytes));
    }

    fn forget(&mut self, id: &ConversationId) {
        let Some(size) = self.sizes.remove(id) else {
            return;
        };
        self.all.change(Some(size.bytes), None);
        if let Some(own) = self.owned.get_mut(&size.owner) {
            own.change(Some(size.bytes), None);
            if own.count == 0 {
                self.owned.remove(&size.owner);
            }
        }
    }

    /// Returns whether there is too much after `id` was saved.
    fn excess(&self, id: &ConversationId) -> Option<Excess> {
        let owner = &self.sizes.get(id)?.owner;
        let own = self.owned.get(owner).copied().unwrap_or_default();
        let share = self
            .share
            .as_ref()
            .filter(|_| owner.is_some())
            .map(|(share, _)| *share);
        // One conversation may be more than a share has room for.
        if share.is_some_and(|share| own.count > 1 && !own.is_within(share)) {
            return Some(Excess::Share(owner.clone()));
        }
        if self.all.is_within(self.most) {
            return None;
        }
        let largest = self
            .owned
            .iter()
            .max_by_key(|(_, own)| own.part_of(self.most));
        largest.map(|(owner, _)| Excess::Whole(owner.clone()))
    }
}

/// How many bytes a conversation has as JSON.
fn size(kept: &Kept) -> usize {
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
    for message in &kept.messages {
        // What cannot be written takes some room, too.
        let _ = serde_json::to_writer(&mut count, message);
    }
    count.0
        + kept
            .summary
            .as_ref()
            .map_or(0, |summary| summary.text.len())
}

impl InMemory {
    /// No conversations yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// No conversations yet, and never more than `most` of them or `bytes` bytes of messages,
    /// counted as JSON.
    ///
    /// When there are more, those go that were not saved to for longest, and one that has more than
    /// a sixteenth of the bytes loses its oldest messages. Those that somebody
    /// [holds](MemoryStore::hold) stay, so while runs are under way there may be more, by a
    /// sixteenth for each of them.
    pub fn bounded(most: usize, bytes: usize) -> Self {
        let most = Use {
            count: most.max(1),
            bytes,
        };
        let (sizes, owned, all) = (HashMap::new(), HashMap::new(), Use::default());
        let bounds = Bounds {
            most,
            share: None,
            sizes,
            all,
            owned,
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

    /// Divides a bounded store among owners: each has at most this part of it in percent, one
    /// conversation at least, and what is above that goes from its own.
    ///
    /// When there is too much in all, conversations go of the owner that has most. `owner_of` says
    /// whose a conversation is, by its id; those without an owner have no share of their own. Call
    /// it before anything is saved; a store that is not bounded has no shares.
    #[must_use]
    pub fn with_share(
        self,
        percent: u8,
        owner_of: impl Fn(&ConversationId) -> Option<Arc<str>> + Send + Sync + 'static,
    ) -> Self {
        if let Some(bounds) = &mut self.lock().bounds {
            let part = |most: usize| (most as u128 * u128::from(percent.min(100)) / 100) as usize;
            let share = Use {
                count: part(bounds.most.count).max(1),
                bytes: part(bounds.most.bytes),
            };
            bounds.share = Some((share, Box::new(owner_of)));
        }
        self
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at a conversation; an unknown one is an empty one.
    fn look<T: Default>(&self, id: &ConversationId, look: impl FnOnce(&Kept) -> T) -> T {
        self.lock()
            .conversations
            .get(id)
            .map(look)
            .unwrap_or_default()
    }

    fn remove(
        &self,
        id: &ConversationId,
        wanted: impl Fn(&Kept) -> bool,
    ) -> Result<bool, MemoryError> {
        let mut inner = self.lock();
        if inner.held.contains(id) {
            return Err(MemoryError::busy(id));
        }
        let there = inner.conversations.get(id).is_some_and(wanted);
        let removed = if there {
            inner.conversations.remove(id)
        } else {
            None
        };
        inner.settle(id);
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

    async fn save(
        &self,
        id: &ConversationId,
        change: &ConversationChange,
    ) -> Result<(), MemoryError> {
        let mut inner = self.lock();
        if let Some(kept) = inner.conversations.get_mut(id) {
            kept.save(id, change)?;
            inner.settle(id);
            return Ok(());
        }
        let mut kept = Kept::default();
        if kept.save(id, change)? {
            inner.conversations.insert(id.clone(), kept);
            inner.settle(id);
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
        let mut inner = self.lock();
        if let Some(kept) = inner.conversations.get_mut(id) {
            kept.trim(before);
            inner.settle(id);
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
        self.remove(id, |kept| kept.changed < unchanged_since)
    }

    async fn list(&self, query: &ConversationQuery) -> Result<Vec<ConversationInfo>, MemoryError> {
        let inner = self.lock();
        let infos: Vec<_> = inner
            .conversations
            .iter()
            .map(|(id, kept)| kept.info(id))
            .collect();
        drop(inner);
        Ok(kept::select(infos.into_iter(), query))
    }

    async fn hold(&self, id: &ConversationId) -> Result<Lease, MemoryError> {
        if !self.lock().held.insert(id.clone()) {
            return Err(MemoryError::busy(id));
        }
        Ok(Lease::new(Held {
            store: self.clone(),
            id: id.clone(),
        }))
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
        f.debug_struct("InMemory")
            .field("conversations", &self.lock().conversations.len())
            .finish()
    }
}
