//! A view of a run of a plan, folded from its events, and its renderings.
//!
//! The fold knows which step each effect of the run belongs to (`owners`), so the events of an
//! agent's own run update the activity and usage of its step. Renderings read the fold and never
//! change it. Texts may come from models and tools; the renderings make them safe for a terminal or
//! a diagram.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use levity_core::{Ask, Ending, FileChange, RunId, Stats, Timestamp, Usage};
use levity_dag::{Plan, Step, StepId, StepStatus, StepUsage};
use serde_json::Value;

mod activity;
mod diagram;
mod edges;
mod fold;
mod log;
mod restore;
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

/// A live view of a run of a plan: a fold over its events, from which everything is rendered.
///
/// Pass it the events of the run and of all runs below it, in order. It has no clock, does no I/O
/// and never fails; it ignores events of other runs.
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

/// The current state of one step.
///
/// ```
/// use levity_dag::{Plan, Step, StepStatus};
/// use levity_observe::PlanView;
///
/// let plan = Plan::new()
///     .step(Step::new("fetch", "Retriever").writes(["page"]))
///     .step(Step::new("sum", "Summarizer").reads(["page"]));
/// let view = PlanView::of_plan(plan);
/// let step = view.step("sum").unwrap();
/// assert_eq!((step.status, step.attempt), (StepStatus::Pending, 0));
/// assert_eq!(step.before, ["fetch".into()]);
/// assert!(step.activity.is_none() && step.took(None).is_none());
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StepView {
    /// The id of the step in the plan.
    pub id: StepId,
    /// The agent of the step; empty for code.
    pub agent: Arc<str>,
    /// The description of the step.
    pub description: Arc<str>,
    /// The status of the step.
    pub status: StepStatus,
    /// The attempt number, from 1; 0 before the step begins.
    pub attempt: u32,
    /// The round of the attempt, from 1; 0 before the step begins.
    pub round: u32,
    /// The progress of a step that runs once for each element of a list.
    pub items: Option<ItemProgress>,
    /// The steps directly before it, in the order of the plan.
    pub before: Vec<StepId>,
    /// The start time of the step.
    pub started: Option<Timestamp>,
    /// The time at which the step was settled.
    pub ended: Option<Timestamp>,
    /// The usage of the step; while it runs, the usage that its agent has reported.
    pub spent: StepUsage,
    /// The reason why the step failed or was skipped; during a retry, the error of the last
    /// attempt.
    pub error: Option<String>,
    /// The current activity of the step.
    pub activity: Activity,
    /// The pending requests to a person on behalf of the step.
    pub asks: Vec<Ask>,
    /// The files that the step wrote and did not remove again, at most 1,000.
    pub artifacts: Vec<FileChange>,
}

/// The progress of a step over the elements of a list.
///
/// Elements that a quorum made unnecessary are never settled, so `done` may stay below `total`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ItemProgress {
    /// The number of settled elements, including the failed ones.
    pub done: u32,
    /// The number of failed elements.
    pub failed: u32,
    /// The total number of elements.
    pub total: u32,
}

/// The work before the steps: profiling of files, or planning.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Preparation {
    /// The number of requests.
    pub times: u32,
    /// The total duration of all requests.
    pub took: Duration,
    /// The tokens and cost of the requests.
    pub usage: Usage,
    /// The turns and calls of the requests.
    pub stats: Stats,
    since: Option<Timestamp>,
    settled: (Usage, Stats),
}

/// The current usage of the whole run.
///
/// ```
/// use levity_dag::{Plan, Step};
/// use levity_observe::PlanView;
///
/// let view = PlanView::of_plan(Plan::new().step(Step::new("a", "Coder")));
/// let totals = view.totals();
/// assert_eq!((totals.completed, totals.steps), (0, 1));
/// assert_eq!(totals.usage.total(), 0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Totals {
    /// The tokens and cost, including profiling and planning.
    pub usage: Usage,
    /// The turns and calls of the run.
    pub stats: Stats,
    /// The duration up to the last event.
    pub took: Duration,
    /// The number of completed steps.
    pub completed: usize,
    /// The number of failed steps.
    pub failed: usize,
    /// The number of skipped steps.
    pub skipped: usize,
    /// The total number of steps.
    pub steps: usize,
}

impl PlanView {
    /// Creates a view of the run of the first event.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a view of this run, whatever the first event is.
    ///
    /// Use it for a run inside a larger one, such as a team that a swarm runs.
    pub fn of_run(run: RunId) -> Self {
        Self {
            root: Some(run),
            ..Self::default()
        }
    }

    /// Creates a view of a plan that is not running. The plan may be unchecked.
    ///
    /// Unknown references in the plan are ignored, so a draft can be shown before it is valid.
    ///
    /// ```
    /// use levity_dag::{Plan, Step};
    /// use levity_observe::PlanView;
    ///
    /// let plan = Plan::new()
    ///     .step(Step::new("a", "Coder"))
    ///     .step(Step::new("b", "Coder").after("a").after("nowhere"));
    /// let view = PlanView::of_plan(plan).with_goal("build it");
    /// assert_eq!((view.goal(), view.edges()), ("build it", &[(0, 1)][..]));
    /// ```
    pub fn of_plan(plan: impl Into<Arc<Plan>>) -> Self {
        let mut view = Self::default();
        let plan = plan.into();
        let edges = edges_of(&plan);
        view.set_plan(plan, edges);
        view
    }

