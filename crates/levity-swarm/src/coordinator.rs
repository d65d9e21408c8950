use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use levity_core::{Error, Failure, Limit, MachineOutput, Result, Signal, Status, ToolSpec};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::delegated::{Delegated, list};
use crate::desk::{Came, Desk, Duty};
use crate::machine::{Play, Shown, read_play};
use crate::notice::{PlannedBy, SwarmNotice};
use crate::plan::Delegation;
use crate::report::WorkerReport;
use crate::rules::Start;

/// A pattern of your own: it decides who works next, and what the answer is.
///
/// Its value is both the settings and the state of a run. Each run has a copy, made when it begins.
/// Pass one to [`Swarm::builder`](crate::Swarm::builder):
///
/// ```
/// use levity_loop::Agent;
/// use levity_swarm::{Coordinator, Delegation, Move, SwarmProgress, Swarm, Worker};
/// use levity_test::ScriptedModel;
/// use serde::{Deserialize, Serialize};
///
/// /// Each worker goes on from what the one before it wrote.
/// #[derive(Clone, Serialize, Deserialize)]
/// struct Relay {
///     leg: usize,
/// }
///
/// impl Coordinator for Relay {
///     fn name(&self) -> &str {
///         "relay"
///     }
///
///     fn next(&mut self, progress: &SwarmProgress<'_>) -> Move {
///         let last = progress.last_round().last();
///         let Some(worker) = progress.workers().nth(self.leg) else {
///             return Move::Answer(last.map(|report| report.text.to_string()).unwrap_or_default());
///         };
///         self.leg += 1;
///         let leg = Delegation::new(format!("leg{}", self.leg), worker, progress.goal());
///         Move::Work(vec![leg.after(last.filter(|last| last.is_done()).map(|last| last.id.clone()))])
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let agent = |says: &str| Agent::builder(ScriptedModel::new().reply(says)).build();
/// let swarm = Swarm::builder(Relay { leg: 0 })
///     .worker(Worker::new("poet", "Writes.", agent("The sea, the see.")?))
///     .worker(Worker::new("editor", "Corrects.", agent("The sea, the sea.")?))
///     .build()?;
/// assert_eq!(swarm.run("A line about the sea.").await?.text(), "The sea, the sea.");
/// # Ok(())
/// # }
/// ```
///
/// # Contract
/// - **Pure**: [`next`](Self::next) follows from the state and from [`SwarmProgress`] alone. It
///   reads no clock, file, random number or global value, and it does not block. levity calls it
///   again when a run is resumed, replayed or forked, and the moves must be the same.
/// - **Saved as JSON**: the state is written with the first record of a run, and between two
///   records of it, and read again when the run is resumed. A field that is not saved is lost. Give
///   a field that you add later `#[serde(default)]`, so that old runs can still be read.
/// - **Order does not matter**: it is asked when all work of a round is settled, and sees the
///   reports in the order of the plan.
///
/// The swarm does the rest, as for the [`Router`](crate::Router): dependencies, the parallel limit,
/// retries, stand-ins, budgets, memory, messages, events and the journal. A `next` that panics ends
/// the run with an error, and so do more than 1,000 rounds.
pub trait Coordinator: Clone + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The name of the pattern in journals and errors. A run can only be resumed under the same
    /// name.
    fn name(&self) -> &str;

    /// The next move: at the beginning, and whenever all work of the round is settled.
    ///
    /// When a [limit is near](SwarmProgress::limit), nothing new begins: a move other than an
    /// answer ends the run with what [`partial`](Self::partial) gives.
    fn next(&mut self, progress: &SwarmProgress<'_>) -> Move;

    /// The best answer so far, for a run that is ended now. By default a list of what the workers
    /// have said.
    fn partial(&self, progress: &SwarmProgress<'_>) -> String {
        list(progress.desk)
    }

    /// Tools that a worker gets for this pattern, such as one to vote. levity takes a call of one
    /// in and runs nothing; see [`SwarmProgress::signals`]. None by default. A worker that is a
    /// swarm gets none.
    fn tools(&self, worker: &str) -> Vec<ToolSpec> {
        let _ = worker;
        Vec::new()
    }
}

/// The decision of a [`Coordinator`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Move {
    /// A round of work. Ids are used once in a run. A delegation can depend on others of the round,
    /// and on those of earlier rounds that are done; its worker is shown what came of them. A plan
    /// that cannot be carried out ends the run with an error.
    Work(Vec<Delegation>),
    /// The answer, which ends the run.
    Answer(String),
    /// An error, which ends the run: the goal cannot be reached.
    Fail(String),
}

/// The state of a run, for a [`Coordinator`].
#[derive(Clone, Copy)]
pub struct SwarmProgress<'a> {
    desk: &'a Desk,
    base: usize,
    round: u32,
    signals: &'a BTreeMap<usize, Vec<Signal>>,
}

