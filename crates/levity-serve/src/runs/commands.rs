//! Delivers commands to runs, even if the client disconnects before the delivery.
//!
//! A client that sends "cancel" and closes its page expects the run to stop. Commands therefore run
//! on tasks of [`Runs`], not in the request. Their number is limited: 64 for each run and 4 more
//! for cancellations, which never wait behind other commands.

use std::future::Future;
use std::sync::{Arc, PoisonError};

use levity_core::ControlError;
use tokio::sync::{Semaphore, oneshot};

use super::{LiveRun, Runs};
use crate::access::Caller;
use crate::quota::QuotaFull;

/// Resolves when a run has received the command. Dropping it does not withdraw the command.
pub(crate) type DeliveryReceiver = oneshot::Receiver<Result<(), ControlError>>;

/// Limits the number of pending commands of a run and its child runs.
pub(super) struct CommandSlots {
    commands: Arc<Semaphore>,
    /// Cancellations have separate slots, so that they never wait behind other commands.
    cancels: Arc<Semaphore>,
}

impl Default for CommandSlots {
    fn default() -> Self {
        let (commands, cancels) = (
            Semaphore::new(Runs::MAX_PENDING_COMMANDS),
            Semaphore::new(Runs::CANCELS),
        );
        Self {
            commands: Arc::new(commands),
            cancels: Arc::new(cancels),
        }
    }
}

/// The kind of a command, which selects its slots.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandKind {
    Regular,
    Cancel,
}

impl Runs {
    /// The maximum number of pending commands of a run and its child runs: 64.
    pub const MAX_PENDING_COMMANDS: usize = 64;
    /// The maximum number of pending cancellations, in addition to the commands.
    const CANCELS: usize = 4;

    /// Sends a command to a run in the background and drives it to completion, even if the client
    /// disconnects. Returns `None` without sending it if the maximum number of commands is pending.
    pub(crate) fn send_command<F>(
        &self,
        run: &LiveRun,
        kind: CommandKind,
        command: F,
    ) -> Option<DeliveryReceiver>
    where
        F: Future<Output = Result<(), ControlError>> + Send + 'static,
    {
        let slots = match kind {
            CommandKind::Regular => &run.command_slots.commands,
            CommandKind::Cancel => &run.command_slots.cancels,
        };
        let permit = slots.clone().try_acquire_owned().ok()?;
        let (send, delivered) = oneshot::channel();
        let mut tasks = self
            .inner
            .tasks
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let _permit = permit;
            let _ = send.send(command.await);
        });
        Some(delivered)
    }

    /// Runs `work` to completion in the background, even if the client disconnects. Returns `None`
    /// if these runs end first.
    ///
    /// # Errors
    /// Fails if the limit of such work is reached, in total or for this caller.
    pub(crate) async fn run_in_background<T: Send + 'static>(
        &self,
        caller: &Caller,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<Option<T>, QuotaFull> {
        let permit = self.inner.deliveries.take(caller)?;
        let (send, done) = oneshot::channel();
        {
            let mut tasks = self
                .inner
                .tasks
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            while tasks.try_join_next().is_some() {}
            tasks.spawn(async move {
                let _permit = permit;
                let _ = send.send(work.await);
            });
        }
        Ok(done.await.ok())
    }

    /// Cancels a run in the background, for callers that cannot wait.
    pub(crate) fn cancel_in_background(&self, run: &Arc<LiveRun>, reason: &'static str) {
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
            // A run that has just ended needs no cancelling.
            let _ = control.cancel(reason).await;
        });
    }
}
