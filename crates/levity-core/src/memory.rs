use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{ConversationEnd, ConversationId, Message, SharedError, Timestamp};

/// Stores the messages of conversations.
///
/// The messages of a conversation have positions that count upwards from 0 and never change, even
/// after trimming.
///
/// # Contract
/// - Messages are returned byte for byte as they were saved, and in that order.
/// - A save is atomic, even if the process ends during it, and visible to every call that begins
///   after it returned. Repeating a save changes nothing; the store recognizes it by its messages
///   and the end of its summary. A save that changes nothing creates no conversation.
/// - A save at another position than the conversation's end, if it was not made before, fails with
///   [`Moved`](MemoryErrorKind::Moved) and changes nothing: two writers never interleave.
/// - A summary of messages that do not exist yet is [`Refused`](MemoryErrorKind::Refused).
/// - The time of the last change of a conversation never goes backwards.
/// - The cost of loading and reading depends on what they return, not on the size of the
///   conversation, unless the store documents otherwise.
/// - An unknown conversation is empty, not an error.
/// - Damaged data causes an error and is left unchanged.
/// - `forget` leaves nothing behind.
///
/// Use `levity_test::conformance::memory_store` to check an implementation.
///
/// `levity-memory` has implementations in memory, in files and in SQLite. A program uses any of
/// them through this trait:
///
/// ```
/// use levity_core::{ConversationChange, ConversationId, MemoryError, MemoryStore, Message};
///
/// /// Adds a message at the end of a conversation and returns its position.
/// async fn add(
///     store: &dyn MemoryStore,
///     id: &ConversationId,
///     message: Message,
/// ) -> Result<u64, MemoryError> {
///     let _lease = store.hold(id).await?;
///     let end = store.load(id, 0).await?.end;
///     store.save(id, &ConversationChange::at(end).with_messages([message])).await?;
///     Ok(end)
/// }
/// ```
#[async_trait]
pub trait MemoryStore: Send + Sync {
    /// Returns the summary, the end of the conversation and its last messages: at most `limit`, and
    /// none that the summary covers.
    async fn load(
        &self,
        id: &ConversationId,
        limit: usize,
    ) -> Result<LoadedConversation, MemoryError>;

    /// Returns at most `limit` messages from a position on, oldest first, without those that were
    /// trimmed.
    async fn read(
        &self,
        id: &ConversationId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Arc<Message>)>, MemoryError>;

    /// Appends the messages of `change` and replaces the summary, as far as `change` has them.
    async fn save(
        &self,
        id: &ConversationId,
        change: &ConversationChange,
    ) -> Result<(), MemoryError>;

    /// Returns at most `limit` messages that match `query` with their positions, best match first.
    async fn search(
        &self,
        id: &ConversationId,
        query: &str,
        limit: usize,
    ) -> Result<Vec<(u64, Arc<Message>)>, MemoryError>;

    /// Deletes the messages before a position; the summary and all positions remain.
    async fn trim(&self, id: &ConversationId, before: u64) -> Result<(), MemoryError>;

    /// Deletes the conversation and returns `true` if it existed. It fails with
    /// [`Busy`](MemoryErrorKind::Busy) if the conversation is held.
    async fn forget(&self, id: &ConversationId) -> Result<bool, MemoryError>;

    /// Deletes the conversation if it was last changed before `unchanged_since`, and returns `true`
    /// if it did. It fails with [`Busy`](MemoryErrorKind::Busy) if the conversation is held. The
    /// check and the deletion are atomic.
    async fn expire(
        &self,
        id: &ConversationId,
        unchanged_since: Timestamp,
    ) -> Result<bool, MemoryError>;

    /// Lists the conversations that `query` selects, the least recently changed first.
    async fn list(&self, query: &ConversationQuery) -> Result<Vec<ConversationInfo>, MemoryError>;

    /// Acquires a lease on the conversation. Until the lease is dropped, other holders in any
    /// process get [`Busy`](MemoryErrorKind::Busy). The end of a process releases its leases. Any
    /// save or trim of the previous holder has then completed or will never happen, even if its
    /// future was dropped.
    async fn hold(&self, id: &ConversationId) -> Result<Lease, MemoryError>;
}

