use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use levity_builtin_tools::profile::Manifest;
use levity_core::{
    Effect, EffectId, Ending, EventKind, Failure, Input, Limit, Limits, Machine, MachineKind, MachineOutput,
    Outcome, RunId, Stats, Status, Usage,
};
use levity_graph::Drafts;
use levity_tools::Schema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::diff::Diff;
use crate::graph::Graph;
use crate::known::PlanConstraints;
use crate::notice::PlanNotice;
use crate::plan::Plan;
use crate::schedule::{Scheduler, Skip, Skipped};
use crate::seed::CompletedStep;
use crate::step::StepId;

mod approve;
mod brief;
mod end;
mod fan;
mod perform;
mod pieces;
mod plan;
mod rescue;
mod rounds;
mod save;

use perform::Work;
pub(crate) use perform::{AUTHOR, TIMEOUT};

pub(crate) use plan::FILES;
use rounds::Rejection;

const KIND: &str = "graph";
const VERSION: u32 = 1;

/// Carries a plan out: has it made, checks it, begins each step as soon as its inputs are ready, and has it changed
/// when steps fail.
///
/// It is made by a [`Team`](crate::Team), which has the agents and functions that do the steps.
pub struct GraphMachine {
    rules: Arc<Rules>,
    start: Arc<Start>,
    /// The plan it begins with, when it was checked already.
    checked: Option<Graph>,
    steps: Option<Scheduler>,
    schemas: BTreeMap<Arc<str>, Schema>,
    /// How many effects of steps are under way.
    running: usize,
    /// `true` once the machine has taken in an input.
    fed: bool,
    now: Progress,
}

/// The part of the state that changes while a plan is carried out, beside its steps.
#[derive(Debug, Serialize, Deserialize)]
struct Progress {
    begun: bool,
    run: RunId,
    next: u64,
    /// The steps under way, by number.
    works: BTreeMap<u32, Box<Work>>,
    doing: BTreeMap<EffectId, Doing>,
    /// Steps whose pause is over, and that wait for their turn.
    again: VecDeque<Place>,
    planning: Option<Planning>,
    replans: u32,
    /// No other way was found once, and none is looked for any more.
    gave_up: bool,
    /// What was found out about the files.
    profiles: Option<Value>,
    said: Vec<String>,
    /// What judges have sent back, by their steps.
    rejections: BTreeMap<StepId, Rejection>,
    /// A limit is near: no other ways are looked for, and nothing is tried again.
    near: Option<Limit>,
    usage: Usage,
    stats: Stats,
    ending: Option<Ending>,
}

/// What a machine goes by that is not its own to keep.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) known: PlanConstraints,
    pub(crate) planner: Option<PlannedBy>,
    /// The agent that looks at files first.
    pub(crate) profiler: Option<Arc<str>>,
    /// The program that runs code.
    pub(crate) code: Option<Arc<str>>,
}

/// Who makes plans.
#[derive(Clone, Debug)]
pub(crate) enum PlannedBy {
    /// An agent of this name.
    Agent(Arc<str>),
    /// The program's own planner.
    Program,
}

/// The name under which the program's own planner is called.
pub(crate) const PLAN: &str = "plan";
/// The name under which a person is asked whether a plan, or a change of it, may be carried out: that of the call in the
/// [`Ask`](levity_core::Ask), whose arguments are the [`Plan`] or the [`Diff`](crate::Diff).
pub const CARRY_OUT: &str = "carry_out_plan";

/// All that a run began with.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Start {
    pub(crate) goal: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) given: BTreeMap<Arc<str>, Value>,
    /// What is known of the files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) files: Option<Manifest>,
    /// The plan, when there is one already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) plan: Option<Arc<Plan>>,
    /// Steps that are done already.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) done: Vec<CompletedStep>,
    /// What the run may use, by which plans are checked.
    #[serde(default)]
    pub(crate) limits: Limits,
    pub(crate) settings: Settings,
}

