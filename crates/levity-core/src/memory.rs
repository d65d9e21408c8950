use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{ConversationId, Message, SharedError, TalkEnd, Timestamp};

/// Keeps conversations.
///
/// The messages of a conversation stand at positions that count upwards from 0 and never change,
/// whatever is trimmed later.
///
/// # Contract
/// - Messages come back as they were saved, to the byte, and in that order.
/// - A save is whole or not at all, also when the process ends half-way, and visible to every call
///   that begins after it returned. Making the same save again changes nothing; it is known again
///   by its messages, and by how far its summary goes. One that changes nothing makes no
///   conversation.
/// - A save that stands at another position than the conversation's end, and was not made before,
///   fails with [`Moved`](MemoryErrorKind::Moved) and changes nothing: two writers never
///   interleave.
/// - A summary of messages that are not there yet is [`Refused`](MemoryErrorKind::Refused).
/// - What a conversation says of when it was changed never goes backwards.
/// - Loading and reading cost what they return, not what the conversation holds, unless the store
///   says otherwise.
/// - An unknown conversation is an empty one, not an error.
/// - What is damaged is refused and kept as it is.
/// - `forget` leaves nothing behind.
///
/// `levity_test::conformance::memory_store` checks an implementation.
#[async_trait]
pub trait MemoryStore: Send + Sync {
    /// The summary, where the conversation ends, and its last messages: at most `limit`, and none
    /// that are in the summary already.
    async fn load(&self, id: &ConversationId, limit: usize) -> Result<Remembered, MemoryError>;

    /// At most `limit` messages from a position on, oldest first; those that were trimmed are left
    /// out.
    async fn read(
        &self,
        id: &ConversationId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Arc<Message>)>, MemoryError>;

    /// Adds messages at the end and replaces the summary, as far as `change` has them.
    async fn save(
        &self,
        id: &ConversationId,
        change: &ConversationChange,
    ) -> Result<(), MemoryError>;

    /// At most `limit` messages that have to do with `query`, best first, with their positions.
    async fn search(
        &self,
        id: &ConversationId,
        query: &str,
        limit: usize,
    ) -> Result<Vec<(u64, Arc<Message>)>, MemoryError>;

    /// Removes the messages before a position; the summary and all positions stay.
    async fn trim(&self, id: &ConversationId, before: u64) -> Result<(), MemoryError>;

    /// Removes the conversation and says whether there was one. One that somebody holds is
    /// [`Busy`](MemoryErrorKind::Busy).
    async fn forget(&self, id: &ConversationId) -> Result<bool, MemoryError>;

    /// Removes the conversation if it was last changed before a moment, and says whether it did.
    /// One that somebody holds is [`Busy`](MemoryErrorKind::Busy). Nobody comes between the look
    /// and the removal.
    async fn expire(
        &self,
        id: &ConversationId,
        unchanged_since: Timestamp,
    ) -> Result<bool, MemoryError>;

    /// The conversations that `query` asks for; those that were changed longest ago first.
    async fn list(&self, query: &ConversationQuery) -> Result<Vec<ConversationInfo>, MemoryError>;

    /// Holds the conversation until what is returned is dropped: whoever else wants to hold it,
    /// here or in another process, finds it [`Busy`](MemoryErrorKind::Busy). A process that ends
    /// lets go of what it held. A save or trim of whoever held it before is done by then, or never
    /// will be, also if its future was dropped.
    async fn hold(&self, id: &ConversationId) -> Result<Lease, MemoryError>;
}

