use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use levity_core::{
    ConversationId, ConversationInfo, ConversationQuery, Lease, MemoryError, MemoryErrorKind,
    MemoryStore, Remembered, Timestamp, World,
};
use levity_system::SystemWorld;

use crate::Sessions;
use crate::kept::align;

mod clean;
mod open;
mod patience;
mod turns;

pub use clean::MemoryCleanup;
pub use open::Open;
use patience::Patience;
use turns::{Turn, Turns};

/// Conversations over a [`MemoryStore`]: one run at a time on each, and those that nobody uses any
/// more go.
///
/// - Runs of one conversation follow one another: in this process in the order in which they came,
///   and across processes as far as the store can [`hold`](MemoryStore::hold).
/// - One that was not changed for 30 days is read as an empty one, and removed.
/// - When one is opened that has more than 10,000 messages, the oldest go: those that are in the
///   summary first, and the others when there are twice as many.
///
/// Clones are the same conversations. An open one costs a few hundred bytes beside its messages.
///
/// ```
/// # use levity_core::{ConversationChange, Message};
/// # use levity_memory::{Conversations, InMemory};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::MemoryError> {
/// let conversations = Conversations::new(InMemory::new());
/// let id = conversations.new_id();
///
/// let open = conversations.open(&id, 100).await?; // whoever else opens it waits
/// let change = ConversationChange::at(open.remembered().end).with_messages([Message::user("Good morning")]);
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
    turns: Arc<Turns>,
    expiry: Option<Duration>,
    max_messages: u64,
    max_wait: Duration,
    sessions: Option<Arc<dyn Sessions>>,
}

impl Conversations {
    /// How often a host may want to [`keep_clean`](Self::keep_clean).
    pub const CLEAN_EVERY: Duration = Duration::from_secs(60);

    /// The conversations of a store. An `Arc` of a store that others use, too, will do.
    pub fn new(store: impl MemoryStore + 'static) -> Self {
        Self {
            store: Arc::new(store),
            world: Arc::new(SystemWorld),
            turns: Arc::default(),
            expiry: Some(Duration::from_secs(30 * 24 * 60 * 60)),
            max_messages: 10_000,
            max_wait: Duration::from_secs(30),
            sessions: None,
        }
    }

    /// The clock for dates and waits; the system's by default.
    #[must_use]
    pub fn world(mut self, world: impl World + 'static) -> Self {
        self.world = Arc::new(world);
        self
    }

    /// After how long a conversation that was not changed is removed; 30 days by default.
    #[must_use]
    pub fn expire_after(mut self, time: Duration) -> Self {
        self.expiry = Some(time);
        self
    }

    /// Keeps conversations until they are forgotten.
    #[must_use]
    pub fn never_expire(mut self) -> Self {
        self.expiry = None;
        self
    }

    /// How many messages of a conversation are kept once they are in its summary; 10,000 by
    /// default. Of those that are not, twice as many.
    #[must_use]
    pub fn max_messages(mut self, count: u64) -> Self {
        self.max_messages = count;
        self
    }

    /// How long to wait for another process that has the conversation; 30 seconds by default.
    #[must_use]
    pub fn max_wait(mut self, time: Duration) -> Self {
        self.max_wait = time;
        self
    }

    /// Notes what each conversation is about, so that later ones can look back at it; nowhere by
    /// default. An agent does so at the end of each run. Forgetting a conversation forgets its
    /// note; one that expires leaves it.
    #[must_use]
    pub fn noted_in(mut self, sessions: impl Sessions + 'static) -> Self {
        self.sessions = Some(Arc::new(sessions));
        self
    }

    /// Where conversations are noted.
    pub fn sessions(&self) -> Option<&Arc<dyn Sessions>> {
        self.sessions.as_ref()
    }

    /// Where they are kept.
    pub fn store(&self) -> &Arc<dyn MemoryStore> {
        &self.store
    }

    /// A fresh id of 128 random bits: whoever does not know it cannot guess it.
    pub fn new_id(&self) -> ConversationId {
        ConversationId::random(&*self.world)
    }

    /// Waits until nobody else has the conversation, and loads at most `limit` of its last
    /// messages, beginning with no answer whose call was left out.
    ///
    /// Dropping the future, also while it waits, leaves everything as it was.
    ///
    /// # Errors
    /// [`Busy`](MemoryErrorKind::Busy) when another process still has it after
    /// [`max_wait`](Self::max_wait), and what the store fails with.
    pub async fn open(&self, id: &ConversationId, limit: usize) -> Result<Open, MemoryError> {
        let turn = Turn::take(&self.turns, id).await;
        let mut patience = Patience::new(self);
        loop {
            let hold = self.hold(id, &mut patience).await?;
            let mut remembered = self.store.load(id, limit).await?;
            let Some(moment) = self.expired(&remembered) else {
                remembered.first = self.bound(id, &remembered).await;
                shorten(&mut remembered);
                let conversations = self.clone();
                return Ok(Open {
                    id: id.clone(),
                    remembered,
                    conversations,
                    _hold: hold,
                    _turn: turn,
                });
            };
            // What is held is not removed, not even by its holder. Whoever comes between removes
            // it, too.
            drop(hold);
            self.remove(id, moment, &mut patience).await?;
        }
    }