/// How a run is to go.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) parallel: usize,
    pub(crate) replans: u32,
    /// How often the planner is asked for the same thing.
    pub(crate) drafts: u32,
    /// How many turns an attempt at a step may take, all rounds together.
    pub(crate) turns: u64,
    /// Whether a person is asked about plans and changes.
    pub(crate) approve: bool,
    /// How many replies one plan may be made of. Runs that were begun without it know plans in one reply only, and go on
    /// as they began.
    #[serde(default = "one")]
    pub(crate) pieces: u32,
    /// Whether code that an agent wrote calls the tools of that agent. In runs that were begun without it, it calls those of
    /// the team.
    #[serde(default)]
    pub(crate) own_tools: bool,
}

fn one() -> u32 {
    1
}

impl Default for Settings {
    fn default() -> Self {
        Self { parallel: 16, replans: 3, drafts: 3, turns: 15, approve: false, pieces: 12, own_tools: true }
    }
}

/// A step, or one element of the list that it is run for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) at: u32,
    pub(crate) item: Option<u32>,
}

/// What an effect is for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Doing {
    Profile,
    Plan,
    Approve,
    /// The step itself.
    Perform(Place),
    /// Code that the step's agent wrote, and what it gave with it.
    Code(Place, Value),
    /// A person is asked whether a tool may be called.
    Permit(Place),
    /// The pause before the next attempt.
    Pause(Place),
}

/// A plan or a change that is being made.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Planning {
    /// Which replan, from 1; 0 for the plan itself.
    replan: u32,
    drafts: Drafts,
    /// How often a person has put something in its place that cannot be carried out.
    edits: u32,
    /// The failed steps that it is for.
    failed: Vec<StepId>,
    /// What came whole of replies that were cut off, and how many there were.
    kept: Map<String, Value>,
    pieces: u32,
    /// What a person is asked about.
    proposal: Option<Proposal>,
}

/// A plan, or a change of it, that a person is asked about.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Proposal {
    Plan(Arc<Plan>),
    Change(Diff),
}

/// A plan that was checked.
#[derive(Debug)]
struct Draft {
    diff: Option<Diff>,
    graph: Graph,
}

impl GraphMachine {
    pub(crate) fn new(rules: Arc<Rules>, start: Start) -> Self {
        let now = Progress {
            begun: false,
            run: RunId::new(""),
            next: 0,
            works: BTreeMap::new(),
            doing: BTreeMap::new(),
            again: VecDeque::new(),
            planning: None,
            replans: 0,
            gave_up: false,
            profiles: None,
            said: Vec::new(),
            rejections: BTreeMap::new(),
            near: None,
            usage: Usage::default(),
            stats: Stats::default(),
            ending: None,
        };
        Self {
            rules,
            start: Arc::new(start),
            checked: None,
            steps: None,
            schemas: BTreeMap::new(),
            running: 0,
            fed: false,
            now,
        }
    }

    pub(crate) fn check_kind(kind: &MachineKind) -> Result<(), String> {
        if *kind == MachineKind::new(KIND, VERSION) {
            return Ok(());
        }
        Err(format!("it is a run of `{kind}`, and this one drives `{KIND}/{VERSION}`"))
    }

    pub(crate) fn restore(rules: Arc<Rules>, state: &Value) -> Result<Self, String> {
        let start =
            Start::deserialize(state).map_err(|error| format!("its state cannot be read: {error}"))?;
        Self::new(rules, start).resumed(state)
    }

    fn want(&mut self, effect: Effect, doing: Doing, wants: &mut MachineOutput) -> EffectId {
        let id = EffectId::new(self.now.next);
        self.now.next += 1;
        self.now.doing.insert(id, doing);
        wants.want(id, effect);
        id
    }

    fn tell(wants: &mut MachineOutput, notice: impl FnOnce() -> PlanNotice) {
        if wants.is_watched() {
            wants.tell(notice().into_event());
        }
    }

    fn add_up(&mut self, usage: Usage, stats: &Stats) {
        self.now.usage += usage;
        self.now.stats += *stats;
    }

    /// The id of a step.
    fn id(&self, at: u32) -> StepId {
        let step = self.steps.as_ref().and_then(|steps| steps.step(at));
        step.map_or_else(|| StepId::new(""), |step| step.id.clone())
    }