macro_rules! forward_memory {
    ($($pointer:ty),*) => {$(
        #[async_trait]
        #[deny(clippy::missing_trait_methods)]
        impl<S: MemoryStore + ?Sized> MemoryStore for $pointer {
            async fn load(&self, id: &ConversationId, limit: usize) -> Result<Remembered, MemoryError> {
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

            async fn save(&self, id: &ConversationId, change: &ConversationChange) -> Result<(), MemoryError> {
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

            async fn list(&self, query: &ConversationQuery) -> Result<Vec<ConversationInfo>, MemoryError> {
                (**self).list(query).await
            }

            async fn hold(&self, id: &ConversationId) -> Result<Lease, MemoryError> {
                (**self).hold(id).await
            }
        }
    )*};
}

forward_memory!(Arc<S>, Box<S>);

/// What a store has of a conversation, as far as it was asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Remembered {
    /// What stands for the oldest messages, if a summary was made.
    pub summary: Option<Summary>,
    /// The last messages, oldest first.
    pub messages: Vec<Arc<Message>>,
    /// The position of the message that comes next: how many there ever were.
    pub end: u64,
    /// The position of the first message that is still there; those before it were trimmed.
    #[serde(default)]
    pub first: u64,
    /// When it was last changed.
    #[serde(default)]
    pub changed: Timestamp,
}

impl Remembered {
    /// The end of a conversation.
    pub fn new(summary: Option<Summary>, messages: Vec<Arc<Message>>, end: u64) -> Self {
        Self {
            summary,
            messages,
            end,
            ..Self::default()
        }
    }

    /// Says where it begins since it was trimmed.
    #[must_use]
    pub fn with_first(mut self, first: u64) -> Self {
        self.first = first;
        self
    }

    /// Says when it was last changed.
    #[must_use]
    pub fn with_changed(mut self, changed: Timestamp) -> Self {
        self.changed = changed;
        self
    }
}

/// What stands for the oldest messages of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Summary {
    /// In words.
    pub text: Arc<str>,
    /// The position of the first message that is not in it.
    pub upto: u64,
}

impl Summary {
    /// A summary of all messages before `upto`.
    pub fn new(text: impl Into<Arc<str>>, upto: u64) -> Self {
        Self {
            text: text.into(),
            upto,
        }
    }
}

/// What is saved in one go.
///
/// ```
/// # use levity_core::{ConversationChange, Message, Summary};
/// let change = ConversationChange::at(4).with_messages([Message::user("Good morning")]).with_summary(Summary::new("They met.", 2));
/// assert_eq!(change.end(), 5);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ConversationChange {
    /// The position of the first of the messages: where the conversation ends.
    pub at: u64,
    /// The messages to add.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<Arc<Message>>,
    /// The summary from now on; the old one stays without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
    /// When.
    #[serde(default)]
    pub when: Timestamp,
}

impl ConversationChange {
    /// Nothing yet, at a position.
    pub fn at(at: u64) -> Self {
        Self {
            at,
            ..Self::default()
        }
    }

    /// Adds messages.
    #[must_use]
    pub fn with_messages(
        mut self,
        messages: impl IntoIterator<Item = impl Into<Arc<Message>>>,
    ) -> Self {
        self.messages.extend(messages.into_iter().map(Into::into));
        self
    }

    /// Replaces the summary.
    #[must_use]
    pub fn with_summary(mut self, summary: Summary) -> Self {
        self.summary = Some(summary);
        self
    }

    /// Says when.
    #[must_use]
    pub fn when(mut self, when: Timestamp) -> Self {
        self.when = when;
        self
    }

    /// Where the conversation ends after it.
    pub fn end(&self) -> u64 {
        self.at.saturating_add(self.messages.len() as u64)
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.summary.is_none()
    }
}

/// Which conversations are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConversationQuery {
    /// Only those that were last changed before.
    pub unchanged_since: Option<Timestamp>,
    /// Only those that come after this one.
    pub after: Option<(Timestamp, ConversationId)>,
    /// So many at most.
    pub limit: Option<usize>,
}

impl ConversationQuery {
    /// All of them.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only those that were last changed before `moment`.
    #[must_use]
    pub fn unchanged_since(mut self, moment: Timestamp) -> Self {
        self.unchanged_since = Some(moment);
        self
    }

