//! Custom patterns: the public trait, and the machine that drives it.
//!
//! The trait requires `Clone` and `DeserializeOwned`, so it cannot be a trait object.
//! `AnyCoordinator` is the object-safe form, with JSON in place of the type.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use levity_core::{Error, Failure, Limit, MachineOutput, Result, Signal, Status, ToolSpec};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::delegated_work::{DelegatedWork, list};
use crate::machine::{PatternMachine, PatternOutput, read_pattern_state};
use crate::notice::{PlannedBy, SwarmNotice};
use crate::plan::Delegation;
use crate::report::WorkerReport;
use crate::rules::Start;
use crate::shared_state::{FinishedWork, SharedState, WorkKind};

/// A custom pattern that decides who works next and what the answer is.
///
/// Its value is both the settings and the state of a run. Each run gets a copy when it starts. Pass
/// one to [`Swarm::builder`](crate::Swarm::builder):
///
/// ```
/// use levity_loop::Agent;
/// use levity_swarm::{Coordinator, Delegation, Move, SwarmProgress, Swarm, Worker};
/// use levity_test::ScriptedModel;
/// use serde::{Deserialize, Serialize};
///
/// /// Each worker continues the text of the previous one.
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
///             return Move::Answer(
///                 last.map(|report| report.text.to_string())
///                     .unwrap_or_default(),
///             );
///         };
///         self.leg += 1;
///         let leg = Delegation::new(format!("leg{}", self.leg), worker, progress.goal());
///         Move::Work(vec![
///             leg.after(
///                 last.filter(|last| last.is_done())
///                     .map(|last| last.id.clone()),
///             ),
///         ])
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
/// - **Pure**: [`next`](Self::next) depends only on the state and on [`SwarmProgress`]. It reads no
///   clock, file, random number or global value, and it does not block. levity calls it again when
///   a run is resumed, replayed or forked, and the moves must be the same.
/// - **Saved as JSON**: the state is saved with the first record of a run and between later
///   records. It is read again when the run is resumed. A field that is not serialized is lost.
///   Give a field that you add later `#[serde(default)]`, so that old runs can still be read.
/// - **Independent of timing**: levity calls `next` when all work of a round is settled. It sees
///   the reports in plan order.
///
/// As for the [`Router`](crate::Router), the swarm handles the rest: dependencies, the parallel
/// limit, retries, fallback workers, budgets, memory, messages, events and the journal. A `next`
/// that panics ends the run with an error, and so do more than 1,000 rounds.
pub trait Coordinator: Clone + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Returns the name of the pattern in journals and errors. A run can only be resumed under the
    /// same name.
    fn name(&self) -> &str;

    /// Returns the next move, at the start and whenever all work of a round is settled.
    ///
    /// When a [limit is near](SwarmProgress::limit), no new work starts. A move other than an
    /// answer then ends the run with the result of [`partial`](Self::partial).
    ///
    /// ```
    /// use levity_swarm::{Coordinator, Delegation, Move, SwarmProgress};
    /// use serde::{Deserialize, Serialize};
    ///
    /// /// Asks the first worker until it completes, three times at most.
    /// #[derive(Clone, Serialize, Deserialize)]
    /// struct Persist;
    ///
    /// impl Coordinator for Persist {
    ///     fn name(&self) -> &str {
    ///         "persist"
    ///     }
    ///
    ///     fn next(&mut self, progress: &SwarmProgress<'_>) -> Move {
    ///         if let Some(done) = progress.reports().iter().find(|report| report.is_done()) {
    ///             return Move::Answer(done.text.to_string());
    ///         }
    ///         match (progress.round(), progress.workers().next()) {
    ///             (round @ 0..3, Some(worker)) => {
    ///                 let id = format!("try{round}");
    ///                 Move::Work(vec![Delegation::new(id, worker, progress.goal())])
    ///             }
    ///             _ => Move::Fail("three attempts failed".to_owned()),
    ///         }
    ///     }
    /// }
    /// ```
    fn next(&mut self, progress: &SwarmProgress<'_>) -> Move;

    /// Returns the best current answer, for a run that ends early. By default a list of the
    /// workers' results.
    ///
    /// The method must be as pure as `next`. If it panics, the default is used.
    fn partial(&self, progress: &SwarmProgress<'_>) -> String {
        list(progress.shared)
    }

    /// Returns additional tools for a worker in this pattern, such as one to vote. levity records a
    /// call of such a tool and runs nothing; see [`SwarmProgress::signals`]. None by default. A
    /// worker that is a swarm gets none.
    fn tools(&self, worker: &str) -> Vec<ToolSpec> {
        let _ = worker;
        Vec::new()
    }
}