    fn tell_skipped(&self, skipped: &[Skipped], wants: &mut MachineOutput) {
        for one in skipped {
            Self::tell(wants, || PlanNotice::StepSkipped { step: self.id(one.at), why: self.why(one) });
        }
    }

    fn why(&self, skipped: &Skipped) -> String {
        let by = skipped.by.map(|by| self.id(by));
        match (skipped.why, by) {
            (Skip::NotNeeded, Some(by)) => format!("`{by}` did not fail"),
            (Skip::Failure | Skip::Tolerated, Some(by)) => format!("`{by}` was not done"),
            (Skip::Condition, Some(by)) => format!("the way from `{by}` was not taken"),
            _ => "its condition does not hold".to_owned(),
        }
    }

    /// Begins what may begin, and ends when there is nothing left to do.
    fn pump(&mut self, wants: &mut MachineOutput) {
        while self.now.ending.is_none() && self.running < self.start.settings.parallel {
            if let Some(place) = self.now.again.pop_front() {
                self.perform(place, wants);
                continue;
            }
            match self.steps.as_mut().and_then(|steps| steps.schedule.next()) {
                Some(at) => self.begin_step(at, wants),
                None => break,
            }
        }
        self.end_if_done();
    }

    fn end_if_done(&mut self) {
        let Some(steps) = self.steps.as_ref().filter(|_| self.now.ending.is_none()) else { return };
        if steps.schedule.is_done() && self.now.doing.is_empty() && self.now.planning.is_none() {
            self.conclude();
        }
    }

    fn finished(&mut self, doing: Doing, outcome: Outcome, wants: &mut MachineOutput) {
        match doing {
            Doing::Profile => self.profiled(outcome, wants),
            Doing::Plan => self.planned(outcome, wants),
            Doing::Approve => self.approved(outcome, wants),
            Doing::Perform(place) => self.performed(place, outcome, wants),
            Doing::Code(place, output) => self.ran_code(place, output, outcome, wants),
            Doing::Permit(place) => self.permitted(place, outcome, wants),
            Doing::Pause(place) => self.now.again.push_back(place),
        }
        self.pump(wants);
    }
}

impl Machine for GraphMachine {
    fn kind(&self) -> MachineKind {
        MachineKind::new(KIND, VERSION)
    }

    fn save(&self) -> Value {
        self.saved()
    }

    fn apply(&mut self, input: Input, wants: &mut MachineOutput) {
        self.fed = true;
        if self.now.ending.is_some() {
            return;
        }
        match input {
            Input::Begin { run, wrap } if !self.now.begun => {
                self.now.begun = true;
                self.now.run = run;
                self.now.near = wrap;
                if wants.is_watched() {
                    wants.tell(EventKind::Goal { text: self.start.goal.clone() });
                }
                self.begin(wants);
                self.pump(wants);
            }
            Input::Finished { effect, outcome } => {
                if let Some(doing) = self.now.doing.remove(&effect) {
                    self.finished(doing, outcome, wants);
                }
            }
            Input::Say(message) => self.now.said.push(message.text().into_owned()),
            Input::Wrap(limit) => self.now.near = Some(limit),
            Input::Stop(limit) => self.stop(Status::Partial(limit)),
            Input::Cancel { reason } => self.stop(Status::Cancelled { reason }),
            _ => {}
        }
    }

    fn ending(&self) -> Option<&Ending> {
        self.now.ending.as_ref()
    }

    fn so_far(&self, status: Status) -> Ending {
        self.ending_now(status)
    }
}

impl fmt::Debug for GraphMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GraphMachine")
            .field("run", &self.now.run)
            .field("running", &self.running)
            .field("ending", &self.now.ending.as_ref().map(|ending| &ending.status))
            .finish_non_exhaustive()
    }
}

/// The run failed as a whole.
fn unreached(why: impl Into<String>) -> Status {
    Status::Failed(Failure::Unreached(why.into()))
}

#[cfg(test)]
mod tests;
