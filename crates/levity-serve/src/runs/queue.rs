//! Resumes runs of an earlier process as slots become free.
//!
//! After a restart, more runs may be interrupted than the limit allows. The rest waits in a queue,
//! oldest first. A reserved slot bridges the time between taking a run from the queue and driving
//! it, so that new runs of clients cannot take its place.

use std::sync::PoisonError;

use futures_util::future::BoxFuture;
use levity_core::{
    ControlCommand, JournalErrorKind, RunId, RunQuery, RunRequest, RunState, RuntimeError,
};
use tokio::runtime::Handle;

use super::{RunOrigin, Runs};
use crate::error::{Error, Result};

impl Runs {
    /// Resumes all runs that an earlier process left, oldest first. Runs beyond the limit are
    /// queued, and resumed when others have ended. Returns the runs that could not be resumed, with
    /// the errors. Runs that other processes drive are skipped.
    ///
    /// Call it once when the server starts. A run that fails to resume stays in the journal, and a
    /// client that asks for it gets the error.
    ///
    /// ```
    /// use levity_loop::Agent;
    /// use levity_runtime::{MemoryJournal, Runtime};
    /// use levity_serve::Runs;
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = Runtime::new().with_journal(MemoryJournal::new());
    /// let runs = Runs::new(Agent::builder(ScriptedModel::new()).runtime(runtime).build()?);
    /// for (run, error) in runs.resume_all().await? {
    ///     eprintln!("cannot resume {run}: {error}");
    /// }
    /// assert_eq!((runs.running(), runs.queued()), (0, 0));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the journal cannot be listed.
    pub async fn resume_all(&self) -> Result<Vec<(RunId, Error)>> {
        self.resume_or_cancel_all(None).await
    }

    /// Cancels all runs that an earlier process left, without continuing their work. Returns the
    /// runs that could not be cancelled, with the errors. Runs that other processes drive are
    /// skipped.
    ///
    /// Call it once when the server starts, instead of [`resume_all`](Self::resume_all), if the
    /// clients of the runs cannot come back to them. The cancellation of every run is in the
    /// journal when this method returns. A run ends when it is resumed: at once, or beyond the
    /// limit of runs when others have ended.
    ///
    /// ```
    /// use levity_loop::Agent;
    /// use levity_runtime::{MemoryJournal, Runtime};
    /// use levity_serve::Runs;
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = Runtime::new().with_journal(MemoryJournal::new());
    /// let runs = Runs::new(Agent::builder(ScriptedModel::new()).runtime(runtime).build()?);
    /// for (run, error) in runs.cancel_all("the server was restarted").await? {
    ///     eprintln!("cannot cancel {run}: {error}");
    /// }
    /// assert_eq!((runs.running(), runs.queued()), (0, 0));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the journal cannot be listed.
    pub async fn cancel_all(&self, reason: &str) -> Result<Vec<(RunId, Error)>> {
        self.resume_or_cancel_all(Some(reason)).await
    }

    /// Resumes all runs that an earlier process left. With a reason, each run is cancelled before
    /// it is resumed, so that it ends without further work.
    async fn resume_or_cancel_all(&self, cancel: Option<&str>) -> Result<Vec<(RunId, Error)>> {
        let mut failed = Vec::new();
        for state in [RunState::Open, RunState::Waiting] {
            let query = RunQuery::new().state(state).roots();
            for found in self.runtime().journal().list(&query).await? {
                let is_skipped = self.inner.settings.is_skipped.as_ref();
                if is_skipped.is_some_and(|is_skipped| is_skipped(&found.run)) {
                    continue;
                }
                let cancelled = match cancel {
                    Some(reason) => self.cancel_in_journal(&found.run, reason).await,
                    None => Ok(()),
                };
                let resumed = match cancelled {
                    Ok(()) => self.resume(&found.run).await.map(drop),
                    Err(error) => Err(error),
                };
                match resumed {
                    Ok(()) => {}
                    Err(Error::Full { .. } | Error::JournalBusy { .. }) => self.enqueue(found.run),
                    Err(error) if is_driven_elsewhere(&error) => {}
                    Err(error) => failed.push((found.run, error)),
                }
            }
        }
        // Some runs may have ended while others were being queued.
        self.resume_queued().await;
        Ok(failed)
    }

    /// Writes a cancellation to the journal of a run, unless a process drives the run.
    async fn cancel_in_journal(&self, id: &RunId, reason: &str) -> Result<()> {
        if let Some(check) = &self.inner.settings.may_resume {
            check(id)?;
        }
        // If another process drives the run, this fails, and the run is not cancelled.
        drop(self.runtime().journal().open(id).await?);
        let reason = reason.to_owned();
        let cancel = RunRequest::Command(ControlCommand::Cancel { reason });
        match self.runtime().send_request(id, cancel).await {
            Ok(_) => Ok(()),
            Err(RuntimeError::Journal(error)) => Err(error.into()),
            Err(error) => Err(Error::run(id, error)),
        }
    }

    /// Returns the number of runs of an earlier process that wait for a slot; see
    /// [`resume_all`](Self::resume_all).
    pub fn queued(&self) -> usize {
        self.known().queue.len()
    }

    /// Returns `true` if a run is in this queue.
    pub(crate) fn is_queued(&self, id: &RunId) -> bool {
        self.known().queue.contains(id)
    }

    fn enqueue(&self, run: RunId) {
        let mut known = self.known();
        if !known.queue.contains(&run) {
            known.queue.push_back(run);
        }
    }

    /// Resumes queued runs while slots are free.
    pub(super) fn resume_queued(&self) -> BoxFuture<'static, ()> {
        let runs = self.clone();
        Box::pin(async move {
            // Each run is tried once: one that cannot be read now is tried again when the next slot
            // is free.
            for _ in 0..runs.queued() {
                let Some((run, reserved)) = runs.next_queued() else {
                    return;
                };
                match runs.resume_at(&run, RunOrigin::Queue(reserved)).await {
                    Err(Error::Full { .. }) => runs.enqueue(run),
                    Err(error) if error.is_retryable() && !is_driven_elsewhere(&error) => {
                        runs.enqueue(run);
                    }
                    // A client that asks for the run by id gets the error.
                    _ => {}
                }
            }
        })
    }

    /// Same as [`resume_queued`](Self::resume_queued), in the background.
    pub(super) fn spawn_resume_queued(&self) {
        if self.queued() == 0 {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            let resumed = self.resume_queued();
            self.inner
                .tasks
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .spawn_on(resumed, &runtime);
        }
    }

    /// Returns the next run of the queue, and a slot reserved for it.
    fn next_queued(&self) -> Option<(RunId, ReservedSlot)> {
        let mut known = self.known();
        if known.live.len() + known.reserved >= self.inner.settings.max_runs {
            return None;
        }
        let run = known.queue.pop_front()?;
        known.reserved += 1;
        Some((run, ReservedSlot(self.clone())))
    }
}

/// A slot reserved for a run while it is read from its journal.
pub(super) struct ReservedSlot(Runs);

impl Drop for ReservedSlot {
    fn drop(&mut self) {
        self.0.known().reserved -= 1;
    }
}

/// Returns `true` if another process holds the lease of the run. Such a run is in good hands and is
/// not an error.
fn is_driven_elsewhere(error: &Error) -> bool {
    matches!(error, Error::Journal(error) if error.kind() == JournalErrorKind::Busy)
}
