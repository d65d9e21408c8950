//! Conversations: a store with queues, expiry and limits.
//!
//! A store only promises that two writers do not interleave. This layer adds an order: runs of one
//! conversation wait for each other, first in a queue of this process, then for the lease of the
//! store. The queue keeps the order of arrival, and the lease excludes other processes.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use levity_core::{
    ConversationId, ConversationInfo, ConversationQuery, Lease, LoadedConversation, MemoryError,
    MemoryErrorKind, MemoryStore, Timestamp, World,
};
use levity_system::SystemWorld;

use crate::SessionNotes;
use crate::stored::align;

mod busy_retry;
mod clean;
mod open;
mod queue;

use busy_retry::BusyRetry;
pub use clean::MemoryCleanup;
pub use open::OpenConversation;
use queue::{OpenQueue, QueueSlot};

/// Conversations in a [`MemoryStore`]: one run at a time on each, with removal of unused ones.
///
/// - Runs of one conversation follow one another. Within a process they run in the order of their
///   `open` calls; across processes the order depends on the store's [`hold`](MemoryStore::hold).
/// - A conversation that has not changed for 30 days reads as empty, and is removed.
/// - Opening a conversation with more than 10,000 messages removes the oldest. Messages that the
///   summary covers go first, the others when there are twice as many.
///
/// Clones share the same conversations. An open conversation costs a few hundred bytes in addition
/// to its messages.
///
/// ```
/// # use levity_core::{ConversationChange, Message};
/// # use levity_memory::{Conversations, InMemory};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::MemoryError> {
/// let conversations = Conversations::new(InMemory::new());
/// let id = conversations.new_id();
///
/// let open = conversations.open(&id, 100).await?; // other callers of `open` wait
/// let change = ConversationChange::at(open.remembered().end)
///     .with_messages([Message::user("Good morning")]);
/// open.save(change).await?;
/// drop(open);
///
/// assert_eq!(conversations.open(&id, 100).await?.remembered().messages.len(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Conversations {
    store: Arc<dyn MemoryStore>,
    world: Arc<dyn World>,
    queue: Arc<OpenQueue>,
    expiry: Option<Duration>,
    max_messages: u64,
    max_wait: Duration,
    sessions: Option<Arc<dyn SessionNotes>>,
}

impl Conversations {
    /// The recommended interval for [`clean_up_periodically`](Self::clean_up_periodically).
    pub const CLEAN_UP_INTERVAL: Duration = Duration::from_secs(60);

    /// Creates conversations over a store. To share the store with other code, pass an `Arc` of it.
    pub fn new(store: impl MemoryStore + 'static) -> Self {
        Self {
            store: Arc::new(store),
            world: Arc::new(SystemWorld),
            queue: Arc::default(),
            expiry: Some(Duration::from_secs(30 * 24 * 60 * 60)),
            max_messages: 10_000,
            max_wait: Duration::from_secs(30),
            sessions: None,
        }
    }

    /// Sets the clock for dates and waits; the system clock by default.
    #[must_use]
    pub fn world(mut self, world: impl World + 'static) -> Self {
        self.world = Arc::new(world);
        self
    }

