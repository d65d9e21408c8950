use std::fmt;
use std::sync::Arc;

use levity_core::{Finished, Message};

use crate::board::Board;
use crate::bus::Bus;
use crate::machine::{Shown, SwarmMachine};
use crate::plan::Delegation;
use crate::report::{WorkerReport, missing};

/// The result of a swarm's run; see [`Finished`] and [`SwarmDetails`].
pub type SwarmAnswer = Finished<SwarmDetails>;

/// The part of a result that only a swarm's run has: reports of the workers, and all messages.
pub struct SwarmDetails {
    machine: Box<SwarmMachine>,
    shown: Box<Shown>,
}

impl SwarmDetails {
    pub(crate) fn new(machine: SwarmMachine) -> Self {
        let shown = Box::new(machine.shown());
        Self {
            machine: Box::new(machine),
            shown,
        }
    }

    /// Who did what, in the order of the plan, the legs, or the turns.
    pub fn reports(&self) -> &[WorkerReport] {
        &self.machine.desk().reports
    }

    /// What came of a delegation, leg or turn.
    pub fn report(&self, id: &str) -> Option<&WorkerReport> {
        self.reports().iter().find(|report| &*report.id == id)
    }

    /// What was not done.
    pub fn failures(&self) -> impl Iterator<Item = &WorkerReport> {
        self.reports().iter().filter(|report| !report.is_done())
    }

    /// What was not done, and was not done again in a later round either: what an answer must do
    /// without.
    pub fn missing(&self) -> impl Iterator<Item = &WorkerReport> {
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

    /// The conversation of a handoff, for the next run to go on from; see
    /// [`SwarmInput::after`](crate::SwarmInput::after).
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
}

impl fmt::Debug for SwarmDetails {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SwarmDetails")
            .field("reports", &self.reports().len())
            .finish_non_exhaustive()
    }
}
