use std::fmt;
use std::sync::Arc;

use levity_core::{Message, RunOutput};

use crate::board::Board;
use crate::bus::Bus;
use crate::machine::{PatternOutput, SwarmMachine};
use crate::plan::Delegation;
use crate::report::{WorkerReport, missing};

/// The result of a swarm's run; see [`RunOutput`] and [`SwarmDetails`].
pub type SwarmAnswer = RunOutput<SwarmDetails>;

/// The swarm-specific part of a result: reports of the workers, and all messages.
pub struct SwarmDetails {
    machine: Box<SwarmMachine>,
    output: Box<PatternOutput>,
}

impl SwarmDetails {
    pub(crate) fn new(machine: SwarmMachine) -> Self {
        let output = Box::new(machine.output());
        Self {
            machine: Box::new(machine),
            output,
        }
    }

    /// Returns the reports of the workers, in the order of the plan, the legs, or the turns.
    pub fn reports(&self) -> &[WorkerReport] {
        &self.machine.shared().reports
    }

    /// Returns the report of a delegation, leg or turn.
    pub fn report(&self, id: &str) -> Option<&WorkerReport> {
        self.reports().iter().find(|report| &*report.id == id)
    }

    /// Returns the reports of work that did not complete.
    pub fn failures(&self) -> impl Iterator<Item = &WorkerReport> {
        self.reports().iter().filter(|report| !report.is_done())
    }

    /// Returns the reports of work that did not complete and was not repeated successfully in a
    /// later round. The answer lacks this work.
    pub fn missing(&self) -> impl Iterator<Item = &WorkerReport> {
        missing(self.reports()).into_iter()
    }

    /// Returns the bus with all messages, in order.
    pub fn bus(&self) -> &Bus {
        &self.machine.shared().bus
    }

    /// Returns the delegations of a router, over all rounds.
    pub fn plan(&self) -> &[Delegation] {
        &self.output.plan
    }

    /// Returns the conversation of a handoff, which the next run can continue; see
    /// [`SwarmInput::after`](crate::SwarmInput::after).
    pub fn conversation(&self) -> &[Arc<Message>] {
        &self.output.history
    }

    /// Returns the worker that had the conversation last, or spoke last.
    pub fn last_speaker(&self) -> Option<&str> {
        self.output.last.as_deref()
    }

    /// Returns the final board of a blackboard pattern.
    pub fn board(&self) -> Option<&Board> {
        self.output.board.as_ref()
    }
}

impl fmt::Debug for SwarmDetails {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SwarmDetails")
            .field("reports", &self.reports().len())
            .finish_non_exhaustive()
    }
}