    /// Sets the time after which an unchanged conversation is removed; 30 days by default.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use levity_core::{ConversationChange, ConversationId, Message};
    /// use levity_memory::{Conversations, InMemory};
    /// use levity_test::ManualWorld;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::MemoryError> {
    /// let (world, id) = (ManualWorld::new(), ConversationId::new("monday"));
    /// let conversations = Conversations::new(InMemory::new())
    ///     .world(world.clone())
    ///     .expire_after(Duration::from_secs(60));
    /// world.advance(Duration::from_secs(1));
    /// let open = conversations.open(&id, 10).await?;
    /// open.save(ConversationChange::at(0).with_messages([Message::user("Hello")])).await?;
    /// drop(open);
    /// world.advance(Duration::from_secs(61));
    /// assert_eq!(conversations.clean_up().await?.removed, 1);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn expire_after(mut self, time: Duration) -> Self {
        self.expiry = Some(time);
        self
    }

    /// Retains conversations until `forget` removes them.
    #[must_use]
    pub fn never_expire(mut self) -> Self {
        self.expiry = None;
        self
    }

    /// Sets how many messages that the summary covers a conversation retains; 10,000 by default.
    /// Messages without a summary are retained up to twice this number.
    ///
    /// ```
    /// use levity_core::{ConversationChange, Message};
    /// use levity_memory::{Conversations, InMemory};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::MemoryError> {
    /// let conversations = Conversations::new(InMemory::new()).max_messages(10);
    /// let id = conversations.new_id();
    /// let messages = (0..50).map(|n| Message::user(format!("message {n}")));
    /// let open = conversations.open(&id, 100).await?;
    /// open.save(ConversationChange::at(0).with_messages(messages)).await?;
    /// drop(open);
    /// assert_eq!(conversations.open(&id, 100).await?.remembered().first, 30);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn max_messages(mut self, count: u64) -> Self {
        self.max_messages = count;
        self
    }

    /// Sets how long to wait for another process that holds the conversation; 30 seconds by
    /// default.
    #[must_use]
    pub fn max_wait(mut self, time: Duration) -> Self {
        self.max_wait = time;
        self
    }

    /// Records a note on the topic of each conversation, for later conversations to look up; off by
    /// default.
    ///
    /// An agent writes the note at the end of each run. [`forget`](Self::forget) removes a
    /// conversation's note as well; expiry leaves the note in place.
    #[must_use]
    pub fn with_session_notes(mut self, sessions: impl SessionNotes + 'static) -> Self {
        self.sessions = Some(Arc::new(sessions));
        self
    }

    /// Returns the session notes, if [`with_session_notes`](Self::with_session_notes) set them.
    pub fn sessions(&self) -> Option<&Arc<dyn SessionNotes>> {
        self.sessions.as_ref()
    }

    /// Returns the store of the conversations.
    pub fn store(&self) -> &Arc<dyn MemoryStore> {
        &self.store
    }

    /// Creates a new id of 128 random bits, which an outsider cannot guess.
    ///
    /// ```
    /// # use levity_memory::{Conversations, InMemory};
    /// let conversations = Conversations::new(InMemory::new());
    /// assert_ne!(conversations.new_id(), conversations.new_id());
    /// ```
    pub fn new_id(&self) -> ConversationId {
        ConversationId::random(&*self.world)
    }

    /// Waits until no other run holds the conversation, then loads at most `limit` of its last
    /// messages.
    ///
    /// The messages never begin with a tool result whose call was left out.
    ///
    /// Dropping the future, even while it waits, changes nothing.
    ///
    /// # Errors
    /// [`Busy`](MemoryErrorKind::Busy) if another process still holds the conversation after
    /// [`max_wait`](Self::max_wait), and every error of the store.
    pub async fn open(
        &self,
        id: &ConversationId,
        limit: usize,
    ) -> Result<OpenConversation, MemoryError> {
        let slot = QueueSlot::acquire(&self.queue, id).await;
        let mut busy_retry = BusyRetry::new(self);
        loop {
            let hold = self.hold(id, &mut busy_retry).await?;
            let mut remembered = self.store.load(id, limit).await?;
            let Some(deadline) = self.expired(&remembered) else {
                remembered.first = self.bound(id, &remembered).await;
                shorten(&mut remembered);
                let conversations = self.clone();
                return Ok(OpenConversation {
                    id: id.clone(),
                    remembered,
                    conversations,
                    _lease: hold,
                    _slot: slot,
                });
            };
            // A held conversation cannot be removed, not even by its holder. Another caller that
            // holds it in the meantime removes it as well.
            drop(hold);
            self.remove(id, deadline, &mut busy_retry).await?;
        }
    }

    async fn hold(
        &self,
        id: &ConversationId,
        busy_retry: &mut BusyRetry<'_>,
    ) -> Result<Lease, MemoryError> {
        loop {
            match self.store.hold(id).await {
                Err(error) if error.kind() == MemoryErrorKind::Busy => {
                    busy_retry.wait(error).await?;
                }
                other => return other,
            }
        }
    }

    async fn remove(
        &self,
        id: &ConversationId,
        deadline: Timestamp,
        busy_retry: &mut BusyRetry<'_>,
    ) -> Result<(), MemoryError> {
        match self.store.expire(id, deadline).await {
            Err(error) if error.kind() == MemoryErrorKind::Busy => busy_retry.wait(error).await,
            other => other.map(drop),
        }
    }

    /// Returns the expiry deadline if the conversation was last changed before it.
    fn expired(&self, remembered: &LoadedConversation) -> Option<Timestamp> {
        self.deadline()
            .filter(|deadline| is_expired(remembered.changed, *deadline))
    }

    /// Returns the deadline: conversations last changed before it are removed.
    fn deadline(&self) -> Option<Timestamp> {
        let age = u64::try_from(self.expiry?.as_millis()).unwrap_or(u64::MAX);
        Some(Timestamp::from_millis(
            self.world.now().as_millis().saturating_sub(age),
        ))
    }

    /// Trims messages beyond the limit, and returns the position at which the conversation then
    /// begins.
    ///
    /// Messages without a summary are kept longer, because trimming them loses what they say.
    async fn bound(&self, id: &ConversationId, remembered: &LoadedConversation) -> u64 {
        let upto = remembered
            .summary
            .as_ref()
            .map_or(0, |summary| summary.upto);
        let end = remembered.end;
        let summarised = end.saturating_sub(self.max_messages).min(upto);
        let before = summarised.max(end.saturating_sub(self.max_messages.saturating_mul(2)));
        // Trim a tenth at a time: wiping costs more than the few messages of one run are worth.
        if before.saturating_sub(remembered.first) < (self.max_messages / 10).max(1) {
            return remembered.first;
        }
        // An overlong conversation is better than a failed `open`; the next one retries the trim.
        self.store
            .trim(id, before)
            .await
            .map_or(remembered.first, |()| before)
    }

    /// Waits until no other run holds the conversation, removes it, and returns `true` if it
    /// existed.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    ///
    /// ```
    /// use levity_core::{ConversationChange, Message};
    /// use levity_memory::{Conversations, InMemory};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::MemoryError> {
    /// let conversations = Conversations::new(InMemory::new());
    /// let id = conversations.new_id();
    /// let open = conversations.open(&id, 10).await?;
    /// open.save(ConversationChange::at(0).with_messages([Message::user("Hello")])).await?;
    /// drop(open);
    /// assert!(conversations.forget(&id).await?);
    /// assert!(!conversations.forget(&id).await?, "it is gone");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn forget(&self, id: &ConversationId) -> Result<bool, MemoryError> {
        let _slot = QueueSlot::acquire(&self.queue, id).await;
        let mut busy_retry = BusyRetry::new(self);
        let existed = loop {
            match self.store.forget(id).await {
                Err(error) if error.kind() == MemoryErrorKind::Busy => {
                    busy_retry.wait(error).await?;
                }
                other => break other?,
            }
        };
        // The previous holder may have recorded a note just before it released the conversation.
        if let Some(sessions) = &self.sessions {
            sessions.forget(id).await?;
        }
        Ok(existed)
    }

    /// Lists the stored conversations, least recently changed first.
    ///
    /// # Errors
    /// Returns the errors of the store.
    ///
    /// ```
    /// # use levity_core::{ConversationChange, ConversationQuery, Message};
    /// # use levity_memory::{Conversations, InMemory};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::MemoryError> {
    /// let conversations = Conversations::new(InMemory::new());
    /// let id = conversations.new_id();
    /// let change = ConversationChange::at(0).with_messages([Message::user("Good morning")]);
    /// conversations.open(&id, 100).await?.save(change).await?;
    ///
    /// let found = conversations.list(&ConversationQuery::new()).await?;
    /// assert_eq!(found[0].id, id);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn list(
        &self,
        query: &ConversationQuery,
    ) -> Result<Vec<ConversationInfo>, MemoryError> {
        let (mut query, deadline) = (query.clone(), self.deadline());
        let limit = query.limit.unwrap_or(usize::MAX);
        let mut found = Vec::new();
        loop {
            let page = self.store.list(&query).await?;
            let (full, last) = (page.len() >= limit, page.last().cloned());
            found.extend(
                page.into_iter()
                    .filter(|info| deadline.is_none_or(|m| !is_expired(info.changed, m))),
            );
            found.truncate(limit);
            // Expired conversations count as removed; the next page fills their places.
            match last.filter(|_| full && found.len() < limit) {
                Some(last) => query = query.after(&last),
                None => return Ok(found),
            }
        }
    }

    /// Removes conversations that have expired. It skips conversations that a run holds.
    ///
    /// # Errors
    /// If the store cannot list its conversations.
    pub async fn clean_up(&self) -> Result<MemoryCleanup, MemoryError> {
        clean::clean_up(self).await
    }

    /// Calls [`clean_up`](Self::clean_up) forever, with this interval between calls. Run it
    /// alongside the host's work, and stop it by dropping the future. A later pass retries a
    /// removal that failed.
    pub async fn clean_up_periodically(&self, every: Duration) -> Infallible {
        loop {
            // There is no caller to report to; use `clean_up` to get the result.
            let _ = self.clean_up().await;
            self.world.sleep(every.max(Duration::from_millis(1))).await;
        }
    }
}

/// Drops messages that were trimmed after loading, and tool results whose calls were left out.
///
/// It runs after [`bound`](Conversations::bound), which may have trimmed messages that were already
/// loaded.
fn shorten(remembered: &mut LoadedConversation) {
    let count = remembered.end.saturating_sub(remembered.first);
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let trimmed = remembered.messages.len().saturating_sub(count);
    remembered.messages.drain(..trimmed);
    align(&mut remembered.messages);
}

/// Returns `true` if a conversation has expired. One without a date of change never expires.
fn is_expired(changed: Timestamp, deadline: Timestamp) -> bool {
    changed != Timestamp::default() && changed < deadline
}

impl fmt::Debug for Conversations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conversations")
            .field("expiry", &self.expiry)
            .field("max_messages", &self.max_messages)
            .field("max_wait", &self.max_wait)
            .finish_non_exhaustive()
    }
}
