use std::fmt;
use std::sync::Arc;

use levity_core::{Ending, Failure, Machine as _, Message, RunId, Stats, Status, Usage};
use levity_runtime::{Done, Stopped};

use crate::board::Board;
use crate::bus::Bus;
use crate::error::{Error, Result};
use crate::machine::{Shown, SwarmMachine};
use crate::plan::Delegation;
use crate::report::{Report, missing};

/// What a run of a swarm came to.
pub struct Finished {
    run: RunId,
    ending: Ending,
    machine: Box<SwarmMachine>,
    shown: Box<Shown>,
}

impl Finished {
    fn new(run: RunId, ending: Ending, machine: SwarmMachine) -> Self {
        let shown = Box::new(machine.shown());
        Self { run, ending, machine: Box::new(machine), shown }
    }

    /// The run.
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// The answer.
    pub fn text(&self) -> &str {
        &self.ending.text
    }

    /// How it ended.
    pub fn status(&self) -> &Status {
        &self.ending.status
    }

    /// Who did what, in the order of the plan, the legs, or the turns.
    pub fn reports(&self) -> &[Report] {
        &self.machine.desk().reports
    }

    /// What came of a delegation, leg or turn.
    pub fn report(&self, id: &str) -> Option<&Report> {
        self.reports().iter().find(|report| &*report.id == id)
    }

    /// What was not done.
    pub fn failures(&self) -> impl Iterator<Item = &Report> {
        self.reports().iter().filter(|report| !report.is_done())
    }

    /// What was not done, and was not done again in a later round either: what an answer must do without.
    pub fn missing(&self) -> impl Iterator<Item = &Report> {
        missing(self.reports()).into_iter()
    }

    /// All that was said, in order.
    pub fn bus(&self) -> &Bus {
        &self.machine.desk().bus
    }

    /// What a router has delegated, all rounds together.
    pub fn plan(&self) -> &[Delegation] {
        &self.shown.plan
    }

    /// The conversation of a handoff, for the next run to go on from; see [`SwarmInput::after`](crate::SwarmInput::after).
    pub fn conversation(&self) -> &[Arc<Message>] {
        &self.shown.history
    }

    /// Who had the conversation last, or spoke last.
    pub fn last_speaker(&self) -> Option<&str> {
        self.shown.last.as_deref()
    }

    /// What stands on the blackboard.
    pub fn board(&self) -> Option<&Board> {
        self.shown.board.as_ref()
    }

    /// What it used, all runs below it included.
    pub fn usage(&self) -> &Usage {
        &self.ending.usage
    }

    /// What was done, all runs below it included.
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
pub(crate) fn conclude(ended: Result<Done<SwarmMachine>, Stopped<SwarmMachine>>) -> Result<Finished> {
    match ended {
        Ok(Done { run, machine, .. }) => match machine.ending().cloned() {
            Some(ending) => judge(Finished::new(run, ending, machine)),
            None => Err(Error::Runtime { source: levity_runtime::Error::Lost(run), partial: None }),
        },
        Err(Stopped { error: levity_runtime::Error::Parked { run, waiting }, .. }) => {
            Err(Error::Parked { run, waiting })
        }
        Err(Stopped { run, machine, error: source, .. }) => {
            let partial = machine.map(|machine| {
                let ending = machine.so_far(Status::Failed(Failure::Internal(source.to_string())));
                Box::new(Finished::new(run, ending, machine))
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
        Status::Failed(Failure::Unreached(why)) => Error::NoAnswer { why, partial },
        status => Error::NoAnswer { why: status.to_string(), partial },
    })
}
