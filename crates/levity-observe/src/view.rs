use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use levity_core::{Ask, Ending, RunId, Stats, Timestamp, Usage};
use levity_dag::{Plan, Step, StepId, StepSpent, StepStatus};
use serde_json::Value;

mod activity;
mod drawn;
mod edges;
mod fold;
mod log;
mod restored;
mod stage;
mod summary;
mod text;
mod tree;

pub use activity::Activity;
pub use log::LogLine;
pub use stage::PlanStage;
pub use text::one_line;
pub use tree::TreeOptions;

pub(crate) use edges::{edge_kind, edges_of};
use fold::Owner;

/// What a run of a plan looks like now: a fold over its events, from which everything is drawn.
///
/// It takes the events of the run and of all runs below it, in the order in which they are told,
/// has no clock and does no I/O. Whatever it is given, it does not fail; events of other runs are
/// left out.
///
/// ```
/// use levity_core::{Event, EventKind, RunId, Timestamp};
/// use levity_observe::{PlanStage, PlanView};
///
/// let mut view = PlanView::new();
/// let goal = EventKind::Goal { text: "compare two pages".into() };
/// view.apply(&Event::new(RunId::new("r"), 1, Timestamp::from_millis(0), goal));
/// assert_eq!(view.goal(), "compare two pages");
/// assert_eq!(view.stage(), PlanStage::Starting);
/// ```
#[derive(Clone, Debug, Default)]
pub struct PlanView {
    root: Option<RunId>,
    goal: String,
    stage: PlanStage,
    plan: Option<Arc<Plan>>,
    edges: Vec<(u32, u32)>,
    steps: Vec<StepView>,
    index: HashMap<StepId, u32>,
    owners: HashMap<u64, Owner>,
    profiling: Preparation,
    planning: Preparation,
    files: Vec<Value>,
    asks: Vec<Ask>,
    replans: u32,
    gave_up: Option<String>,
    log: VecDeque<LogLine>,
    logged: u64,
    started: Option<Timestamp>,
    last: Option<Timestamp>,
    ending: Option<Arc<Ending>>,
}

/// One step, as it stands now.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StepView {
    /// Its name in the plan.
    pub id: StepId,
    /// Who does it; empty when it is code.
    pub agent: Arc<str>,
    /// What it is about.
    pub description: Arc<str>,
    /// Where it stands.
    pub status: StepStatus,
    /// Which attempt, from 1; 0 when it has not begun.
    pub attempt: u32,
    /// Which round of the attempt, from 1; 0 when it has not begun.
    pub round: u32,
    /// How far it is, where it is run once for each element of a list.
    pub items: Option<Items>,
    /// The steps right before it, in the order of the plan.
    pub before: Vec<StepId>,
    /// When it began.
    pub started: Option<Timestamp>,
    /// When it was settled.
    pub ended: Option<Timestamp>,
    /// What it took; while it runs, what its agent has told so far.
    pub spent: StepSpent,
    /// Why it failed or was skipped; while it is tried again, why the last attempt failed.
    pub error: Option<String>,
    /// What it does just now.
    pub activity: Activity,
    /// What a person is asked on its behalf.
    pub asks: Vec<Ask>,
}

/// How many elements of a list are done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Items {
    /// Those that are settled, the failed ones included.
    pub done: u32,
    /// Those that failed.
    pub failed: u32,
    /// All.
    pub of: u32,
}

/// What came before the steps: looking at files, or making plans.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Preparation {
    /// How many times somebody was asked.
    pub times: u32,
    /// How long it took, all times together.
    pub took: Duration,
    /// What it used.
    pub usage: Usage,
    /// Turns and calls.
    pub stats: Stats,
    since: Option<Timestamp>,
    settled: (Usage, Stats),
}

/// What the run has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Totals {
    /// Tokens and money, profiling and planning included.
    pub usage: Usage,
    /// Turns and calls.
    pub stats: Stats,
    /// How long it has taken, up to the last event.
    pub took: Duration,
    /// Steps that are completed.
    pub completed: usize,
    /// Steps that have failed.
    pub failed: usize,
    /// Steps that were skipped.
    pub skipped: usize,
    /// All steps.
    pub steps: usize,
}

impl PlanView {
    /// A view of the run whose event comes first.
    pub fn new() -> Self {
        Self::default()
    }

    /// A view of this run, whatever events come first.
    pub fn of_run(run: RunId) -> Self {
        Self {
            root: Some(run),
            ..Self::default()
        }
    }

    /// A view of a plan that is not run. It need not have been checked.
    pub fn of_plan(plan: impl Into<Arc<Plan>>) -> Self {
        let mut view = Self::default();
        let plan = plan.into();
        let edges = edges_of(&plan);
        view.set_plan(plan, edges);
        view
    }

    /// The run it is of.
    pub fn run(&self) -> Option<&RunId> {
        self.root.as_ref()
    }

    /// What the run is to do, in words.
    pub fn goal(&self) -> &str {
        &self.goal
    }

    /// Says what it is about, where no run does.
    #[must_use]
    pub fn with_goal(mut self, goal: impl Into<String>) -> Self {
        self.goal = goal.into();
        self
    }

    /// Where the run stands.
    pub fn stage(&self) -> PlanStage {
        self.stage
    }

