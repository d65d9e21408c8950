//! A conversation that a run holds.

use std::fmt;

use levity_core::{
    ConversationChange, ConversationId, Lease, LoadedConversation, MemoryError, Timestamp,
};

use super::{Conversations, QueueSlot};

/// A conversation that no other run can open until this value is dropped.
///
/// ```
/// use levity_core::{ConversationChange, Message, Summary};
/// use levity_memory::{Conversations, InMemory};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::MemoryError> {
/// let conversations = Conversations::new(InMemory::new());
/// let id = conversations.new_id();
/// let open = conversations.open(&id, 10).await?;
/// let messages = [Message::user("Good morning"), Message::assistant("Hello!")];
/// let change = ConversationChange::at(0).with_messages(messages);
/// open.save(change.with_summary(Summary::new("They met.", 2))).await?;
/// drop(open);
/// // The summary covers both messages, so none is loaded.
/// let again = conversations.open(&id, 10).await?;
/// assert_eq!((again.remembered().messages.len(), again.remembered().end), (0, 2));
/// # Ok(())
/// # }
/// ```
pub struct OpenConversation {
    pub(super) id: ConversationId,
    pub(super) remembered: LoadedConversation,
    pub(super) conversations: Conversations,
    // Field order matters: waiters in this process may only enter after the store's lease ends.
    pub(super) _lease: Lease,
    pub(super) _slot: QueueSlot,
}

impl OpenConversation {
    /// Returns the id of the conversation.
    pub fn id(&self) -> &ConversationId {
        &self.id
    }

    /// Returns the loaded summary and messages.
    pub fn remembered(&self) -> &LoadedConversation {
        &self.remembered
    }

    /// Moves the loaded summary and messages out, so that they are not in memory twice.
    pub fn take(&mut self) -> LoadedConversation {
        std::mem::take(&mut self.remembered)
    }

    /// Saves a change. A change without a date gets the current time.
    ///
    /// # Errors
    /// Returns the errors of the store.
    pub async fn save(&self, mut change: ConversationChange) -> Result<(), MemoryError> {
        if change.when == Timestamp::default() {
            change.when = self.conversations.world.now();
        }
        self.conversations.store.save(&self.id, &change).await
    }
}

impl fmt::Debug for OpenConversation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenConversation")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