impl<'a> SwarmProgress<'a> {
    /// The goal of the run.
    pub fn goal(&self) -> &'a str {
        &self.desk.start.goal
    }

    /// The names of the workers, in the order in which they were added.
    pub fn workers(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.desk.rules.order.iter().map(|name| &**name)
    }

    /// The description of a worker.
    pub fn description(&self, worker: &str) -> Option<&'a str> {
        self.desk
            .rules
            .cards
            .get(worker)
            .map(|card| &*card.description)
    }

    /// How many rounds of work are settled.
    pub fn round(&self) -> u32 {
        self.round
    }

    /// The reports of all rounds, in the order of the plans.
    pub fn reports(&self) -> &'a [WorkerReport] {
        &self.desk.reports
    }

    /// The reports of the last round; none at the beginning.
    pub fn last_round(&self) -> &'a [WorkerReport] {
        &self.desk.reports[self.base..]
    }

    /// The report of a delegation.
    pub fn report(&self, id: &str) -> Option<&'a WorkerReport> {
        self.reports().iter().find(|report| &*report.id == id)
    }

    /// The calls of signal tools, [the pattern's own](Coordinator::tools) among them, in the last
    /// attempt at a delegation.
    pub fn signals(&self, id: &str) -> &'a [Signal] {
        let place = self.reports().iter().position(|report| &*report.id == id);
        place
            .and_then(|at| self.signals.get(&at))
            .map_or(&[], Vec::as_slice)
    }

    /// What the host has said to the run since it began.
    pub fn said(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.desk.said.iter().map(|text| &**text)
    }

    /// The limit that is near, if one is: it is time to answer.
    pub fn limit(&self) -> Option<Limit> {
        self.desk.near
    }
}

impl std::fmt::Debug for SwarmProgress<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SwarmProgress")
            .field("round", &self.round)
            .finish_non_exhaustive()
    }
}

