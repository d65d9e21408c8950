use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use levity_core::{
    ConversationChange, ConversationId, ConversationInfo, ConversationQuery, Lease, MemoryError,
    MemoryErrorKind, MemoryStore, Message, Remembered, Timestamp, World,
};
use levity_system::SystemWorld;

use super::chunks::{self, CHUNKS, Place, Reader};
use super::head::{self, HEADS, Head, Holder, damaged};
use super::holds::Holds;
use super::{KeyValueStore, Version, Versioned};
use crate::file::name;
use crate::kept::{self, Kept, Verdict, judge};

/// The number of keys that one scan asks for.
const PAGE: usize = 64;

/// The number of attempts at a change while other writers are faster.
const ATTEMPTS: usize = 100;

/// Keeps conversations in any [`KeyValueStore`].
///
/// - A conversation is a head, which is a small value with its positions and summary, and chunks of
///   messages that are written once. A save writes its own messages and the head. It is visible
///   when the head is written.
/// - A hold is a lease of 20 seconds that a task renews. A process that ends lets go after this
///   time, or at once if it calls [`wait_for_releases`](Self::wait_for_releases). The clocks of all
///   processes have to agree to a few seconds.
/// - `load` and `read` cost what they return. `search` reads the whole conversation, and `list`
///   reads all heads.
/// - `forget` removes all keys of a conversation. If it fails half-way, the conversation is empty.
///   The remaining keys go when you repeat the call, list the conversations, or save to this one
///   again.
/// - `trim` leaves up to 15 messages in the store that share a chunk with the first one that stays.
///   Nothing returns them.
///
/// Clones are the same store. It needs a tokio runtime. [`KeyValueStore`] has an example.
#[derive(Clone)]
pub struct KeyValueMemory {
    store: Arc<dyn KeyValueStore>,
    pub(super) world: Arc<dyn World>,
    pub(super) lease: Duration,
    pub(super) holds: Arc<Holds>,
    max_bytes: usize,
    /// Tells the leases of this store from those of others.
    owner: u64,
}

/// A part of a conversation.
struct View {
    head: Head,
    version: Version,
    /// The position at which the chunk of the first message begins.
    begin: u64,
    messages: Vec<(u64, Arc<Message>)>,
}

impl KeyValueMemory {
    /// Keeps conversations in this store, below the keys `conversations/` and `messages/`.
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

    /// Sets the clock for leases; the system's by default.
    #[must_use]
    pub fn with_world(mut self, world: impl World + 'static) -> Self {
        self.world = Arc::new(world);
        self
    }

    /// Sets how long a process that ended still holds its conversations; 20 seconds by default, and
    /// one at least. A lease is renewed when a third of it is over.
    #[must_use]
    pub fn with_lease(mut self, time: Duration) -> Self {
        self.lease = time.max(Duration::from_secs(1));
        self
    }

