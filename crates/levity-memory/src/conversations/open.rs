use std::fmt;

use levity_core::{ConversationChange, ConversationId, Lease, MemoryError, Remembered, Timestamp};

use super::{Conversations, QueueSlot};

/// A conversation that no other run can open until this value is dropped.
pub struct Open {
    pub(super) id: ConversationId,
    pub(super) remembered: Remembered,
    pub(super) conversations: Conversations,
    // Field order matters: waiters in this process may only enter after the store's lease ends.
    pub(super) _lease: Lease,
    pub(super) _slot: QueueSlot,
}

impl Open {
    /// Returns the id of the conversation.
    pub fn id(&self) -> &ConversationId {
        &self.id
    }

    /// Returns the loaded summary and messages.
    pub fn remembered(&self) -> &Remembered {
        &self.remembered
    }

    /// Moves the loaded summary and messages out, so that they are not in memory twice.
    pub fn take(&mut self) -> Remembered {
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

impl fmt::Debug for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Open")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
