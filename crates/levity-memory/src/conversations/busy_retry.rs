//! Waiting for another process that holds a conversation.
//!
//! A store cannot notify a waiter in another process, so the waiter asks again: after 5 ms, then
//! with doubled delays of up to 200 ms.

use std::time::Duration;

use levity_core::{MemoryError, World};

use super::Conversations;

/// The delay before the first retry; each further delay doubles, up to the maximum.
const FIRST_DELAY: Duration = Duration::from_millis(5);
const MAX_DELAY: Duration = Duration::from_millis(200);

/// The remaining time and the next delay while waiting for a busy conversation.
pub(super) struct BusyRetry<'a> {
    world: &'a dyn World,
    remaining: Duration,
    next: Duration,
}

impl<'a> BusyRetry<'a> {
    pub(super) fn new(conversations: &'a Conversations) -> Self {
        Self {
            world: &*conversations.world,
            remaining: conversations.max_wait,
            next: FIRST_DELAY,
        }
    }

    /// Sleeps before the next retry, or returns `error` when the time is up.
    pub(super) async fn wait(&mut self, error: MemoryError) -> Result<(), MemoryError> {
        if self.remaining.is_zero() {
            return Err(error);
        }
        let delay = self.next.min(self.remaining);
        self.world.sleep(delay).await;
        self.remaining -= delay;
        self.next = (self.next * 2).min(MAX_DELAY);
        Ok(())
    }
}
