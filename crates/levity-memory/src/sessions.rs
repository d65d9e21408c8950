use async_trait::async_trait;
use levity_core::{ConversationId, MemoryError};

/// Keeps a short note of each conversation, so that later ones can look back at it.
///
/// [`Recall::sessions`](crate::Recall::sessions) is one that is found by its words.
///
/// # Contract
/// - There is one note for each conversation; a new one takes its place.
/// - `forget` leaves nothing behind.
#[async_trait]
pub trait Sessions: Send + Sync {
    /// Notes what a conversation is about by now.
    async fn note(&self, id: &ConversationId, text: &str) -> Result<(), MemoryError>;

    /// Removes the note on a conversation.
    async fn forget(&self, id: &ConversationId) -> Result<(), MemoryError>;
}
