//! Notes on conversations: the interface between conversations and recall.

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
///
/// ```
/// use std::collections::BTreeMap;
/// use std::sync::Mutex;
///
/// use levity_core::{ConversationId, MemoryError};
/// use levity_memory::SessionNotes;
///
/// /// Notes in memory.
/// #[derive(Default)]
/// struct Notes(Mutex<BTreeMap<ConversationId, String>>);
///
/// #[async_trait::async_trait]
/// impl SessionNotes for Notes {
///     async fn save(&self, id: &ConversationId, text: &str) -> Result<(), MemoryError> {
///         self.0.lock().unwrap().insert(id.clone(), text.to_owned());
///         Ok(())
///     }
///
///     async fn forget(&self, id: &ConversationId) -> Result<(), MemoryError> {
///         self.0.lock().unwrap().remove(id);
///         Ok(())
///     }
/// }
/// ```
#[async_trait]
pub trait SessionNotes: Send + Sync {
    /// Records the current topic of a conversation.
    async fn save(&self, id: &ConversationId, text: &str) -> Result<(), MemoryError>;

    /// Removes the note of a conversation.
    async fn forget(&self, id: &ConversationId) -> Result<(), MemoryError>;
}