    /// Sets how long a value may be; 256 KiB by default, and 4 KiB at least. Longer messages are
    /// divided among several values; longer summaries are refused.
    #[must_use]
    pub fn with_max_value_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes.max(4 << 10);
        self
    }

    /// Waits until all holds that were dropped are gone from the store, which a task sees to in the
    /// background.
    ///
    /// Call it before the program ends. Otherwise the next process may have to wait until the
    /// leases are over.
    pub async fn wait_for_releases(&self) {
        self.holds.wait_for_releases().await;
    }

    async fn head(&self, id: &ConversationId) -> Result<Option<(Head, Version)>, MemoryError> {
        // A conversation that cannot be kept is unknown.
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
        let known = self
            .head(id)
            .await?
            .map(|(head, version)| (head, Some(version)));
        Ok(known.unwrap_or_else(|| (Head::new(self.world.random()), None)))
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

    /// Changes the head, unless `change` returns none. Returns the head that was replaced.
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

    /// Returns a page of a scan. A store that repeats itself or returns other keys is not believed.
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

    /// Reads the positions that `wanted` names; `None` when there is no conversation.
    async fn view(
        &self,
        id: &ConversationId,
        wanted: impl Fn(&Head) -> Range<u64> + Send,
    ) -> Result<Option<View>, MemoryError> {
        let mut known = self.head(id).await?;
        for _ in 0..ATTEMPTS {
            let Some((head, version)) = known.filter(|(head, _)| head.exists) else {
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
            known = self.head(id).await?;
            // If chunks were removed meanwhile, some are missing, or orphans were read in their
            // place.
            let same = |now: &Head| (now.generation, now.start) == (head.generation, head.start);
            if known.as_ref().is_some_and(|(now, _)| same(now)) {
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
        let chunks = chunks_of(id)?;
        let mut reader = Reader::new(id, &chunks, head, wanted);
        let prefix = format!("{chunks}{:016x}/", head.generation);
        let mut after = format!("{prefix}{:020}", reader.next);
        while !reader.is_done() {
            // A chunk has one message at least.
            let limit = (reader.wanted.end - reader.next).min(PAGE as u64);
            let page = self.page(&prefix, &after, limit as usize).await?;
            let Some((last, _)) = page.last() else {
                let what = format!("the messages from {} on are missing", reader.next);
                return Err(damaged(id, &after, &what));
            };
            for (key, there) in &page {
                reader.push(key, &there.value)?;
            }
            after.clone_from(last);
        }
        Ok((reader.begin, reader.messages))
    }

    /// Writes the chunks of a save. Returns `false` if another save has its number.
    async fn put_chunks(&self, values: &[(String, Vec<u8>)]) -> Result<bool, MemoryError> {
        for (key, value) in values {
            if !self.store.put(key, value, None).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Raises the number of the next save if the writer that has it does not finish.
    async fn pass(
        &self,
        id: &ConversationId,
        head: Head,
        version: &Version,
    ) -> Result<(), MemoryError> {
        // A random number of looks, or two writers could stop each other for ever.
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

    /// Removes chunks that no head will ever name.
    async fn discard_chunks(&self, id: &ConversationId) -> Result<(), MemoryError> {
        let Ok(chunks) = chunks_of(id) else {
            return Ok(());
        };
        let mut after = String::new();
        loop {
            let page = self.page(&chunks, &after, PAGE).await?;
            let Some((last, _)) = page.last() else {
                return Ok(());
            };
            after.clone_from(last);
            // A head is written before the chunks of its generation, and no generation comes back.
            // So a chunk is an orphan if the head, read after the chunk was found, has another
            // generation.
            let head = self.head(id).await?.map(|(head, _)| head);
            for (key, there) in &page {
                let Some(place) = Place::parse(&chunks, key) else {
                    continue;
                };
                let kept = |head: &Head| {
                    head.generation == place.generation && head.start <= place.position
                };
                if head.as_ref().is_some_and(kept) {
                    // All others of this generation come after it. `0` is the byte after `/`.
                    after = format!("{chunks}{:016x}0", place.generation);
                    break;
                }
                self.delete_chunk(key, &there.version).await?;
            }
        }
    }

    /// Removes an orphaned chunk, also if the store takes more than one attempt.
    async fn delete_chunk(&self, key: &str, version: &Version) -> Result<(), MemoryError> {
        let mut version = version.clone();
        for _ in 0..ATTEMPTS {
            if self.store.delete(key, &version).await? {
                break;
            }
            let Some(there) = self.store.get(key).await? else {
                break;
            };
            version = there.version;
        }
        Ok(())
    }

    /// Removes the conversation if it is `wanted`, and what is left of one that was removed, held
    /// or begun.
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
            let gone = if head.exists {
                wanted(head)
            } else {
                head.revision > 0
            };
            Ok(gone.then(|| Head::new(self.world.random())))
        });
        let removed = removed.await?.is_some_and(|head| head.exists);
        self.discard_chunks(id).await?;
        for _ in 0..ATTEMPTS {
            let known = self
                .head(id)
                .await?
                .filter(|(head, _)| head.is_idle(self.world.now()));
            let Some((_, version)) = known else { break };
            if self.store.delete(&head::key(id)?, &version).await? {
                break;
            }
        }
        Ok(removed)
    }

    /// Returns whether somebody holds it. A lease of this store whose hold is not in the table is
    /// left over.
    fn is_held(&self, id: &ConversationId, head: &Head) -> bool {
        head.holder.as_ref().is_some_and(|holder| {
            holder.until > self.world.now()
                && (holder.owner != self.owner || self.holds.has(id, holder.token))
        })
    }

    /// Accepts a save that was made before: its messages are at their positions.
    async fn compare(
        &self,
        id: &ConversationId,
        change: &ConversationChange,
        end: u64,
    ) -> Result<(), MemoryError> {
        let view = self
            .view(id, |head| change.at.max(head.first)..change.end())
            .await?;
        let made = |view: View| whole(change.at.max(view.head.first), view.messages).has(change);
        if view.is_some_and(made) {
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
    async fn load(&self, id: &ConversationId, limit: usize) -> Result<Remembered, MemoryError> {
        let recent = |head: &Head| {
            head.upto()
                .unwrap_or(0)
                .max(head.end.saturating_sub(limit as u64))..head.end
        };
        let Some(View { head, messages, .. }) = self.view(id, recent).await? else {
            return Ok(Remembered::default());
        };
        let messages = messages.into_iter().map(|(_, message)| message).collect();
        let remembered = Remembered::new(head.summary, messages, head.end);
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
        // The generation and number under which the chunks are written already.
        let mut written: Option<(u64, u64)> = None;
        for _ in 0..ATTEMPTS {
            let (head, version) = self.head_or_new(id).await?;
            if written.is_some_and(|(generation, _)| generation != head.generation) {
                self.discard_chunks(id).await?;
            }
            fence(id, &head, token)?;
            match judge(id, head.end, head.upto(), change)? {
                Verdict::Nothing => return Ok(()),
                Verdict::Compare => return self.compare(id, change, head.end).await,
                Verdict::Write => {}
            }
            let next = head.after(change);
            let values = chunks::write(id, &chunks_of(id)?, &head, change, self.max_bytes)?;
            next.write(id, self.max_bytes)?;
            let Some(version) = version else {
                self.put_head(id, &head, None).await?;
                continue;
            };
            if !head.exists && written.is_none() {
                // A removal that was cut off may have left chunks.
                self.discard_chunks(id).await?;
            }
            let number = Some((next.generation, next.save));
            if written != number && !self.put_chunks(&values).await? {
                self.pass(id, head, &version).await?;
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
        Ok(whole(view.head.first, view.messages).search(query, limit))
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
            fence(id, &head, token)?;
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
            for (key, there) in page {
                let Some(id) = key
                    .strip_prefix(HEADS)
                    .and_then(name::unescape)
                    .map(ConversationId::new)
                else {
                    continue;
                };
                // One that cannot be read does not hide the others.
                let Ok(head) = Head::read(&id, &key, &there.value) else {
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
            // The caller has no use for the error, and the next list tries again.
            let _ = self.remove(&id, |_| false).await;
        }
        Ok(kept::select(infos.into_iter(), query))
    }

    async fn hold(&self, id: &ConversationId) -> Result<Lease, MemoryError> {
        head::key(id)?;
        let held = self.enter(id).await?;
        let taken = self.update(id, |head| match () {
            () if head.is_held_by(held.token) => Ok(None),
            () if self.is_held(id, head) => Err(MemoryError::busy(id)),
            () => Ok(Some(Head {
                holder: Some(self.holder(held.token)),
                ..head.clone()
            })),
        });
        taken.await?;
        held.take();
        Ok(Lease::new(held))
    }
}

/// A conversation of consecutive messages.
fn whole(first: u64, messages: Vec<(u64, Arc<Message>)>) -> Kept {
    let messages = messages.into_iter().map(|(_, message)| message).collect();
    Kept {
        first,
        messages,
        ..Kept::default()
    }
}

/// Refuses a change by a holder whose lease ended and was taken by another.
fn fence(id: &ConversationId, head: &Head, token: Option<u64>) -> Result<(), MemoryError> {
    let lost = token.is_some_and(|token| !head.is_held_by(token));
    if lost {
        Err(MemoryError::busy(id))
    } else {
        Ok(())
    }
}

fn chunks_of(id: &ConversationId) -> Result<String, MemoryError> {
    Ok(format!("{CHUNKS}{}/", head::name(id)?))
}

fn contended(id: &ConversationId) -> MemoryError {
    let message = format!(
        "others changed conversation `{id}` each of {ATTEMPTS} times that it was tried; try again"
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
