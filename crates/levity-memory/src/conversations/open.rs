use std::fmt;

use levity_core::{ConversationChange, ConversationId, Lease, MemoryError, Remembered, Timestamp};

use super::{Conversations, Turn};

/// A conversation that nobody else has until this is dropped.
pub struct Open {
    pub(super) id: ConversationId,
    pub(super) remembered: Remembered,
    pub(super) conversations: Conversations,
    // Others in this process get their turn when the store has been let go of.
    pub(super) _hold: Lease,
    pub(super) _turn: Turn,
}

impl Open {
    /// Which.
    pub fn id(&self) -> &ConversationId {
        &self.id
    }

    /// What was loaded.
    pub fn remembered(&self) -> &Remembered {
        &self.remembered
    }

    /// Takes what was loaded out of it, so that nothing is kept twice.
    pub fn take(&mut self) -> Remembered {
        std::mem::take(&mut self.remembered)
    }

    /// Saves a change; one that does not say when is made now.
    ///
    /// # Errors
    /// What the store fails with.
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
