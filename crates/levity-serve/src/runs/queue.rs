//! Runs that an earlier process left, taken up as there is room.

use std::sync::PoisonError;

use futures_util::future::BoxFuture;
use levity_core::{JournalErrorKind, RunId, RunQuery, RunState};
use tokio::runtime::Handle;

use super::{Runs, Whose};
use crate::error::{Error, Result};

impl Runs {
    /// Goes on with all runs that an earlier process left, oldest first. Those for which there is
    /// no room are queued, and taken up when others have ended. Says which could not be gone on
    /// with, and why; those of other processes are left to them.
    ///
    /// # Errors
    /// When the journal cannot be listed.
    pub async fn resume_all(&self) -> Result<Vec<(RunId, Error)>> {
        let mut failed = Vec::new();
        for state in [RunState::Open, RunState::Waiting] {
            let query = RunQuery::new().state(state).roots();
            for found in self.runtime().journal().list(&query).await? {
                match self.resume(&found.run).await {
                    Ok(_) => {}
                    Err(Error::Full { .. } | Error::JournalBusy { .. }) => self.enqueue(found.run),
                    Err(error) if is_elsewhere(&error) => {}
                    Err(error) => failed.push((found.run, error)),
                }
            }
        }
        // Some may have ended while the others were being queued.
        self.go_on().await;
        Ok(failed)
    }

    /// How many runs of an earlier process wait for a place; see [`resume_all`](Self::resume_all).
    pub fn queued(&self) -> usize {
        self.known().queue.len()
    }

    /// Whether a run is one of them.
    pub(crate) fn is_queued(&self, id: &RunId) -> bool {
        self.known().queue.contains(id)
    }

    fn enqueue(&self, run: RunId) {
        let mut known = self.known();
        if !known.queue.contains(&run) {
            known.queue.push_back(run);
        }
    }

    /// Takes up what is queued, as far as there is room.
    pub(super) fn go_on(&self) -> BoxFuture<'static, ()> {
        let runs = self.clone();
        Box::pin(async move {
            // Each is tried once: one that cannot be read now is tried again when the next place is
            // free.
            for _ in 0..runs.queued() {
                let Some((run, kept)) = runs.next_queued() else {
                    return;
                };
                match runs.resume_at(&run, Whose::Queue(kept)).await {
                    Err(Error::Full { .. }) => runs.enqueue(run),
                    Err(error) if error.is_retryable() && !is_elsewhere(&error) => {
                        runs.enqueue(run);
                    }
                    // Whoever asks for it by name is told why it does not go on.
                    _ => {}
                }
            }
        })
    }

    /// The same for somebody who does not wait.
    pub(super) fn go_on_soon(&self) {
        if self.queued() == 0 {
            return;
        }
        if let Ok(here) = Handle::try_current() {
            let going = self.go_on();
            self.inner
                .tasks
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .spawn_on(going, &here);
        }
    }

    /// The next in the queue, and a place that is kept for it.
    fn next_queued(&self) -> Option<(RunId, KeptPlace)> {
        let mut known = self.known();
        if known.live.len() + known.kept >= self.inner.settings.most {
            return None;
        }
        let run = known.queue.pop_front()?;
        known.kept += 1;
        Some((run, KeptPlace(self.clone())))
    }
}

/// A place that nobody else is given while a run is read from its journal.
pub(super) struct KeptPlace(Runs);

impl Drop for KeptPlace {
    fn drop(&mut self) {
        self.0.known().kept -= 1;
    }
}

fn is_elsewhere(error: &Error) -> bool {
    matches!(error, Error::Journal(error) if error.kind() == JournalErrorKind::Busy)
}
