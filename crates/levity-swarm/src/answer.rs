//! The result of a run, with the machine that made it.

use std::fmt;
use std::sync::Arc;

use levity_core::{Message, RunOutput};

use crate::board::Board;
use crate::bus::Bus;
use crate::machine::{PatternOutput, SwarmMachine};
use crate::plan::Delegation;
use crate::report::{WorkerReport, missing};

/// The result of a swarm's run; see [`RunOutput`] and [`SwarmDetails`].
///
/// ```
/// use levity_loop::Agent;
/// use levity_swarm::{MessageKind, Router, Swarm};
/// use levity_test::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> levity_swarm::Result<()> {
/// let pilot = Agent::builder(ScriptedModel::new().reply("At six.")).build()?;
/// let swarm = Swarm::builder(Router::keywords())
///     .agent("pilot", "Knows the tides.", pilot)
///     .build()?;
/// let answer = swarm.run("When is the tide high?").await?;
/// assert_eq!(answer.text(), "At six.");
/// let last = answer.bus().messages().next_back().unwrap();
/// assert_eq!((last.kind, last.to.as_str()), (MessageKind::Answer, "user"));
/// # Ok(())
/// # }
/// ```
pub type SwarmAnswer = RunOutput<SwarmDetails>;

/// The swarm-specific part of a result: reports of the workers, and all messages.
///
/// [`SwarmAnswer`] dereferences to it. A run that does not reach its goal has the same details in
/// the partial result of its error.
///
/// ```
/// use levity_core::ModelErrorKind;
/// use levity_loop::Agent;
/// use levity_swarm::{Delegation, Router, Swarm, SwarmInput, Worker};
/// use levity_test::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> levity_swarm::Result<()> {
/// let pilot = Agent::builder(ScriptedModel::new().reply("At six.")).build()?;
/// let watch = Agent::builder(ScriptedModel::new().fail(ModelErrorKind::Auth)).build()?;
/// let swarm = Swarm::builder(Router::keywords())
///     .worker(Worker::new("pilot", "Knows the tides.", pilot))
///     .worker(Worker::new("watch", "Looks at the sky.", watch).retries(0))
///     .build()?;
/// let plan = [
///     Delegation::new("tide", "pilot", "When is high water?"),
///     Delegation::new("wind", "watch", "Where is the wind from?"),
/// ];
/// let answer = swarm.run(SwarmInput::from("Can we sail?").plan(plan)).await?;
/// assert!(answer.report("tide").unwrap().is_done());
/// let missing: Vec<_> = answer.missing().map(|report| &*report.id).collect();
/// assert_eq!(missing, ["wind"]);
/// # Ok(())
/// # }
/// ```
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
    ///
    /// Work that failed and was repeated in a later round is included; [`missing`](Self::missing)
    /// omits it.
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
    ///
    /// It is empty for other patterns than a router and a coordinator.
    pub fn plan(&self) -> &[Delegation] {
        &self.output.plan
    }

    /// Returns the conversation of a handoff, which the next run can continue; see
    /// [`SwarmInput::after`](crate::SwarmInput::after).
    ///
    /// It is empty for other patterns.
    pub fn conversation(&self) -> &[Arc<Message>] {
        &self.output.history
    }

    /// Returns the worker that had the conversation last, or spoke last.
    pub fn last_speaker(&self) -> Option<&str> {
        self.output.last.as_deref()
    }

    /// Returns the final board of a blackboard pattern.
    ///
    /// It is `None` for other patterns.
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
