//! The store over four operations.
//!
//! Reads take no lock: they read the head, then the chunks, then the head again. If the beginning
//! or the generation has changed meanwhile, they start over. Writers retry up to 100 times while
//! others win.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use levity_core::{
    ConversationChange, ConversationId, ConversationInfo, ConversationQuery, Lease,
    LoadedConversation, MemoryError, MemoryErrorKind, MemoryStore, Message, Timestamp, World,
};
use levity_system::SystemWorld;

use super::chunks::{self, CHUNKS, ChunkKey, Reader};
use super::head::{self, HEADS, Head, Holder, damaged};
use super::holds::Holds;
use super::{KeyValueStore, Version, Versioned};
use crate::file::name;
use crate::stored::{self, SaveAction, StoredConversation, classify};

/// The page size of one scan.
const PAGE: usize = 64;

/// The number of attempts at a change while other writers win.
const ATTEMPTS: usize = 100;

/// A memory store over any [`KeyValueStore`].
///
/// - A conversation consists of a head, which is a small value with its positions and summary, and
///   chunks of messages that are written once. A save writes its messages and then the head, which
///   makes the save visible.
/// - A hold is a lease of 20 seconds that a task renews. A process that ends releases its holds
///   after this time, or at once if it calls [`wait_for_releases`](Self::wait_for_releases). The
///   clocks of all processes must agree within a few seconds.
/// - `load` and `read` cost what they return. `search` reads the whole conversation, and `list`
///   reads all heads.
/// - `forget` removes all keys of a conversation. If it fails half-way, the conversation is empty.
///   To remove the remaining keys, repeat the call, list the conversations, or save to this one
///   again.
/// - `trim` leaves up to 15 messages in the store that share a chunk with the first retained
///   message. No call returns them.
///
/// Clones share the same store. It requires a tokio runtime. [`KeyValueStore`] has an example.
///
/// ```
/// use std::time::Duration;
///
/// use levity_memory::{KeyValueMemory, KeyValueStore};
///
/// /// Uses short leases and the small values of a database with a limit of 64 KiB.
/// fn memory(database: impl KeyValueStore + 'static) -> KeyValueMemory {
///     KeyValueMemory::new(database)
///         .with_lease(Duration::from_secs(5))
///         .with_max_value_bytes(64 << 10)
/// }
/// ```
#[derive(Clone)]
pub struct KeyValueMemory {
    store: Arc<dyn KeyValueStore>,
    pub(super) world: Arc<dyn World>,
    pub(super) lease: Duration,
    pub(super) holds: Arc<Holds>,
    max_bytes: usize,
    /// Distinguishes the leases of this store from those of others.
    owner: u64,
}

/// A consistent range of a conversation.
struct View {
    head: Head,
    version: Version,
    /// The position at which the chunk of the first message begins.
    begin: u64,
    messages: Vec<(u64, Arc<Message>)>,
}

impl KeyValueMemory {
    /// Creates a store that uses the keys below `conversations/` and `messages/`.
    pub fn new(store: impl KeyValueStore + 'static) -> Self {
        Self {
            store: Arc::new(store),
            world: Arc::new(SystemWorld),
            lease: Duration::from_secs(20),
            holds: Arc::default(),
            max_bytes: 256 << 10,
            owner: SystemWorld.random(),
        }
    }

    /// Sets the clock for leases; the system clock by default.
    #[must_use]
    pub fn with_world(mut self, world: impl World + 'static) -> Self {
        self.world = Arc::new(world);
        self
    }

    /// Sets how long a process that ended still holds its conversations; 20 seconds by default, and
    /// at least one. The store renews a lease when a third of it has elapsed.
    #[must_use]
    pub fn with_lease(mut self, time: Duration) -> Self {
        self.lease = time.max(Duration::from_secs(1));
        self
    }

