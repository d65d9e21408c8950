//! What runs are told for somebody who may leave before they have heard it.

use std::future::Future;
use std::sync::{Arc, PoisonError};

use levity_core::ControlError;
use tokio::sync::{Semaphore, oneshot};

use super::{LiveRun, Runs};
use crate::access::Caller;
use crate::quota::QuotaFull;

/// Comes when a run has heard what it was told. Dropping it takes nothing back.
pub(crate) type Heard = oneshot::Receiver<Result<(), ControlError>>;

/// How much a run and those below it may be told at once.
pub(super) struct Lines {
    commands: Arc<Semaphore>,
    /// What ends a run is never behind what has piled up for it.
    cancels: Arc<Semaphore>,
}

impl Default for Lines {
    fn default() -> Self {
        let (commands, cancels) = (Semaphore::new(Runs::TOLD), Semaphore::new(Runs::CANCELS));
        Self {
            commands: Arc::new(commands),
            cancels: Arc::new(cancels),
        }
    }
}

/// How a run is told something.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Command,
    Cancel,
}

impl Runs {
    /// How many commands may wait at once for a run and those below it: 64.
    pub const TOLD: usize = 64;
    /// How many requests to cancel it may wait beside them.
    const CANCELS: usize = 4;

    /// Tells a run something, to the end: no half of it is left out because whoever wanted it is
    /// gone. Nothing was begun, and nothing is returned, when as many wait for the run already as
    /// may.
    pub(crate) fn tell<F>(&self, run: &LiveRun, way: Way, told: F) -> Option<Heard>
    where
        F: Future<Output = Result<(), ControlError>> + Send + 'static,
    {
        let places = match way {
            Way::Command => &run.lines.commands,
            Way::Cancel => &run.lines.cancels,
        };
        let place = places.clone().try_acquire_owned().ok()?;
        let (send, heard) = oneshot::channel();
        let mut tasks = self
            .inner
            .tasks
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let _place = place;
            let _ = send.send(told.await);
        });
        Some(heard)
    }

    /// Does something for somebody who may leave meanwhile, to the end. Gives nothing when these
    /// runs end before it.
    ///
    /// # Errors
    /// When as much is being done already as may, for this caller or for all.
    pub(crate) async fn see_through<T: Send + 'static>(
        &self,
        caller: &Caller,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<Option<T>, QuotaFull> {
        let place = self.inner.errands.take(caller)?;
        let (send, done) = oneshot::channel();
        {
            let mut tasks = self
                .inner
                .tasks
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            while tasks.try_join_next().is_some() {}
            tasks.spawn(async move {
                let _place = place;
                let _ = send.send(work.await);
            });
        }
        Ok(done.await.ok())
    }

    /// Cancels a run for somebody who cannot wait until that is done.
    pub(crate) fn cancel_soon(&self, run: &Arc<LiveRun>, reason: &'static str) {
        let Ok(control) = run.control().cloned() else {
            return;
        };
        let mut tasks = self
            .inner
            .tasks
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            // One that has just ended needs no cancelling.
            let _ = control.cancel(reason).await;
        });
    }
}