macro_rules! forward_memory {
    ($($pointer:ty),*) => {$(
        #[async_trait]
        #[deny(clippy::missing_trait_methods)]
        impl<S: MemoryStore + ?Sized> MemoryStore for $pointer {
            async fn load(
                &self,
                id: &ConversationId,
                limit: usize,
            ) -> Result<LoadedConversation, MemoryError> {
                (**self).load(id, limit).await
            }

            async fn read(
                &self,
                id: &ConversationId,
                from: u64,
                limit: usize,
            ) -> Result<Vec<(u64, Arc<Message>)>, MemoryError> {
                (**self).read(id, from, limit).await
            }

            async fn save(
                &self,
                id: &ConversationId,
                change: &ConversationChange,
            ) -> Result<(), MemoryError> {
                (**self).save(id, change).await
            }

            async fn search(
                &self,
                id: &ConversationId,
                query: &str,
                limit: usize,
            ) -> Result<Vec<(u64, Arc<Message>)>, MemoryError> {
                (**self).search(id, query, limit).await
            }

            async fn trim(&self, id: &ConversationId, before: u64) -> Result<(), MemoryError> {
                (**self).trim(id, before).await
            }

            async fn forget(&self, id: &ConversationId) -> Result<bool, MemoryError> {
                (**self).forget(id).await
            }

            async fn expire(
                &self,
                id: &ConversationId,
                unchanged_since: Timestamp,
            ) -> Result<bool, MemoryError> {
                (**self).expire(id, unchanged_since).await
            }

            async fn list(
                &self,
                query: &ConversationQuery,
            ) -> Result<Vec<ConversationInfo>, MemoryError> {
                (**self).list(query).await
            }

            async fn hold(&self, id: &ConversationId) -> Result<Lease, MemoryError> {
                (**self).hold(id).await
            }
        }
    )*};
}

forward_memory!(Arc<S>, Box<S>);

/// The loaded part of a stored conversation.
///
/// ```
/// # use std::sync::Arc;
/// # use levity_core::{LoadedConversation, Message, Summary};
/// let last = vec![Arc::new(Message::user("And tomorrow?"))];
/// let loaded = LoadedConversation::new(Some(Summary::new("They spoke of tides.", 8)), last, 9);
/// assert_eq!(loaded.end, 9); // a save continues here: `ConversationChange::at(9)`
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LoadedConversation {
    /// The summary of the oldest messages, if there is one.
    pub summary: Option<Summary>,
    /// The last messages, oldest first.
    pub messages: Vec<Arc<Message>>,
    /// The position of the next message, which is the number of messages ever saved.
    pub end: u64,
    /// The position of the first remaining message; those before it were trimmed.
    #[serde(default)]
    pub first: u64,
    /// The time of the last change.
    #[serde(default)]
    pub changed: Timestamp,
}

impl LoadedConversation {
    /// Creates the loaded end of a conversation.
    pub fn new(summary: Option<Summary>, messages: Vec<Arc<Message>>, end: u64) -> Self {
        Self {
            summary,
            messages,
            end,
            ..Self::default()
        }
    }

    /// Sets the position of the first remaining message.
    #[must_use]
    pub fn with_first(mut self, first: u64) -> Self {
        self.first = first;
        self
    }

    /// Sets the time of the last change.
    #[must_use]
    pub fn with_changed(mut self, changed: Timestamp) -> Self {
        self.changed = changed;
        self
    }
}

/// The summary of the oldest messages of a conversation.
///
/// ```
/// # use levity_core::Summary;
/// let summary = Summary::new("They met.", 2);
/// assert_eq!(summary.upto, 2); // it covers the messages 0 and 1
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Summary {
    /// The text of the summary.
    pub text: Arc<str>,
    /// The position of the first message that is not covered.
    pub upto: u64,
}

impl Summary {
    /// Creates a summary of all messages before `upto`.
    pub fn new(text: impl Into<Arc<str>>, upto: u64) -> Self {
        Self {
            text: text.into(),
            upto,
        }
    }
}