/// The decision of a [`Coordinator`].
///
/// ```
/// use levity_swarm::{Delegation, Move};
///
/// let round = Move::Work(vec![
///     Delegation::new("draft", "writer", "Write a page."),
///     Delegation::new("check", "editor", "Check it.").after(["draft"]),
/// ]);
/// assert_ne!(round, Move::Answer("Done.".to_owned()));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Move {
    /// Starts a round of work. Each id is used once in a run. A delegation can depend on others of
    /// the round, and on completed ones of earlier rounds; its worker sees their results. An
    /// invalid plan ends the run with an error.
    Work(Vec<Delegation>),
    /// Ends the run with this answer.
    Answer(String),
    /// Ends the run with this error, because the goal cannot be reached.
    Fail(String),
}

/// The state of a run as a [`Coordinator`] sees it.
///
/// It borrows from the machine and is valid during one call of [`next`](Coordinator::next). All of
/// it is in the journal, so a decision based on it alone is the same after a crash.
///
/// ```
/// use levity_loop::Agent;
/// use levity_swarm::{Coordinator, Move, Swarm, SwarmProgress};
/// use levity_test::ScriptedModel;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Clone, Serialize, Deserialize)]
/// struct Roll;
///
/// impl Coordinator for Roll {
///     fn name(&self) -> &str {
///         "roll"
///     }
///
///     fn next(&mut self, progress: &SwarmProgress<'_>) -> Move {
///         let names: Vec<_> = progress.workers().collect();
///         assert_eq!(progress.description("pilot"), Some("Knows the tides."));
///         assert!(progress.last_round().is_empty() && progress.limit().is_none());
///         Move::Answer(format!("{}: {}", progress.goal(), names.join(", ")))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> levity_swarm::Result<()> {
/// let pilot = Agent::builder(ScriptedModel::new()).build()?;
/// let swarm = Swarm::builder(Roll).agent("pilot", "Knows the tides.", pilot).build()?;
/// assert_eq!(swarm.run("On board").await?.text(), "On board: pilot");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct SwarmProgress<'a> {
    shared: &'a SharedState,
    base: usize,
    round: u32,
    signals: &'a BTreeMap<usize, Vec<Signal>>,
}

impl<'a> SwarmProgress<'a> {
    /// Returns the goal of the run.
    pub fn goal(&self) -> &'a str {
        &self.shared.start.goal
    }

    /// Returns the names of the workers, in the order in which they were added.
    pub fn workers(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.shared.rules.order.iter().map(|name| &**name)
    }

    /// Returns the description of a worker.
    pub fn description(&self, worker: &str) -> Option<&'a str> {
        self.shared
            .rules
            .cards
            .get(worker)
            .map(|card| &*card.description)
    }

    /// Returns the number of settled rounds.
    pub fn round(&self) -> u32 {
        self.round
    }

    /// Returns the reports of all rounds, in plan order.
    pub fn reports(&self) -> &'a [WorkerReport] {
        &self.shared.reports
    }

    /// Returns the reports of the last round; none at the start.
    pub fn last_round(&self) -> &'a [WorkerReport] {
        &self.shared.reports[self.base..]
    }

    /// Returns the report of a delegation.
    pub fn report(&self, id: &str) -> Option<&'a WorkerReport> {
        self.reports().iter().find(|report| &*report.id == id)
    }

    /// Returns the calls of signal tools in the last attempt at a delegation, including those of
    /// [the pattern](Coordinator::tools).
    pub fn signals(&self, id: &str) -> &'a [Signal] {
        let place = self.reports().iter().position(|report| &*report.id == id);
        place
            .and_then(|at| self.signals.get(&at))
            .map_or(&[], Vec::as_slice)
    }

    /// Returns the messages that the host has sent to the run since its start.
    pub fn host_messages(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.shared.host_messages.iter().map(|text| &**text)
    }

    /// Returns the limit that is nearly reached, if any: then it is time to answer.
    pub fn limit(&self) -> Option<Limit> {
        self.shared.near_limit
    }
}