    /// The plan as it is now.
    pub fn plan(&self) -> Option<&Arc<Plan>> {
        self.plan.as_ref()
    }

    /// The steps, in the order of the plan.
    pub fn steps(&self) -> &[StepView] {
        &self.steps
    }

    /// The step of this id.
    pub fn step(&self, id: &str) -> Option<&StepView> {
        self.steps.get(*self.index.get(id)? as usize)
    }

    /// The edges, as places in [`steps`](Self::steps): the second comes after the first.
    pub fn edges(&self) -> &[(u32, u32)] {
        &self.edges
    }

    /// The looking at files before the plan.
    pub fn profiling(&self) -> &Preparation {
        &self.profiling
    }

    /// The making of the plan and of its changes.
    pub fn planning(&self) -> &Preparation {
        &self.planning
    }

    /// What is known about the files that were given.
    pub fn files(&self) -> &[Value] {
        &self.files
    }

    /// What a person is asked on behalf of no step, such as whether the plan may be carried out.
    pub fn asks(&self) -> &[Ask] {
        &self.asks
    }

    /// All that a person is asked just now, with the step it is for.
    pub fn all_asks(&self) -> impl Iterator<Item = (Option<&StepId>, &Ask)> {
        let steps = self
            .steps
            .iter()
            .flat_map(|step| step.asks.iter().map(move |ask| (Some(&step.id), ask)));
        self.asks.iter().map(|ask| (None, ask)).chain(steps)
    }

    /// How many times the plan was changed.
    pub fn replans(&self) -> u32 {
        self.replans
    }

    /// Why the planner saw no other way, if it said so.
    pub fn gave_up(&self) -> Option<&str> {
        self.gave_up.as_deref()
    }

    /// When the run began.
    pub fn started(&self) -> Option<Timestamp> {
        self.started
    }

    /// When the last event came.
    pub fn last(&self) -> Option<Timestamp> {
        self.last
    }

    /// How the run ended, once it has.
    pub fn ending(&self) -> Option<&Ending> {
        self.ending.as_deref()
    }

    /// What the run has used so far. It goes over all steps.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals {
            steps: self.steps.len(),
            took: self.took(),
            ..Totals::default()
        };
        for step in &self.steps {
            match step.status {
                StepStatus::Completed => totals.completed += 1,
                StepStatus::Failed => totals.failed += 1,
                StepStatus::Skipped => totals.skipped += 1,
                _ => {}
            }
            totals.usage += step.spent.usage;
            totals.stats += step.spent.stats;
        }
        for before in [&self.profiling, &self.planning] {
            totals.usage += before.usage;
            totals.stats += before.stats;
        }
        totals
    }

    fn took(&self) -> Duration {
        self.started
            .zip(self.last)
            .map_or(Duration::ZERO, |(started, last)| last.since(started))
    }

    pub(crate) fn place_of(&self, id: &str) -> Option<u32> {
        self.index.get(id).copied()
    }

    fn step_mut(&mut self, id: &str) -> Option<&mut StepView> {
        let at = *self.index.get(id)?;
        self.steps.get_mut(at as usize)
    }

    /// Takes a plan in place of the one before; what is known about its steps stays.
    fn set_plan(&mut self, plan: Arc<Plan>, edges: Vec<(u32, u32)>) {
        let mut old: HashMap<StepId, StepView> = std::mem::take(&mut self.steps)
            .into_iter()
            .map(|step| (step.id.clone(), step))
            .collect();
        self.index.clear();
        for (at, step) in plan.steps.iter().enumerate() {
            let view = match old.remove(&step.id) {
                Some(known) => known.described_by(step),
                None => StepView::new(step),
            };
            self.steps.push(view);
            self.index.entry(step.id.clone()).or_insert(at as u32);
        }
        for &(from, to) in &edges {
            let from = plan.steps.get(from as usize).map(|step| step.id.clone());
            if let (Some(from), Some(step)) = (from, self.steps.get_mut(to as usize)) {
                step.before.push(from);
            }
        }
        self.plan = Some(plan);
        self.edges = edges;
    }
}

impl Preparation {
    /// What is known about it from elsewhere.
    pub(crate) fn restored(times: u32, took: Duration, usage: Usage, stats: Stats) -> Self {
        Self {
            times,
            took,
            usage,
            stats,
            since: None,
            settled: (usage, stats),
        }
    }
}

impl StepView {
    fn new(step: &Step) -> Self {
        Self {
            id: step.id.clone(),
            agent: step.agent.clone(),
            description: step.description.clone(),
            status: StepStatus::Pending,
            attempt: 0,
            round: 0,
            items: None,
            before: Vec::new(),
            started: None,
            ended: None,
            spent: StepSpent::default(),
            error: None,
            activity: Activity::None,
            asks: Vec::new(),
        }
    }

    fn described_by(mut self, step: &Step) -> Self {
        self.agent = step.agent.clone();
        self.description = step.description.clone();
        self.before.clear();
        self
    }

    /// How long it has taken: until it was settled, or until `now` while it runs.
    pub fn took(&self, now: Option<Timestamp>) -> Option<Duration> {
        let until = self.ended.or(now)?;
        Some(until.since(self.started?))
    }
}