    async fn hold(
        &self,
        id: &ConversationId,
        patience: &mut Patience<'_>,
    ) -> Result<Lease, MemoryError> {
        loop {
            match self.store.hold(id).await {
                Err(error) if error.kind() == MemoryErrorKind::Busy => patience.wait(error).await?,
                other => return other,
            }
        }
    }

    async fn remove(
        &self,
        id: &ConversationId,
        moment: Timestamp,
        patience: &mut Patience<'_>,
    ) -> Result<(), MemoryError> {
        match self.store.expire(id, moment).await {
            Err(error) if error.kind() == MemoryErrorKind::Busy => patience.wait(error).await,
            other => other.map(drop),
        }
    }

    /// Before which moment it would have had to be changed, when that is too long ago.
    fn expired(&self, remembered: &Remembered) -> Option<Timestamp> {
        self.deadline()
            .filter(|moment| is_expired(remembered.changed, *moment))
    }

    /// What was last changed before this is removed.
    fn deadline(&self) -> Option<Timestamp> {
        let age = u64::try_from(self.expiry?.as_millis()).unwrap_or(u64::MAX);
        Some(Timestamp::from_millis(
            self.world.now().as_millis().saturating_sub(age),
        ))
    }

    /// Trims what is too old, and says where the conversation begins then.
    async fn bound(&self, id: &ConversationId, remembered: &Remembered) -> u64 {
        let upto = remembered
            .summary
            .as_ref()
            .map_or(0, |summary| summary.upto);
        let end = remembered.end;
        let summarised = end.saturating_sub(self.max_messages).min(upto);
        let before = summarised.max(end.saturating_sub(self.max_messages.saturating_mul(2)));
        // A tenth at a time, since wiping costs more than the few messages of a run are worth.
        if before.saturating_sub(remembered.first) < (self.max_messages / 10).max(1) {
            return remembered.first;
        }
        // A conversation that is too long is better than none; it is tried again the next time.
        self.store
            .trim(id, before)
            .await
            .map_or(remembered.first, |()| before)
    }

    /// Waits until nobody else has the conversation, removes it, and says whether there was one.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn forget(&self, id: &ConversationId) -> Result<bool, MemoryError> {
        let _turn = Turn::take(&self.turns, id).await;
        let mut patience = Patience::new(self);
        let there = loop {
            match self.store.forget(id).await {
                Err(error) if error.kind() == MemoryErrorKind::Busy => patience.wait(error).await?,
                other => break other?,
            }
        };
        // Whoever had it until now may have noted it at the end.
        if let Some(sessions) = &self.sessions {
            sessions.forget(id).await?;
        }
        Ok(there)
    }

    /// The conversations there are; those that were changed longest ago first.
    ///
    /// # Errors
    /// What the store fails with.
    pub async fn list(
        &self,
        query: &ConversationQuery,
    ) -> Result<Vec<ConversationInfo>, MemoryError> {
        let (mut query, moment) = (query.clone(), self.deadline());
        let limit = query.limit.unwrap_or(usize::MAX);
        let mut found = Vec::new();
        loop {
            let page = self.store.list(&query).await?;
            let (full, last) = (page.len() >= limit, page.last().cloned());
            found.extend(
                page.into_iter()
                    .filter(|info| moment.is_none_or(|m| !is_expired(info.changed, m))),
            );
            found.truncate(limit);
            // Those that are too old are as good as gone, and others take their places.
            match last.filter(|_| full && found.len() < limit) {
                Some(last) => query = query.after(&last),
                None => return Ok(found),
            }
        }
    }

    /// Removes conversations that were not changed for too long. Those that somebody has are passed
    /// over.
    ///
    /// # Errors
    /// When the store cannot say what it has.
    pub async fn clean_up(&self) -> Result<MemoryCleanup, MemoryError> {
        clean::clean_up(self).await
    }

    /// Cleans up again and again, for ever, with this time between. A host runs it beside its work,
    /// and ends it by dropping it. What fails is tried again the next time.
    pub async fn keep_clean(&self, every: Duration) -> Infallible {
        loop {
            // There is nobody to tell; whoever wants to know calls `clean_up`.
            let _ = self.clean_up().await;
            self.world.sleep(every.max(Duration::from_millis(1))).await;
        }
    }
}

/// Leaves out what was trimmed since it was loaded, and answers whose calls were left out.
fn shorten(remembered: &mut Remembered) {
    let there = remembered.end.saturating_sub(remembered.first);
    let there = usize::try_from(there).unwrap_or(usize::MAX);
    let gone = remembered.messages.len().saturating_sub(there);
    remembered.messages.drain(..gone);
    align(&mut remembered.messages);
}

/// Whether a conversation is too old. Of one that does not say when it was changed, nobody knows.
fn is_expired(changed: Timestamp, moment: Timestamp) -> bool {
    changed != Timestamp::default() && changed < moment
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
