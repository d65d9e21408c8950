//! Waiting for another process.

use std::time::Duration;

use levity_core::{MemoryError, World};

use super::Conversations;

/// How soon to look again whether another process has let go; longer each time, up to the second.
const FIRST_LOOK: Duration = Duration::from_millis(5);
const LAST_LOOK: Duration = Duration::from_millis(200);

/// How long there is still to wait.
pub(super) struct Patience<'a> {
    world: &'a dyn World,
    left: Duration,
    next: Duration,
}

impl<'a> Patience<'a> {
    pub(super) fn new(conversations: &'a Conversations) -> Self {
        Self {
            world: &*conversations.world,
            left: conversations.max_wait,
            next: FIRST_LOOK,
        }
    }

    /// Waits a little, or fails when the time is up.
    pub(super) async fn wait(&mut self, error: MemoryError) -> Result<(), MemoryError> {
        if self.left.is_zero() {
            return Err(error);
        }
        let time = self.next.min(self.left);
        self.world.sleep(time).await;
        self.left -= time;
        self.next = (self.next * 2).min(LAST_LOOK);
        Ok(())
    }
}
