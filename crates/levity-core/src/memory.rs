use std::sync::Arc;

use async_trait::async_trait;

use crate::{Cause, ConversationId, Message};

/// Keeps conversations.
///
/// # Contract
/// - Messages come back as they were appended, and in that order.
/// - An append is whole or not at all, and visible to every call that begins after it returned.
/// - An unknown conversation is an empty one, not an error.
/// - `forget` leaves nothing behind.
///
/// `levity_test::conformance::memory_store` checks an implementation.
#[async_trait]
pub trait MemoryStore: Send + Sync {
    /// Adds messages at the end.
    async fn append(&self, id: &ConversationId, messages: &[Arc<Message>]) -> Result<(), MemoryError>;

    /// The last `limit` messages, oldest first.
    async fn recent(&self, id: &ConversationId, limit: usize) -> Result<Vec<Arc<Message>>, MemoryError>;

    /// The summary of what is older, if one was made.
    async fn summary(&self, id: &ConversationId) -> Result<Option<String>, MemoryError>;

    /// Replaces the summary.
    async fn set_summary(&self, id: &ConversationId, summary: &str) -> Result<(), MemoryError>;

    /// Removes the conversation.
    async fn forget(&self, id: &ConversationId) -> Result<(), MemoryError>;

    /// At most `limit` messages that have to do with `query`, best first.
    async fn search(
        &self,
        id: &ConversationId,
        query: &str,
        limit: usize,
    ) -> Result<Vec<Arc<Message>>, MemoryError>;
}

/// Why a store could not do its work.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// What is stored cannot be read; it is left as it is.
    #[error("the stored conversation `{id}` is damaged")]
    Damaged {
        /// The conversation.
        id: ConversationId,
        /// What was found.
        #[source]
        cause: Cause,
    },
    /// Somebody else holds the store.
    #[error("the store is in use elsewhere")]
    Busy,
    /// Reading or writing failed.
    #[error("the store could not be read or written")]
    Io(#[source] Cause),
}

impl MemoryError {
    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Busy | Self::Io(_))
    }
}