/// A change that is saved in one step.
///
/// ```
/// # use levity_core::{ConversationChange, Message, Summary};
/// let change = ConversationChange::at(4)
///     .with_messages([Message::user("Good morning")])
///     .with_summary(Summary::new("They met.", 2));
/// assert_eq!(change.end(), 5);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ConversationChange {
    /// The position of the first message, which is the end of the conversation.
    pub at: u64,
    /// The messages to append.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<Arc<Message>>,
    /// The new summary; without it, the old one remains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
    /// The time of the change.
    #[serde(default)]
    pub when: Timestamp,
}

impl ConversationChange {
    /// Creates an empty change at a position.
    pub fn at(at: u64) -> Self {
        Self {
            at,
            ..Self::default()
        }
    }

    /// Adds messages to append.
    #[must_use]
    pub fn with_messages(
        mut self,
        messages: impl IntoIterator<Item = impl Into<Arc<Message>>>,
    ) -> Self {
        self.messages.extend(messages.into_iter().map(Into::into));
        self
    }

    /// Sets the new summary.
    #[must_use]
    pub fn with_summary(mut self, summary: Summary) -> Self {
        self.summary = Some(summary);
        self
    }

    /// Sets the time of the change.
    #[must_use]
    pub fn when(mut self, when: Timestamp) -> Self {
        self.when = when;
        self
    }

    /// Returns the end of the conversation after the change.
    ///
    /// ```
    /// # use levity_core::{ConversationChange, Message};
    /// let change = ConversationChange::at(4).with_messages([Message::user("Good morning")]);
    /// assert_eq!(change.end(), 5);
    /// ```
    pub fn end(&self) -> u64 {
        self.at.saturating_add(self.messages.len() as u64)
    }

    /// Returns `true` if the change is empty.
    ///
    /// ```
    /// # use levity_core::{ConversationChange, Message};
    /// let change = ConversationChange::at(4);
    /// assert!(change.is_empty());
    /// assert!(!change.with_messages([Message::user("Good morning")]).is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.summary.is_none()
    }
}

/// A filter for listing conversations.
///
/// ```
/// # use levity_core::{ConversationInfo, ConversationQuery, Timestamp};
/// let last = ConversationInfo::new("c7".into(), Timestamp::from_millis(500), 0, 12);
/// let next_page = ConversationQuery::new().after(&last).limit(100);
/// assert_eq!(next_page.after, Some((Timestamp::from_millis(500), "c7".into())));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConversationQuery {
    /// Selects only conversations last changed before this time.
    pub unchanged_since: Option<Timestamp>,
    /// Selects only conversations that follow this one.
    pub after: Option<(Timestamp, ConversationId)>,
    /// The maximum number of conversations.
    pub limit: Option<usize>,
}

impl ConversationQuery {
    /// Creates a query for all conversations.
    pub fn new() -> Self {
        Self::default()
    }

    /// Selects only conversations last changed before `moment`.
    #[must_use]
    pub fn unchanged_since(mut self, moment: Timestamp) -> Self {
        self.unchanged_since = Some(moment);
        self
    }

    /// Selects only conversations that follow `last`, to page through a long list.
    #[must_use]
    pub fn after(mut self, last: &ConversationInfo) -> Self {
        self.after = Some((last.changed, last.id.clone()));
        self
    }

    /// Limits the number of conversations.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }
}

/// The properties of a conversation that a store knows without reading it.
///
/// ```
/// # use levity_core::{ConversationInfo, Timestamp};
/// let info = ConversationInfo::new("c7".into(), Timestamp::default(), 4, 12);
/// assert_eq!(info.end - info.first, 8); // the number of messages that were not trimmed
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ConversationInfo {
    /// The id of the conversation.
    pub id: ConversationId,
    /// The time of the last change.
    pub changed: Timestamp,
    /// The position of the first remaining message.
    pub first: u64,
    /// The position of the next message.
    pub end: u64,
}

impl ConversationInfo {
    /// Creates the description of a conversation.
    pub fn new(id: ConversationId, changed: Timestamp, first: u64, end: u64) -> Self {
        Self {
            id,
            changed,
            first,
            end,
        }
    }
}

