//! Runs the children of a run.
//!
//! A child has the id `parent.effect` and its own log, machine and limits. Its effects are
//! journaled in its own run. The parent has two records: the start of the child and its ending. If
//! a process ends in between, the parent starts the same effect again, finds the log of the child
//! under its id and continues it.
//!
//! The `origin` is a fingerprint of the parent's creation time and of the child's input. It
//! prevents that a run with the same id, left by another parent, is taken for this child.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use levity_core::{
    Child, ChildLease, ChildRun, Digest, EffectId, Ending, Executor, Failure, Journal, Lease,
    Machine, Outcome, RunId, RuntimeError, Status,
};
use levity_driver::{EffectResult, Meter};

use super::{AT_ONCE, Driver, FinishedEffect, RunEnvironment};
use crate::runtime::LaterRestore;
use crate::stored_run::StoredRun;

impl<M: Machine + 'static> Driver<M> {
    /// Runs a child to its end: a new one, or one that an earlier process left in progress.
    pub(super) fn child(
        &self,
        id: EffectId,
        child: ChildRun,
    ) -> BoxFuture<'static, FinishedEffect> {
        let run = self.core.run().child(id);
        let parent = &self.env;
        let (executor, shared, hub) = (
            parent.executor.clone(),
            parent.shared.clone(),
            parent.hub.clone(),
        );
        let (above, cancel, depth) = (
            parent.meter.clone(),
            self.end_children.clone(),
            parent.depth + 1,
        );
        let line = self
            .line
            .as_ref()
            .map(|line| line.board().connect(&run, Some(child.agent.clone())));
        let origin = Digest::of(&self.core.opened_at()).with_json(&child);
        let (park, audit) = (parent.park, parent.audit);
        let again = audit.then(|| restore(executor.clone(), child.clone()));
        let rests = Some((self.resting.clone(), id));
        // A child of an earlier process is driven to its end, even if only to be cancelled at once.
        let old = cancel.is_cancelled();
        let (before, given) = (parent.before.clone(), parent.given.clone());
        let (name, below) = (Some(child.agent.clone()), self.trace.above());
        let span = self.trace.above();
        below.within(Box::pin(async move {
            let made = make(&*executor, &*shared.journal, &run, &child, origin, old);
            let performed = tokio::select! {
                biased;
                () = cancel.cancelled(), if !old => Err(None),
                made = made => made.map_err(Some),
            };
            let (made, open, lease) = match performed {
                Ok(ChildSetup::Ready(child, open, lease)) => (*child, open, lease),
                Ok(ChildSetup::Nothing) => return (id, Ok(None)),
                Ok(ChildSetup::Refused(outcome)) => {
                    return (id, Ok(Some(EffectResult::Finished(outcome, None))));
                }
                Err(Some(error)) => return (id, Err(error)),
                // No one waits for it any more.
                Err(None) => return (id, Ok(None)),
            };
            let meter = Arc::new(Meter::new(made.limits, Some(above)));
            let (executor, screener) = (made.executor, made.screener);
            let (cancel, origin) = (Some(cancel), Some(origin));
            let env = RunEnvironment {
                shared,
                executor,
                meter: meter.clone(),
                hub,
                cancel,
                depth,
                origin,
                park,
                audit,
                before,
                rests,
                name,
                above: span,
                given,
                guarded: made.guarded,
            };
            // Boxed, since hardly any child needs the room.
            let driver = match open.len() > AT_ONCE {
                true => Box::pin(Driver::load(run, made.machine, open, env, line)).await,
                false => Driver::new(run, made.machine, open, None, env, line),
            };
            let ended = match driver {
                Ok(driver) => driver
                    .audited(again)
                    .boxed()
                    .await
                    .map_err(|(_, error)| error),
                Err((_, error)) => Err(error),
            };
            let outcome = match ended {
                Ok(machine) => match machine.ending().cloned() {
                    Some(mut ending) => {
                        let left = ending.conversation_end.take();
                        if let Some(lease) = lease {
                            lease.release(left).await;
                        }
                        Outcome::Child(Box::new(match screener {
                            Some(screener) => screener.ending(&child, ending).await,
                            None => ending,
                        }))
                    }
                    None => child_failed("the child run did not end"),
                },
                Err(error @ RuntimeError::Stuck(_)) => child_failed(error.to_string()),
                Err(error) => return (id, Err(error)),
            };
            (
                id,
                Ok(Some(EffectResult::Finished(outcome, Some(meter.spent())))),
            )
        }))
    }
}

/// Rebuilds a child's machine, to check its run.
fn restore(executor: Arc<dyn Executor>, child: ChildRun) -> LaterRestore<Box<dyn Machine>> {
    Box::new(move |_, state| {
        Box::pin(async move {
            let again = executor.child(&child, Some(&state)).await;
            again
                .map(|child| child.machine)
                .map_err(|error| error.explain())
        })
    })
}

/// The result of creating a child.
///
/// `Refused` is an outcome for the parent's machine, and no error of the run.
enum ChildSetup {
    Ready(Box<Child>, StoredRun, Option<Lease>),
    Refused(Outcome),
    /// The child was never started.
    Nothing,
}

/// Opens a child's log and creates its machine: a new one, or the one that the log belongs to.
///
/// A child that has records must be restored: if that fails, the run cannot continue, because
/// starting it anew would repeat its effects.
async fn make(
    executor: &dyn Executor,
    journal: &dyn Journal,
    run: &RunId,
    child: &ChildRun,
    origin: Digest,
    old: bool,
) -> Result<ChildSetup, RuntimeError> {
    let open = StoredRun::latest(journal, run).await?;
    if old && open.is_new() {
        return Ok(ChildSetup::Nothing);
    }
    if open
        .opened()
        .is_some_and(|opened| opened.origin != Some(origin))
    {
        return Err(RuntimeError::Exists(run.clone()));
    }
    match executor.child(child, open.state()).await {
        Ok(child) => ready(run, child, open).await,
        // A snapshot only saves time: without it, all records are read.
        Err(_) if open.has_snapshot() => {
            drop(open);
            let open = StoredRun::whole(journal.open(run).await?);
            match executor.child(child, open.state()).await {
                Ok(child) => ready(run, child, open).await,
                Err(error) => Err(RuntimeError::Restore {
                    run: run.clone(),
                    reason: error.explain(),
                }),
            }
        }
        Err(error) if !open.is_new() => Err(RuntimeError::Restore {
            run: run.clone(),
            reason: error.explain(),
        }),
        Err(error) => Ok(ChildSetup::Refused(child_failed(error.explain()))),
    }
}

/// Waits for the lease of a child. One that has ended needs none.
async fn ready(run: &RunId, mut child: Child, open: StoredRun) -> Result<ChildSetup, RuntimeError> {
    let lease = match child.lease.take().filter(|_| !open.is_ended()) {
        Some(ChildLease::Held(lease)) => Some(lease),
        Some(ChildLease::Wanted(lease)) => {
            Some(lease.await.map_err(|cause| RuntimeError::Prepare {
                run: run.clone(),
                cause,
            })?)
        }
        _ => None,
    };
    Ok(ChildSetup::Ready(Box::new(child), open, lease))
}

fn child_failed(reason: impl Into<String>) -> Outcome {
    Outcome::Child(Box::new(Ending::new(Status::Failed(Failure::Internal(
        reason.into(),
    )))))
}