impl std::fmt::Debug for SwarmProgress<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SwarmProgress")
            .field("round", &self.round)
            .finish_non_exhaustive()
    }
}

/// A coordinator behind a trait object.
pub(crate) trait AnyCoordinator: Send + Sync {
    fn name(&self) -> &str;
    fn tools(&self, worker: &str) -> Vec<ToolSpec>;
    /// Returns the state as JSON, for the first record of a run and for snapshots.
    fn save(&self) -> Result<Value, String>;
    fn copy(&self) -> Box<dyn AnyCoordinator>;
    /// Creates a coordinator from its saved state; a missing state is read as `null`.
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
        serde_json::to_value(self).map_err(|error| {
            format!(
                "the state of the pattern cannot be \
            saved: {error}"
            )
        })
    }

    fn copy(&self) -> Box<dyn AnyCoordinator> {
        Box::new(self.clone())
    }

    fn restore(&self, state: Option<&Value>) -> Result<Box<dyn AnyCoordinator>, String> {
        let restored = C::deserialize(state.unwrap_or(&Value::Null));
        let unreadable = |error| {
            format!(
                "cannot read the saved state of the pattern `{}`: {error}",
                self.name()
            )
        };
        restored
            .map(|restored| Box::new(restored) as Box<dyn AnyCoordinator>)
            .map_err(unreadable)
    }

    fn next(&mut self, progress: &SwarmProgress<'_>) -> Move {
        Coordinator::next(self, progress)
    }

    fn partial(&self, progress: &SwarmProgress<'_>) -> String {
        Coordinator::partial(self, progress)
    }
}

/// The sender name of delegated tasks.
pub(crate) const COORDINATOR: &str = "coordinator";

/// Checks that a custom pattern fits these workers.
pub(crate) fn check(own: &dyn AnyCoordinator, workers: &[Arc<str>]) -> Result<()> {
    if ["", "router", "handoff", "debate", "blackboard"].contains(&own.name()) {
        let problem = format!(
            "cannot have the name `{}`, which levity reserves; choose another",
            own.name()
        );
        return Err(Error::setting("pattern", problem));
    }
    if workers.iter().any(|name| **name == *COORDINATOR) {
        let problem = "cannot have the name `coordinator`, which sends the tasks; choose another";
        return Err(Error::setting("worker", problem));
    }
    // The saved state must be readable, or no run could be resumed.
    let restored = own.save().and_then(|state| own.restore(Some(&state)));
    restored
        .map(drop)
        .map_err(|problem| Error::setting("pattern", problem))
}

/// The maximum number of rounds in a run.
const MAX_ROUNDS: u32 = 1_000;

/// The saved state of a coordinator's run.
#[derive(Serialize, Deserialize)]
struct SavedState<W> {
    own: Value,
    work: W,
    round: u32,
    signals: BTreeMap<usize, Vec<Signal>>,
}

/// Runs a swarm with a coordinator: the coordinator makes plans, and the workers carry them out.
pub(crate) struct CoordinatorMachine {
    own: Box<dyn AnyCoordinator>,
    work: DelegatedWork,
    round: u32,
    signals: BTreeMap<usize, Vec<Signal>>,
}

impl CoordinatorMachine {
    /// Starts from the saved state even in a new run, so that a resumed run behaves like an
    /// uninterrupted one.
    pub(crate) fn new(own: &dyn AnyCoordinator, start: &Start) -> Self {
        let own = own
            .restore(start.state.as_ref())
            .unwrap_or_else(|_| own.copy());
        Self {
            own,
            work: DelegatedWork::new(COORDINATOR),
            round: 0,
            signals: BTreeMap::new(),
        }
    }

    fn progress<'a>(&'a self, shared: &'a SharedState) -> SwarmProgress<'a> {
        SwarmProgress {
            shared,
            base: self.work.base(),
            round: self.round,
            signals: &self.signals,
        }
    }