/// A lease on a conversation. Dropping it releases the conversation.
///
/// ```
/// use std::sync::{Arc, Mutex};
///
/// use levity_core::{ConversationEnd, Lease};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let topic = Arc::new(Mutex::new(String::new()));
/// let seen = topic.clone();
/// let lease = Lease::new("the lock of the store").at_end(move |end| async move {
///     *seen.lock().unwrap() = end.about;
/// });
/// lease.release(Some(Box::new(ConversationEnd::new("c1".into(), "tides")))).await;
/// assert_eq!(*topic.lock().unwrap(), "tides");
/// # }
/// ```
pub struct Lease {
    end: Option<AtEnd>,
    _guard: Box<dyn Any + Send + Sync>,
}

type AtEnd =
    Box<dyn FnOnce(ConversationEnd) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

impl Lease {
    /// Creates a lease that is released by dropping `guard`.
    pub fn new(guard: impl Any + Send + Sync) -> Self {
        Self {
            end: None,
            _guard: Box::new(guard),
        }
    }

    /// Sets work to do for a run that has ended, while the conversation is still held: see
    /// [`Ending::conversation_end`](crate::Ending::conversation_end). Its failures are not
    /// reported; the run's own ending is more informative.
    #[must_use]
    pub fn at_end<F: Future<Output = ()> + Send + 'static>(
        mut self,
        end: impl FnOnce(ConversationEnd) -> F + Send + Sync + 'static,
    ) -> Self {
        self.end = Some(Box::new(move |talk| Box::pin(end(talk))));
        self
    }

    /// Does the work that a finished run left for its conversation, then releases the lease.
    pub async fn release(mut self, rest: Option<Box<ConversationEnd>>) {
        if let (Some(end), Some(talk)) = (self.end.take(), rest) {
            end(*talk).await;
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lease")
    }
}

/// The kind of a memory store error.
///
/// ```
/// # use levity_core::{MemoryError, MemoryErrorKind};
/// let moved = MemoryError::moved(&"c1".into(), 4, 6);
/// assert_eq!(moved.kind(), MemoryErrorKind::Moved);
/// assert!(!moved.is_retryable(), "load the conversation first");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MemoryErrorKind {
    /// Another holder has the conversation, or is writing at the moment.
    Busy,
    /// The conversation continued elsewhere; nothing was saved.
    Moved,
    /// The store cannot accept a conversation of this name, or the data to save.
    Refused,
    /// The store is full; delete something first.
    Full,
    /// The stored data cannot be read; it is left unchanged.
    Damaged,
    /// A newer version wrote the data; it is left unchanged.
    Version,
    /// Reading or writing failed.
    Io,
}

/// The error of a memory store operation.
///
/// ```
/// # use levity_core::MemoryError;
/// let busy = MemoryError::busy(&"c1".into());
/// assert_eq!(busy.to_string(), "conversation `c1` is in use elsewhere");
/// assert!(busy.is_retryable());
/// ```
#[derive(Clone, Debug, PartialEq, thiserror::Error, Serialize, Deserialize)]
#[error("{message}")]
#[non_exhaustive]
pub struct MemoryError {
    kind: MemoryErrorKind,
    message: String,
    #[source]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cause: Option<SharedError>,
}

impl MemoryError {
    /// Creates an error of this kind.
    pub fn new(kind: MemoryErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            cause: None,
        }
    }

    /// Creates the error of a conversation that another holder has.
    pub fn busy(id: &ConversationId) -> Self {
        Self::new(
            MemoryErrorKind::Busy,
            format!("conversation `{id}` is in use elsewhere"),
        )
    }

    /// Creates the error of a save at another position than the conversation's end.
    pub fn moved(id: &ConversationId, at: u64, end: u64) -> Self {
        let message = format!(
            "conversation `{id}` has {end} messages, not {at}: it continued elsewhere; load it \
             again"
        );
        Self::new(MemoryErrorKind::Moved, message)
    }

    /// Creates the error of stored data that cannot be read.
    pub fn damaged(id: &ConversationId, what: &str) -> Self {
        let message = format!(
            "the stored conversation `{id}` is damaged and was left unchanged: {what}; restore it \
             from a copy"
        );
        Self::new(MemoryErrorKind::Damaged, message)
    }

    /// Adds the cause of the error.
    #[must_use]
    pub fn with_source(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        self.cause = Some(SharedError::new(source));
        self
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> MemoryErrorKind {
        self.kind
    }

    /// Returns `true` if the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind, MemoryErrorKind::Busy | MemoryErrorKind::Io)
    }
}