    /// Only those that come after `last`, to go on with a long list.
    #[must_use]
    pub fn after(mut self, last: &ConversationInfo) -> Self {
        self.after = Some((last.changed, last.id.clone()));
        self
    }

    /// So many at most.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }
}

/// What a store knows of a conversation without reading it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ConversationInfo {
    /// Which.
    pub id: ConversationId,
    /// When it was last changed.
    pub changed: Timestamp,
    /// The position of the first message that is still there.
    pub first: u64,
    /// The position of the message that comes next.
    pub end: u64,
}

impl ConversationInfo {
    /// A conversation with these messages.
    pub fn new(id: ConversationId, changed: Timestamp, first: u64, end: u64) -> Self {
        Self {
            id,
            changed,
            first,
            end,
        }
    }
}

/// A conversation that is held. Dropping it lets go.
pub struct Lease {
    end: Option<AtEnd>,
    _guard: Box<dyn Any + Send + Sync>,
}

type AtEnd = Box<dyn FnOnce(TalkEnd) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

impl Lease {
    /// Lets go by dropping `guard`.
    pub fn new(guard: impl Any + Send + Sync) -> Self {
        Self {
            end: None,
            _guard: Box::new(guard),
        }
    }

    /// Has this done for a run that has ended, while the conversation is still held: see
    /// [`Ending::talk`](crate::Ending::talk). Nobody learns of its failures; the run's own end says
    /// more.
    #[must_use]
    pub fn at_end<F: Future<Output = ()> + Send + 'static>(
        mut self,
        end: impl FnOnce(TalkEnd) -> F + Send + Sync + 'static,
    ) -> Self {
        self.end = Some(Box::new(move |talk| Box::pin(end(talk))));
        self
    }

    /// Does what a run that has ended left for its conversation, and then lets go.
    pub async fn release(mut self, left: Option<Box<TalkEnd>>) {
        if let (Some(end), Some(talk)) = (self.end.take(), left) {
            end(*talk).await;
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lease")
    }
}

/// What is wrong with a store, or with what was asked of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MemoryErrorKind {
    /// Somebody else holds the conversation, or writes at this moment.
    Busy,
    /// The conversation has gone on elsewhere meanwhile; nothing was saved.
    Moved,
    /// The store cannot keep a conversation of this name, or what was to be saved in it.
    Refused,
    /// There is no room for more; something has to be forgotten first.
    Full,
    /// What is stored cannot be read; it is left as it is.
    Damaged,
    /// It was written by a newer version; it is left as it is.
    Version,
    /// Reading or writing failed.
    Io,
}

/// Why a store could not do its work.
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
    /// An error of this kind.
    pub fn new(kind: MemoryErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            cause: None,
        }
    }

    /// Somebody else holds the conversation.
    pub fn busy(id: &ConversationId) -> Self {
        Self::new(
            MemoryErrorKind::Busy,
            format!("conversation `{id}` is in use elsewhere"),
        )
    }

    /// The conversation ends elsewhere than whoever saves it thought.
    pub fn moved(id: &ConversationId, at: u64, end: u64) -> Self {
        let message = format!(
            "conversation `{id}` has {end} messages, not {at}: it went on elsewhere; load it anew"
        );
        Self::new(MemoryErrorKind::Moved, message)
    }

    /// What is stored cannot be read.
    pub fn damaged(id: &ConversationId, what: &str) -> Self {
        let message =
            format!("the stored conversation `{id}` is damaged and was left as it is: {what}");
        Self::new(MemoryErrorKind::Damaged, message)
    }

    /// Adds what it came from.
    #[must_use]
    pub fn with_source(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        self.cause = Some(SharedError::new(source));
        self
    }

    /// What kind of error it is.
    pub fn kind(&self) -> MemoryErrorKind {
        self.kind
    }

    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind, MemoryErrorKind::Busy | MemoryErrorKind::Io)
    }
}
