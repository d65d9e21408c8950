use async_trait::async_trait;
use levity_core::{ConversationId, MemoryError};

/// A store of one short note per conversation, for later conversations to look up.
///
/// [`Recall::sessions`](crate::Recall::sessions) is an implementation that finds notes by their
/// words.
///
/// # Contract
/// - Each conversation has at most one note; a new note replaces the old one.
/// - `forget` leaves no data of the note behind.
#[async_trait]
pub trait SessionNotes: Send + Sync {
    /// Records the current topic of a conversation.
    async fn save(&self, id: &ConversationId, text: &str) -> Result<(), MemoryError>;

    /// Removes the note of a conversation.
    async fn forget(&self, id: &ConversationId) -> Result<(), MemoryError>;
}