    /// Returns the run of the view.
    pub fn run(&self) -> Option<&RunId> {
        self.root.as_ref()
    }

    /// Returns the goal of the run.
    pub fn goal(&self) -> &str {
        &self.goal
    }

    /// Sets the goal, for a view without a run.
    #[must_use]
    pub fn with_goal(mut self, goal: impl Into<String>) -> Self {
        self.goal = goal.into();
        self
    }

    /// Returns the stage of the run.
    pub fn stage(&self) -> PlanStage {
        self.stage
    }

    /// Returns the current plan.
    pub fn plan(&self) -> Option<&Arc<Plan>> {
        self.plan.as_ref()
    }

    /// Returns the steps, in the order of the plan.
    pub fn steps(&self) -> &[StepView] {
        &self.steps
    }

    /// Returns the step with this id.
    ///
    /// ```
    /// use levity_dag::{Plan, Step};
    /// use levity_observe::PlanView;
    ///
    /// let view = PlanView::of_plan(Plan::new().step(Step::new("a", "Coder")));
    /// assert_eq!(&*view.step("a").unwrap().agent, "Coder");
    /// assert!(view.step("b").is_none());
    /// ```
    pub fn step(&self, id: &str) -> Option<&StepView> {
        self.steps.get(*self.index.get(id)? as usize)
    }

    /// Returns the step for which a run works, by the `run` of its events: a run that the step
    /// started, or a run below it. `None` for the run of the plan itself, for planning, and for a
    /// run that has ended.
    ///
    /// ```
    /// use levity_core::RunId;
    /// use levity_observe::PlanView;
    ///
    /// let view = PlanView::of_run(RunId::new("r"));
    /// assert_eq!(view.step_of(&RunId::new("r")), None);
    /// assert_eq!(view.step_of(&RunId::new("r.1")), None, "no step has started it");
    /// ```
    pub fn step_of(&self, run: &RunId) -> Option<&StepId> {
        let below = run.as_str().strip_prefix(self.root.as_ref()?.as_str())?;
        let effect = below.strip_prefix('.')?.split('.').next()?.parse().ok()?;
        match self.owners.get(&effect)? {
            Owner::Step(step) => Some(step),
            Owner::Profiling | Owner::Planning => None,
        }
    }

    /// Returns the edges, as indices into [`steps`](Self::steps): the second step comes after the
    /// first.
    pub fn edges(&self) -> &[(u32, u32)] {
        &self.edges
    }

    /// Returns the profiling of files before the plan.
    pub fn profiling(&self) -> &Preparation {
        &self.profiling
    }

    /// Returns the creation of the plan and of its changes.
    pub fn planning(&self) -> &Preparation {
        &self.planning
    }

    /// Returns the descriptions of the given files.
    pub fn files(&self) -> &[Value] {
        &self.files
    }

    /// Returns the pending requests that belong to no step, such as the approval of the plan.
    pub fn asks(&self) -> &[Ask] {
        &self.asks
    }

    /// Returns all pending requests, each with its step.
    ///
    /// Show these to a person, and answer with the handle of the run.
    pub fn all_asks(&self) -> impl Iterator<Item = (Option<&StepId>, &Ask)> {
        let steps = self
            .steps
            .iter()
            .flat_map(|step| step.asks.iter().map(move |ask| (Some(&step.id), ask)));
        self.asks.iter().map(|ask| (None, ask)).chain(steps)
    }

    /// Returns the number of changes to the plan.
    pub fn replans(&self) -> u32 {
        self.replans
    }

    /// Returns the reason why the planner gave up, if it did.
    pub fn gave_up(&self) -> Option<&str> {
        self.gave_up.as_deref()
    }

    /// Returns the start time of the run.
    pub fn started(&self) -> Option<Timestamp> {
        self.started
    }

    /// Returns the time of the last event.
    pub fn last(&self) -> Option<Timestamp> {
        self.last
    }

    /// Returns the ending of the run, once it has ended.
    pub fn ending(&self) -> Option<&Ending> {
        self.ending.as_deref()
    }

    /// Returns the current usage of the run. The cost grows with the number of steps.
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

    /// Replaces the plan; the state of retained steps is preserved.
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
    /// Restores a preparation from a session file.
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
            spent: StepUsage::default(),
            error: None,
            activity: Activity::None,
            asks: Vec::new(),
            artifacts: Vec::new(),
        }
    }

    fn described_by(mut self, step: &Step) -> Self {
        self.agent = step.agent.clone();
        self.description = step.description.clone();
        self.before.clear();
        self
    }

    /// Returns the duration: until the step was settled, or until `now` while it runs.
    pub fn took(&self, now: Option<Timestamp>) -> Option<Duration> {
        let until = self.ended.or(now)?;
        Some(until.since(self.started?))
    }
}