    /// Asks for the next move and makes it.
    fn advance(&mut self, shared: &mut SharedState, out: &mut MachineOutput) {
        let progress = SwarmProgress {
            shared,
            base: self.work.base(),
            round: self.round,
            signals: &self.signals,
        };
        let own = &mut self.own;
        let Ok(next) = catch_unwind(AssertUnwindSafe(|| own.next(&progress))) else {
            return self.fail("`next` panicked", shared);
        };
        match next {
            Move::Answer(text) => shared.answer(COORDINATOR, text, out),
            Move::Fail(why) => self.fail(&why, shared),
            Move::Work(_) if shared.near_limit.is_some() => {
                let text = self.partial_answer(shared);
                shared.answer(COORDINATOR, text, out);
            }
            Move::Work(plan) => self.adopt_plan(plan, shared, out),
        }
    }

    fn adopt_plan(
        &mut self,
        plan: Vec<Delegation>,
        shared: &mut SharedState,
        out: &mut MachineOutput,
    ) {
        if self.round >= MAX_ROUNDS {
            return self.fail(&format!("no answer after {MAX_ROUNDS} rounds"), shared);
        }
        let order = match self.work.check(&plan, plan.len(), shared) {
            Ok(order) => order,
            Err(faults) => {
                return self.fail(&format!("its plan is invalid: {faults}"), shared);
            }
        };
        let round = self.round + 1;
        shared.notify(out, || SwarmNotice::Planned {
            round,
            by: PlannedBy::Coordinator,
            plan: plan.clone(),
        });
        self.work
            .adopt_plan(plan, order, BTreeMap::new(), shared, out);
        self.pump(shared, out);
    }

    fn pump(&mut self, shared: &mut SharedState, out: &mut MachineOutput) {
        if self.work.pump(false, shared, out) {
            self.round = self.round.saturating_add(1);
            self.work.end_round(shared);
            self.advance(shared, out);
        }
    }

    fn fail(&self, reason: &str, shared: &mut SharedState) {
        let reason = format!("the pattern `{}` gave up: {reason}", self.own.name());
        shared.end(
            Status::Failed(Failure::GoalNotReached(reason)),
            list(shared),
            None,
        );
    }
}

impl PatternMachine for CoordinatorMachine {
    fn begin(&mut self, shared: &mut SharedState, out: &mut MachineOutput) {
        self.advance(shared, out);
    }

    fn work_finished(
        &mut self,
        kind: WorkKind,
        finished: FinishedWork,
        shared: &mut SharedState,
        out: &mut MachineOutput,
    ) {
        let WorkKind::Work(slot) = kind else { return };
        if let Some((place, signals)) =
            self.work
                .handle_worker_end(slot as usize, finished, shared, out)
        {
            self.signals.insert(place, signals);
            self.pump(shared, out);
        }
    }

    fn state_changed(&mut self, shared: &mut SharedState, out: &mut MachineOutput) {
        if shared.near_limit.is_some() && !self.work.is_settled() {
            self.pump(shared, out);
        }
    }

    fn partial_answer(&self, shared: &SharedState) -> String {
        let partial = catch_unwind(AssertUnwindSafe(|| {
            self.own.partial(&self.progress(shared))
        }));
        partial.unwrap_or_else(|_| list(shared))
    }

    fn save(&self) -> Value {
        let (own, round, signals) = (
            self.own.save().unwrap_or_default(),
            self.round,
            self.signals.clone(),
        );
        serde_json::to_value(SavedState {
            own,
            work: &self.work,
            round,
            signals,
        })
        .unwrap_or_default()
    }

    fn restore(&mut self, saved: &Value, shared: &SharedState) -> Result<(), String> {
        let SavedState {
            own,
            work,
            round,
            signals,
        } = read_pattern_state::<SavedState<DelegatedWork>>(saved)?;
        let (own, work) = (
            self.own.restore(Some(&own))?,
            work.resumed(COORDINATOR, shared)?,
        );
        *self = Self {
            own,
            work,
            round,
            signals,
        };
        Ok(())
    }

    fn output(&self) -> PatternOutput {
        PatternOutput {
            plan: self.work.plan(),
            ..PatternOutput::default()
        }
    }
}
