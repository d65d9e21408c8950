//! What others have left for a run, on its way to the run's log.

use std::sync::{Mutex, PoisonError};

use levity_core::{JournalError, RunRequest};
use tokio::sync::Notify;

/// Filled by the writer's thread, emptied by the log.
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

    /// Waits until there is something, and takes it out: the number of the last post, and all
    /// posts.
    pub(super) async fn take(&self) -> Result<(i64, Vec<RunRequest>), JournalError> {
        loop {
            if let Some(posts) = self.take_now()? {
                return Ok(posts);
            }
            self.filled.notified().await;
        }
    }

    /// Takes out what there is, if there is something.
    pub(super) fn take_now(&self) -> Result<Option<(i64, Vec<RunRequest>)>, JournalError> {
        let inside =
            std::mem::take(&mut *self.inside.lock().unwrap_or_else(PoisonError::into_inner));
        let posts: Vec<_> = inside.into_iter().collect::<Result<_, _>>()?;
        let last = posts.last().map(|(last, _)| *last);
        Ok(last.map(|last| (last, posts.into_iter().map(|(_, post)| post).collect())))
    }
}