/// A coordinator whose type is not known.
pub(crate) trait AnyCoordinator: Send + Sync {
    fn name(&self) -> &str;
    fn tools(&self, worker: &str) -> Vec<ToolSpec>;
    fn save(&self) -> Result<Value, String>;
    fn copy(&self) -> Box<dyn AnyCoordinator>;
    fn restore(&self, state: Option<&Value>) -> Result<Box<dyn AnyCoordinator>, String>;
    fn next(&mut self, progress: &SwarmProgress<'_>) -> Move;
    fn partial(&self, progress: &SwarmProgress<'_>) -> String;
}

impl<C: Coordinator> AnyCoordinator for C {
    fn name(&self) -> &str {
        Coordinator::name(self)
    }

    fn tools(&self, worker: &str) -> Vec<ToolSpec> {
        Coordinator::tools(self, worker)
    }

    fn save(&self) -> Result<Value, String> {
        serde_json::to_value(self).map_err(|error| format!("its state cannot be saved: {error}"))
    }

    fn copy(&self) -> Box<dyn AnyCoordinator> {
        Box::new(self.clone())
    }

    fn restore(&self, state: Option<&Value>) -> Result<Box<dyn AnyCoordinator>, String> {
        let restored = C::deserialize(state.unwrap_or(&Value::Null));
        let wrong = |error| {
            format!(
                "the state of the pattern `{}` cannot be read: {error}",
                self.name()
            )
        };
        restored
            .map(|restored| Box::new(restored) as Box<dyn AnyCoordinator>)
            .map_err(wrong)
    }

    fn next(&mut self, progress: &SwarmProgress<'_>) -> Move {
        Coordinator::next(self, progress)
    }

    fn partial(&self, progress: &SwarmProgress<'_>) -> String {
        Coordinator::partial(self, progress)
    }
}

/// The name under which tasks are given out.
pub(crate) const COORDINATOR: &str = "coordinator";

/// Checks that a pattern of the program's fits these workers.
pub(crate) fn check(own: &dyn AnyCoordinator, workers: &[Arc<str>]) -> Result<()> {
    if ["", "router", "handoff", "debate", "blackboard"].contains(&own.name()) {
        let problem = format!(
            "cannot be called `{}`: levity uses that name; choose another",
            own.name()
        );
        return Err(Error::setting("pattern", problem));
    }
    if workers.iter().any(|name| **name == *COORDINATOR) {
        let problem =
            "cannot be called `coordinator`, which gives out the tasks; choose another name";
        return Err(Error::setting("worker", problem));
    }
    // What is saved must be readable, or no run of it could ever be resumed.
    let restored = own.save().and_then(|state| own.restore(Some(&state)));
    restored
        .map(drop)
        .map_err(|why| Error::setting("pattern", why))
}

/// How many rounds a run may have.
const MAX_ROUNDS: u32 = 1_000;

/// The saved state of a coordinator's run.
#[derive(Serialize, Deserialize)]
struct Saved<W> {
    own: Value,
    work: W,
    round: u32,
    signals: BTreeMap<usize, Vec<Signal>>,
}

/// Has a coordinator make plans, and the workers carry them out.
pub(crate) struct Coordinated {
    own: Box<dyn AnyCoordinator>,
    work: Delegated,
    round: u32,
    signals: BTreeMap<usize, Vec<Signal>>,
}

impl Coordinated {
    /// Its state is always the one that was saved, so that a resumed run is like one that never
    /// stopped.
    pub(crate) fn new(own: &dyn AnyCoordinator, start: &Start) -> Self {
        let own = own
            .restore(start.state.as_ref())
            .unwrap_or_else(|_| own.copy());
        Self {
            own,
            work: Delegated::new(COORDINATOR),
            round: 0,
            signals: BTreeMap::new(),
        }
    }

    fn progress<'a>(&'a self, desk: &'a Desk) -> SwarmProgress<'a> {
        SwarmProgress {
            desk,
            base: self.work.base(),
            round: self.round,
            signals: &self.signals,
        }
    }

    /// Asks for the next move, and makes it.
    fn go_on(&mut self, desk: &mut Desk, wants: &mut MachineOutput) {
        let progress = SwarmProgress {
            desk,
            base: self.work.base(),
            round: self.round,
            signals: &self.signals,
        };
        let own = &mut self.own;
        let Ok(next) = catch_unwind(AssertUnwindSafe(|| own.next(&progress))) else {
            return self.fail("it panicked", desk);
        };
        match next {
            Move::Answer(text) => desk.answer(COORDINATOR, text, wants),
            Move::Fail(why) => self.fail(&why, desk),
            Move::Work(_) if desk.near.is_some() => {
                let text = self.so_far(desk);
                desk.answer(COORDINATOR, text, wants);
            }
            Move::Work(plan) => self.take_on(plan, desk, wants),
        }
    }

    fn take_on(&mut self, plan: Vec<Delegation>, desk: &mut Desk, wants: &mut MachineOutput) {
        if self.round >= MAX_ROUNDS {
            return self.fail(
                &format!("there is no answer after {MAX_ROUNDS} rounds"),
                desk,
            );
        }
        let order = match self.work.check(&plan, plan.len(), desk) {
            Ok(order) => order,
            Err(faults) => {
                return self.fail(&format!("its plan cannot be carried out: {faults}"), desk);
            }
        };
        let round = self.round + 1;
        desk.tell(wants, || SwarmNotice::Planned {
            round,
            by: PlannedBy::Coordinator,
            plan: plan.clone(),
        });
        self.work.take_on(plan, order, BTreeMap::new(), desk, wants);
        self.pump(desk, wants);
    }

    fn pump(&mut self, desk: &mut Desk, wants: &mut MachineOutput) {
        if self.work.pump(false, desk, wants) {
            self.round = self.round.saturating_add(1);
            self.work.end_round(desk);
            self.go_on(desk, wants);
        }
    }

    fn fail(&self, why: &str, desk: &mut Desk) {
        let why = format!("the pattern `{}` gave up: {why}", self.own.name());
        desk.end(Status::Failed(Failure::Unreached(why)), list(desk), None);
    }
}

impl Play for Coordinated {
    fn begin(&mut self, desk: &mut Desk, wants: &mut MachineOutput) {
        self.go_on(desk, wants);
    }

    fn came(&mut self, duty: Duty, came: Came, desk: &mut Desk, wants: &mut MachineOutput) {
        let Duty::Work(seat) = duty else { return };
        if let Some((place, signals)) = self.work.worked(seat as usize, came, desk, wants) {
            self.signals.insert(place, signals);
            self.pump(desk, wants);
        }
    }

    fn stirred(&mut self, desk: &mut Desk, wants: &mut MachineOutput) {
        if desk.near.is_some() && !self.work.is_settled() {
            self.pump(desk, wants);
        }
    }

    fn so_far(&self, desk: &Desk) -> String {
        let partial = catch_unwind(AssertUnwindSafe(|| self.own.partial(&self.progress(desk))));
        partial.unwrap_or_else(|_| list(desk))
    }

    fn save(&self) -> Value {
        let (own, round, signals) = (
            self.own.save().unwrap_or_default(),
            self.round,
            self.signals.clone(),
        );
        serde_json::to_value(Saved {
            own,
            work: &self.work,
            round,
            signals,
        })
        .unwrap_or_default()
    }

    fn restore(&mut self, saved: &Value, desk: &Desk) -> Result<(), String> {
        let Saved {
            own,
            work,
            round,
            signals,
        } = read_play::<Saved<Delegated>>(saved)?;
        let (own, work) = (
            self.own.restore(Some(&own))?,
            work.resumed(COORDINATOR, desk)?,
        );
        *self = Self {
            own,
            work,
            round,
            signals,
        };
        Ok(())
    }

    fn shown(&self) -> Shown {
        Shown {
            plan: self.work.plan(),
            ..Shown::default()
        }
    }
}
