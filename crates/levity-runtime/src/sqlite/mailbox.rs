//! The posts of others for a run, on their way to the run's log.
//!
//! The writer's thread must not wait for a run, and a run must not touch the connection. So posts
//! pass through this queue, in the order of their numbers.

use std::sync::{Mutex, PoisonError};

use levity_core::{JournalError, RunRequest};
use tokio::sync::Notify;

/// A queue that the writer's thread fills and the log empties.
#[derive(Default)]
pub(super) struct Mailbox {
    inside: Mutex<Vec<Result<(i64, RunRequest), JournalError>>>,
    filled: Notify,
}

impl Mailbox {
    pub(super) fn put(
        &self,
        posts: impl IntoIterator<Item = Result<(i64, RunRequest), JournalError>>,
    ) {
        self.inside
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(posts);
        self.filled.notify_one();
    }

    /// Waits until there are posts, and removes them: the number of the last one, and all posts.
    pub(super) async fn take(&self) -> Result<(i64, Vec<RunRequest>), JournalError> {
        loop {
            if let Some(posts) = self.take_now()? {
                return Ok(posts);
            }
            self.filled.notified().await;
        }
    }

    /// Removes the posts, if there are any.
    pub(super) fn take_now(&self) -> Result<Option<(i64, Vec<RunRequest>)>, JournalError> {
        let inside =
            std::mem::take(&mut *self.inside.lock().unwrap_or_else(PoisonError::into_inner));
        let posts: Vec<_> = inside.into_iter().collect::<Result<_, _>>()?;
        let last = posts.last().map(|(last, _)| *last);
        Ok(last.map(|last| (last, posts.into_iter().map(|(_, post)| post).collect())))
    }
}
