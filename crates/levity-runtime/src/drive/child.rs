//! Runs below a run.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use levity_core::{ChildRun, EffectId, Ending, Entry, Failure, Machine, Outcome, Record, Status};
use serde_json::Value;

use super::{Around, Driver, Performed};
use crate::error::Error;
use crate::meter::Meter;

impl<M: Machine + 'static> Driver<M> {
    /// Runs a child to its end: a new one, or one that an earlier process left under way.
    pub(super) fn child(&self, id: EffectId, child: ChildRun) -> BoxFuture<'static, Performed> {
        let run = self.state.run.child(id);
        let parent = &self.around;
        let (executor, shared, hub) = (parent.executor.clone(), parent.shared.clone(), parent.hub.clone());
        let (above, cancel, depth) = (parent.meter.clone(), self.end_children.clone(), parent.depth + 1);
        let line = self.line.as_ref().map(|line| line.board().connect(&run));
        Box::pin(async move {
            let open = match shared.journal.open(&run).await {
                Ok(open) => open,
                Err(error) => return (id, Some(child_failed(&error.into())), None),
            };
            let saved = open.records.first().and_then(saved_state);
            let child = match executor.child(&child, saved).await {
                Ok(child) => child,
                Err(error) => return (id, Some(Outcome::Child(Box::new(failed(error.explain())))), None),
            };
            let meter = Arc::new(Meter::new(child.limits, Some(above)));
            let (executor, cancel) = (child.executor, Some(cancel));
            let around = Around { shared, executor, meter: meter.clone(), hub, cancel, depth };
            let ended = match Driver::new(run, child.machine, open, around, line) {
                Ok(driver) => driver.boxed().await.map_err(|(_, error)| error),
                Err((_, error)) => Err(error),
            };
            let outcome = match ended {
                Ok(machine) => child_ended(&machine),
                Err(error) => child_failed(&error),
            };
            (id, Some(outcome), Some(meter.spent()))
        })
    }
}

/// The state that a run's machine was in before its first input.
fn saved_state(first: &Record) -> Option<&Value> {
    match &first.entry {
        Entry::Opened { state, .. } => Some(state),
        _ => None,
    }
}

fn child_ended(machine: &impl Machine) -> Outcome {
    let ending = machine.ending().cloned();
    Outcome::Child(Box::new(ending.unwrap_or_else(|| failed("the child did not end"))))
}

fn child_failed(error: &Error) -> Outcome {
    Outcome::Child(Box::new(failed(format!("the child could not be driven: {error}"))))
}

fn failed(reason: impl Into<String>) -> Ending {
    Ending::new(Status::Failed(Failure::Internal(reason.into())))
}
