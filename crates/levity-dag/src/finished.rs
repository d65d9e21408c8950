use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use levity_core::{Ending, Failure, Machine as _, RunId, Stats, Status, Usage};
use levity_runtime::{Done, Stopped};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::machine::GraphMachine;
use crate::notice::{StepSpent, StepStatus};
use crate::plan::Plan;
use crate::step::StepId;

/// What a run of a plan came to.
pub struct Finished {
    run: RunId,
    ending: Ending,
    machine: Box<GraphMachine>,
}

/// What became of a step.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StepReport {
    /// The step.
    pub step: StepId,
    /// Where it stands.
    pub status: StepStatus,
    /// Why it failed, if it did.
    pub error: Option<String>,
    /// What it took.
    pub spent: StepSpent,
}

impl Finished {
    /// The run.
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// What the last of the steps that are done gave, as text.
    pub fn text(&self) -> &str {
        &self.ending.text
    }

    /// How it ended.
    pub fn status(&self) -> &Status {
        &self.ending.status
    }

    /// The value of a variable.
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.ending.value.as_ref()?.get(name)
    }

    /// The value of a variable as a `T`; nothing when there is none, or it is no `T`.
    pub fn parse<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        T::deserialize(self.value(name)?).ok()
    }

    /// All variables that have a value.
    pub fn values(&self) -> BTreeMap<Arc<str>, Value> {
        self.machine.values()
    }

    /// What became of each step, in the order of the plan.
    pub fn steps(&self) -> Vec<StepReport> {
        let report = |(step, status, error, spent)| StepReport { step, status, error, spent };
        self.machine.reports().map(report).collect()
    }

    /// What became of a step.
    pub fn step(&self, id: &str) -> Option<StepReport> {
        self.steps().into_iter().find(|report| report.step.as_str() == id)
    }

    /// The plan as it was last; nothing when none was made.
    pub fn plan(&self) -> Option<&Arc<Plan>> {
        self.machine.plan()
    }

    /// How many times another way was looked for.
    pub fn replans(&self) -> u32 {
        self.machine.replans()
    }

    /// What it used, planning included.
    pub fn usage(&self) -> &Usage {
        &self.ending.usage
    }

    /// What was done, planning included.
    pub fn stats(&self) -> &Stats {
        &self.ending.stats
    }
}

impl fmt::Debug for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finished")
            .field("run", &self.run)
            .field("status", &self.ending.status)
            .finish_non_exhaustive()
    }
}

/// Turns the end of a run into what it came to, or an error that carries it.
pub(crate) fn conclude(ended: Result<Done<GraphMachine>, Stopped<GraphMachine>>) -> Result<Finished> {
    match ended {
        Ok(Done { run, machine, .. }) => match machine.ending().cloned() {
            Some(ending) => judge(Finished { run, ending, machine: Box::new(machine) }),
            None => Err(Error::Runtime { source: levity_runtime::Error::Lost(run), partial: None }),
        },
        Err(Stopped { error: levity_runtime::Error::Parked { run, waiting }, .. }) => {
            Err(Error::Parked { run, waiting })
        }
        Err(Stopped { run, machine, error: source, .. }) => {
            let partial = machine.map(|machine| {
                let ending = machine.so_far(Status::Failed(Failure::Internal(source.to_string())));
                Box::new(Finished { run, ending, machine: Box::new(machine) })
            });
            Err(Error::Runtime { source, partial })
        }
    }
}

fn judge(finished: Finished) -> Result<Finished> {
    let status = finished.ending.status.clone();
    let partial = Box::new(finished);
    Err(match status {
        Status::Complete | Status::BestEffort(_) => return Ok(*partial),
        Status::Partial(limit) => Error::Limit { limit, partial },
        Status::Cancelled { reason } => Error::Cancelled { reason, partial },
        Status::Failed(Failure::Unreached(why)) => Error::Unreached { why, partial },
        status => Error::Unreached { why: status.to_string(), partial },
    })
}