    /// Sets the maximum size of a value; 256 KiB by default, and at least 4 KiB. The store splits
    /// longer messages among several values, and rejects longer summaries.
    #[must_use]
    pub fn with_max_value_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes.max(4 << 10);
        self
    }

    /// Waits until all dropped holds are released in the store, which happens in the background.
    ///
    /// Call it before the program ends. Otherwise the next process may have to wait until the
    /// leases expire.
    pub async fn wait_for_releases(&self) {
        self.holds.wait_for_releases().await;
    }

    async fn head(&self, id: &ConversationId) -> Result<Option<(Head, Version)>, MemoryError> {
        // A conversation that cannot be stored is unknown.
        let Ok(key) = head::key(id) else {
            return Ok(None);
        };
        let Some(Versioned { value, version }) = self.store.get(&key).await? else {
            return Ok(None);
        };
        Ok(Some((Head::read(id, &key, &value)?, version)))
    }

    async fn head_or_new(
        &self,
        id: &ConversationId,
    ) -> Result<(Head, Option<Version>), MemoryError> {
        let current = self
            .head(id)
            .await?
            .map(|(head, version)| (head, Some(version)));
        Ok(current.unwrap_or_else(|| (Head::new(self.world.random()), None)))
    }

    async fn put_head(
        &self,
        id: &ConversationId,
        head: &Head,
        expected: Option<&Version>,
    ) -> Result<bool, MemoryError> {
        self.store
            .put(&head::key(id)?, &head.write(id, self.max_bytes)?, expected)
            .await
    }

    /// Changes the head, unless `change` returns `None`. Returns the replaced head.
    ///
    /// `change` may be called several times, once for each head that it meets.
    async fn update(
        &self,
        id: &ConversationId,
        change: impl Fn(&Head) -> Result<Option<Head>, MemoryError> + Send,
    ) -> Result<Option<Head>, MemoryError> {
        for _ in 0..ATTEMPTS {
            let (head, version) = self.head_or_new(id).await?;
            let Some(next) = change(&head)? else {
                return Ok(None);
            };
            if self.put_head(id, &next, version.as_ref()).await? {
                return Ok(Some(head));
            }
        }
        Err(contended(id))
    }

    /// Returns a page of a scan, and rejects repeated keys and keys outside the prefix.
    async fn page(
        &self,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<(String, Versioned)>, MemoryError> {
        let page = self.store.scan(prefix, after, limit).await?;
        let mut last = after;
        for (key, _) in &page {
            if !key.starts_with(prefix) || key.as_str() <= last {
                let message = format!(
                    "the key-value store returned `{key}` for a scan of `{prefix}` after `{last}`"
                );
                return Err(MemoryError::new(MemoryErrorKind::Io, message));
            }
            last = key;
        }
        Ok(page)
    }

    /// Reads the positions that `wanted` returns; `None` if there is no conversation.
    async fn view(
        &self,
        id: &ConversationId,
        wanted: impl Fn(&Head) -> Range<u64> + Send,
    ) -> Result<Option<View>, MemoryError> {
        let mut current = self.head(id).await?;
        for _ in 0..ATTEMPTS {
            let Some((head, version)) = current.filter(|(head, _)| head.exists) else {
                return Ok(None);
            };
            let wanted = wanted(&head);
            let wanted = wanted.start.max(head.first)..wanted.end.min(head.end);
            if wanted.is_empty() {
                return Ok(Some(View {
                    head,
                    version,
                    begin: wanted.start,
                    messages: Vec::new(),
                }));
            }
            let read = self.read_chunks(id, &head, wanted).await;
            current = self.head(id).await?;
            // If chunks were removed meanwhile, some are missing, or orphaned chunks were read in
            // their place.
            let same = |now: &Head| (now.generation, now.start) == (head.generation, head.start);
            if current.as_ref().is_some_and(|(now, _)| same(now)) {
                return read.map(|(begin, messages)| {
                    Some(View {
                        head,
                        version,
                        begin,
                        messages,
                    })
                });
            }
        }
        Err(contended(id))
    }

    async fn read_chunks(
        &self,
        id: &ConversationId,
        head: &Head,
        wanted: Range<u64>,
    ) -> Result<(u64, Vec<(u64, Arc<Message>)>), MemoryError> {
        let chunks = chunk_prefix(id)?;
        let mut reader = Reader::new(id, &chunks, head, wanted);
        let prefix = format!("{chunks}{:016x}/", head.generation);
        let mut after = format!("{prefix}{:020}", reader.next);
        while !reader.is_done() {
            // A chunk has at least one message.
            let limit = (reader.range.end - reader.next).min(PAGE as u64);
            let page = self.page(&prefix, &after, limit as usize).await?;
            let Some((last, _)) = page.last() else {
                let detail = format!("the messages from {} are missing", reader.next);
                return Err(damaged(id, &after, &detail));
            };
            for (key, entry) in &page {
                reader.push(key, &entry.value)?;
            }
            after.clone_from(last);
        }
        Ok((reader.begin, reader.messages))
    }

    /// Writes the chunks of a save. Returns `false` if another save uses its number.
    async fn put_chunks(&self, values: &[(String, Vec<u8>)]) -> Result<bool, MemoryError> {
        for (key, value) in values {
            if !self.store.put(key, value, None).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Raises the number of the next save if the writer that claimed it does not finish.
    async fn skip_save_number(
        &self,
        id: &ConversationId,
        head: Head,
        version: &Version,
    ) -> Result<(), MemoryError> {
        // The number of checks is random, or two writers could block each other forever.
        for _ in 0..2 + self.world.random() % 8 {
            tokio::task::yield_now().await;
            if self.head(id).await?.is_none_or(|(_, now)| now != *version) {
                return Ok(());
            }
        }
        let next = Head {
            save: head.save + 1,
            ..head
        };
        self.put_head(id, &next, Some(version)).await.map(drop)
    }

    /// Removes chunks that no head refers to.
    ///
    /// It is safe beside other writers: only chunks that no current or future head can refer to are
    /// removed.
    async fn discard_chunks(&self, id: &ConversationId) -> Result<(), MemoryError> {
        let Ok(chunks) = chunk_prefix(id) else {
            return Ok(());
        };
        let mut after = String::new();
        loop {
            let page = self.page(&chunks, &after, PAGE).await?;
            let Some((last, _)) = page.last() else {
                return Ok(());
            };
            after.clone_from(last);
            // A head is written before the chunks of its generation, and a generation is never
            // reused. So a chunk is orphaned if the head, read after the chunk was found, has
            // another generation.
            let head = self.head(id).await?.map(|(head, _)| head);
            for (key, entry) in &page {
                let Some(chunk_key) = ChunkKey::parse(&chunks, key) else {
                    continue;
                };
                let is_current = |head: &Head| {
                    head.generation == chunk_key.generation && head.start <= chunk_key.position
                };
                if head.as_ref().is_some_and(is_current) {
                    // All other chunks of this generation sort after it. `0` is the byte after `/`.
                    after = format!("{chunks}{:016x}0", chunk_key.generation);
                    break;
                }
                self.delete_chunk(key, &entry.version).await?;
            }
        }
    }

    /// Removes an orphaned chunk, even if the store needs more than one attempt.
    async fn delete_chunk(&self, key: &str, version: &Version) -> Result<(), MemoryError> {
        let mut version = version.clone();
        for _ in 0..ATTEMPTS {
            if self.store.delete(key, &version).await? {
                break;
            }
            let Some(entry) = self.store.get(key).await? else {
                break;
            };
            version = entry.version;
        }
        Ok(())
    }

    /// Removes the conversation if it is `wanted`, and the remains of one that was removed, held or
    /// started.
    async fn remove(
        &self,
        id: &ConversationId,
        wanted: impl Fn(&Head) -> bool + Send + Sync,
    ) -> Result<bool, MemoryError> {
        let removed = self.update(id, |head| {
            if self.is_held(id, head) {
                return Err(MemoryError::busy(id));
            }
            // A new generation orphans all chunks.
            let remove_head = if head.exists {
                wanted(head)
            } else {
                head.revision > 0
            };
            Ok(remove_head.then(|| Head::new(self.world.random())))
        });
        let removed = removed.await?.is_some_and(|head| head.exists);
        self.discard_chunks(id).await?;
        for _ in 0..ATTEMPTS {
            let current = self
                .head(id)
                .await?
                .filter(|(head, _)| head.is_idle(self.world.now()));
            let Some((_, version)) = current else { break };
            if self.store.delete(&head::key(id)?, &version).await? {
                break;
            }
        }
        Ok(removed)
    }

    /// Returns `true` if a store holds the conversation. A lease of this store without an entry in
    /// the table is stale.
    fn is_held(&self, id: &ConversationId, head: &Head) -> bool {
        head.holder.as_ref().is_some_and(|holder| {
            holder.until > self.world.now()
                && (holder.owner != self.owner || self.holds.is_active(id, holder.token))
        })
    }

    /// Accepts a repeated save if its messages are already at their positions.
    async fn compare(
        &self,
        id: &ConversationId,
        change: &ConversationChange,
        end: u64,
    ) -> Result<(), MemoryError> {
        let view = self
            .view(id, |head| change.at.max(head.first)..change.end())
            .await?;
        let already_saved =
            |view: View| conversation_of(change.at.max(view.head.first), view.messages).has(change);
        if view.is_some_and(already_saved) {
            Ok(())
        } else {
            Err(MemoryError::moved(id, change.at, end))
        }
    }

    fn holder(&self, token: u64) -> Holder {
        Holder {
            owner: self.owner,
            token,
            until: self.world.now().after(self.lease),
        }
    }

    pub(super) async fn renew(&self, id: &ConversationId, token: u64) -> Result<(), MemoryError> {
        let renewed = self.update(id, |head| {
            let mine = head.is_held_by(token);
            Ok(mine.then(|| Head {
                holder: Some(self.holder(token)),
                ..head.clone()
            }))
        });
        renewed.await.map(drop)
    }

    pub(super) async fn release(&self, id: &ConversationId, token: u64) -> Result<(), MemoryError> {
        let released = self.update(id, |head| {
            let mine = head.is_held_by(token);
            Ok(mine.then(|| Head {
                holder: None,
                ..head.clone()
            }))
        });
        match released.await? {
            Some(head) if !head.exists => self.remove(id, |_| false).await.map(drop),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl MemoryStore for KeyValueMemory {
    async fn load(
        &self,
        id: &ConversationId,
        limit: usize,
    ) -> Result<LoadedConversation, MemoryError> {
        let recent = |head: &Head| {
            head.upto()
                .unwrap_or(0)
                .max(head.end.saturating_sub(limit as u64))..head.end
        };
        let Some(View { head, messages, .. }) = self.view(id, recent).await? else {
            return Ok(LoadedConversation::default());
        };
        let messages = messages.into_iter().map(|(_, message)| message).collect();
        let remembered = LoadedConversation::new(head.summary, messages, head.end);
        Ok(remembered.with_first(head.first).with_changed(head.changed))
    }

    async fn read(
        &self,
        id: &ConversationId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Arc<Message>)>, MemoryError> {
        let wanted = |head: &Head| {
            let from = from.max(head.first);
            from..from.saturating_add(limit as u64)
        };
        Ok(self
            .view(id, wanted)
            .await?
            .map(|view| view.messages)
            .unwrap_or_default())
    }

    async fn save(
        &self,
        id: &ConversationId,
        change: &ConversationChange,
    ) -> Result<(), MemoryError> {
        let token = self.holds.token(id);
        // The generation and save number under which the chunks are already written.
        let mut written: Option<(u64, u64)> = None;
        for _ in 0..ATTEMPTS {
            let (head, version) = self.head_or_new(id).await?;
            if written.is_some_and(|(generation, _)| generation != head.generation) {
                self.discard_chunks(id).await?;
            }
            check_lease(id, &head, token)?;
            match classify(id, head.end, head.upto(), change)? {
                SaveAction::Nothing => return Ok(()),
                SaveAction::Compare => return self.compare(id, change, head.end).await,
                SaveAction::Write => {}
            }
            let next = head.after(change);
            let values = chunks::write(id, &chunk_prefix(id)?, &head, change, self.max_bytes)?;
            next.write(id, self.max_bytes)?;
            let Some(version) = version else {
                self.put_head(id, &head, None).await?;
                continue;
            };
            if !head.exists && written.is_none() {
                // An interrupted removal may have left chunks.
                self.discard_chunks(id).await?;
            }
            let number = Some((next.generation, next.save));
            if written != number && !self.put_chunks(&values).await? {
                self.skip_save_number(id, head, &version).await?;
                continue;
            }
            written = number;
            if self.put_head(id, &next, Some(&version)).await? {
                return Ok(());
            }
        }
        Err(contended(id))
    }

    async fn search(
        &self,
        id: &ConversationId,
        query: &str,
        limit: usize,
    ) -> Result<Vec<(u64, Arc<Message>)>, MemoryError> {
        let Some(view) = self.view(id, |head| head.first..head.end).await? else {
            return Ok(Vec::new());
        };
        Ok(conversation_of(view.head.first, view.messages).search(query, limit))
    }

    async fn trim(&self, id: &ConversationId, before: u64) -> Result<(), MemoryError> {
        let token = self.holds.token(id);
        for _ in 0..ATTEMPTS {
            let first = |head: &Head| before.clamp(head.first, head.end);
            let view = self.view(id, |head| first(head)..first(head) + 1).await?;
            let Some(View {
                head,
                version,
                begin,
                ..
            }) = view
            else {
                return Ok(());
            };
            check_lease(id, &head, token)?;
            let trimmed = Head {
                first: first(&head),
                start: begin,
                ..head.clone()
            };
            if trimmed == head || self.put_head(id, &trimmed, Some(&version)).await? {
                return self.discard_chunks(id).await;
            }
        }
        Err(contended(id))
    }

    async fn forget(&self, id: &ConversationId) -> Result<bool, MemoryError> {
        self.holds.wait(id).await?;
        self.remove(id, |_| true).await
    }

    async fn expire(
        &self,
        id: &ConversationId,
        unchanged_since: Timestamp,
    ) -> Result<bool, MemoryError> {
        self.holds.wait(id).await?;
        self.remove(id, |head| head.changed < unchanged_since).await
    }

    async fn list(&self, query: &ConversationQuery) -> Result<Vec<ConversationInfo>, MemoryError> {
        let (mut infos, mut idle, mut after) = (Vec::new(), Vec::new(), String::new());
        loop {
            let page = self.page(HEADS, &after, PAGE).await?;
            let Some((last, _)) = page.last() else { break };
            after.clone_from(last);
            for (key, entry) in page {
                let Some(id) = key
                    .strip_prefix(HEADS)
                    .and_then(name::unescape)
                    .map(ConversationId::new)
                else {
                    continue;
                };
                // An unreadable head does not hide the other conversations.
                let Ok(head) = Head::read(&id, &key, &entry.value) else {
                    continue;
                };
                if head.exists {
                    infos.push(ConversationInfo::new(
                        id,
                        head.changed,
                        head.first,
                        head.end,
                    ));
                } else if head.is_idle(self.world.now()) {
                    idle.push(id);
                }
            }
        }
        for id in idle {
            // The caller cannot act on the error, and the next list retries.
            let _ = self.remove(&id, |_| false).await;
        }
        Ok(stored::select(infos.into_iter(), query))
    }

    async fn hold(&self, id: &ConversationId) -> Result<Lease, MemoryError> {
        head::key(id)?;
        let guard = self.register_hold(id).await?;
        let acquired = self.update(id, |head| match () {
            () if head.is_held_by(guard.token) => Ok(None),
            () if self.is_held(id, head) => Err(MemoryError::busy(id)),
            () => Ok(Some(Head {
                holder: Some(self.holder(guard.token)),
                ..head.clone()
            })),
        });
        acquired.await?;
        guard.mark_acquired();
        Ok(Lease::new(guard))
    }
}

/// Builds a conversation of consecutive messages.
fn conversation_of(first: u64, messages: Vec<(u64, Arc<Message>)>) -> StoredConversation {
    let messages = messages.into_iter().map(|(_, message)| message).collect();
    StoredConversation {
        first,
        messages,
        ..StoredConversation::default()
    }
}

/// Rejects a change by a holder whose lease ended and was taken over.
///
/// A change without a hold passes, since the store also serves programs that do not use leases.
fn check_lease(id: &ConversationId, head: &Head, token: Option<u64>) -> Result<(), MemoryError> {
    let lost = token.is_some_and(|token| !head.is_held_by(token));
    if lost {
        Err(MemoryError::busy(id))
    } else {
        Ok(())
    }
}

fn chunk_prefix(id: &ConversationId) -> Result<String, MemoryError> {
    Ok(format!("{CHUNKS}{}/", head::name(id)?))
}

fn contended(id: &ConversationId) -> MemoryError {
    let message = format!(
        "other writers changed conversation `{id}` during all {ATTEMPTS} attempts; retry later"
    );
    MemoryError::new(MemoryErrorKind::Busy, message)
}

impl fmt::Debug for KeyValueMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyValueMemory")
            .field("lease", &self.lease)
            .field("max_value_bytes", &self.max_bytes)
            .finish_non_exhaustive()
    }
}
