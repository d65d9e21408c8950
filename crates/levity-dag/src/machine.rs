use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use levity_builtin_tools::profile::Manifest;
use levity_core::{
    Effect, EffectId, Ending, Failure, Input, Limit, Limits, Machine, MachineKind, MachineOutput,
    Outcome, RunId, Stats, Status, Usage,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::diff::Diff;
use crate::graph::Graph;
use crate::known::PlanConstraints;
use crate::notice::PlanNotice;
use crate::plan::Plan;
use crate::schedule::{Skip, Skipped};
use crate::seed::CompletedStep;
use crate::step::{Step, StepId};

mod approve;
mod brief;
mod end;
mod fan;
mod perform;
mod phase;
mod pieces;
mod plan;
mod rescue;
mod rounds;
mod save;

pub(crate) use perform::{AUTHOR, TIMEOUT};
use phase::{Awaited, Doing, Phase, Running};
pub(crate) use plan::FILES;

const KIND: &str = "graph";
const VERSION: u32 = 1;

/// Carries a plan out: has it made, checks it, begins each step as soon as its inputs are ready,
/// and has it changed when steps fail.
///
/// It is made by a [`Team`](crate::Team), which has the agents and functions that do the steps.
pub struct GraphMachine {
    rules: Arc<Rules>,
    start: Arc<Start>,
    phase: Phase,
    now: Progress,
}

/// The part of the state that changes and outlives phases.
#[derive(Serialize, Deserialize)]
struct Progress {
    run: RunId,
    /// The number of the next effect.
    next: u64,
    /// How many times the plan was to be changed.
    replans: u32,
    /// What was found out about the files.
    profiles: Option<Value>,
    said: Vec<String>,
    /// A limit is near: no other ways are looked for, and nothing is tried again.
    near: Option<Limit>,
    usage: Usage,
    stats: Stats,
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
/// The name under which a person is asked whether a plan, or a change of it, may be carried out:
/// that of the call in the [`Ask`](levity_core::Ask), whose arguments are the [`Plan`] or the
/// [`Diff`](crate::Diff).
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
    /// How many replies one plan may be made of. Runs that were begun without it know plans in one
    /// reply only, and go on as they began.
    #[serde(default = "one")]
    pub(crate) pieces: u32,
    /// Whether code that an agent wrote calls the tools of that agent. In runs that were begun
    /// without it, it calls those of the team.
    #[serde(default)]
    pub(crate) own_tools: bool,
}

fn one() -> u32 {
    1
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            parallel: 16,
            replans: 3,
            drafts: 3,
            turns: 15,
            approve: false,
            pieces: 12,
            own_tools: true,
        }
    }
}

/// A step, or one element of the list that it is run for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) at: u32,
    pub(crate) item: Option<u32>,
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
            run: RunId::new(""),
            next: 0,
            replans: 0,
            profiles: None,
            said: Vec::new(),
            near: None,
            usage: Usage::default(),
            stats: Stats::default(),
        };
        Self {
            rules,
            start: Arc::new(start),
            phase: Phase::Start { checked: None },
            now,
        }
    }

    pub(crate) fn check_kind(kind: &MachineKind) -> Result<(), String> {
        if *kind == MachineKind::new(KIND, VERSION) {
            return Ok(());
        }
        Err(format!(
            "it is a run of `{kind}`, and this one drives `{KIND}/{VERSION}`"
        ))
    }

    pub(crate) fn restore(rules: Arc<Rules>, state: &Value) -> Result<Self, String> {
        let start = Start::deserialize(state)
            .map_err(|error| format!("its state cannot be read: {error}"))?;
        Self::new(rules, start).resumed(state)
    }

    fn want(&mut self, effect: Effect, wants: &mut MachineOutput) -> EffectId {
        let id = EffectId::new(self.now.next);
        self.now.next += 1;
        wants.want(id, effect);
        id
    }

    fn want_for(
        &mut self,
        place: Place,
        doing: Doing,
        effect: Effect,
        wants: &mut MachineOutput,
    ) -> EffectId {
        let id = self.want(effect, wants);
        if let Some(running) = self.phase.running_mut() {
            running.wait_for(id, place, doing);
        }
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

    fn step(&self, at: u32) -> Option<Arc<Step>> {
        self.phase.steps()?.step(at).cloned()
    }

    /// The id of a step.
    fn id(&self, at: u32) -> StepId {
        self.step(at)
            .map_or_else(|| StepId::new(""), |step| step.id.clone())
    }

    fn tell_skipped(&self, skipped: &[Skipped], wants: &mut MachineOutput) {
        for one in skipped {
            Self::tell(wants, || PlanNotice::StepSkipped {
                step: self.id(one.at),
                why: self.why(one),
            });
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
        while let Some(running) = self.phase.running_mut()
            && running.busy < self.start.settings.parallel
        {
            if let Some(place) = running.again.pop_front() {
                self.perform(place, wants);
            } else if let Some(at) = running.steps.schedule.next() {
                self.begin_step(at, wants);
            } else {
                break;
            }
        }
        if self.phase.running().is_some_and(Running::is_done) {
            self.conclude();
        }
    }

    fn finished(&mut self, effect: EffectId, outcome: Outcome, wants: &mut MachineOutput) {
        match self.phase.take(effect) {
            Some(Awaited::Profiles) => self.profiled(outcome, wants),
            Some(Awaited::Plan(question)) => self.answered(*question, outcome, wants),
            Some(Awaited::Step(place, Doing::Perform)) => self.performed(place, outcome, wants),
            Some(Awaited::Step(place, Doing::Code(output))) => {
                self.ran_code(place, output, outcome, wants);
            }
            Some(Awaited::Step(place, Doing::Permit)) => self.permitted(place, outcome, wants),
            Some(Awaited::Step(place, Doing::Pause)) => {
                if let Some(running) = self.phase.running_mut() {
                    running.again.push_back(place);
                }
            }
            None => return,
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
        if self.ending().is_some() {
            return;
        }
        match input {
            Input::Begin { run, wrap } => self.begin(run, wrap, wants),
            Input::Finished { effect, outcome } => self.finished(effect, outcome, wants),
            Input::Say(message) => self.now.said.push(message.text().into_owned()),
            Input::Wrap(limit) => self.now.near = Some(limit),
            Input::Stop(limit) => self.stop(Status::Partial(limit)),
            Input::Cancel { reason } => self.stop(Status::Cancelled { reason }),
            _ => {}
        }
    }

    fn ending(&self) -> Option<&Ending> {
        if let Phase::Ended { ending, .. } = &self.phase {
            Some(ending)
        } else {
            None
        }
    }

    fn so_far(&self, status: Status) -> Ending {
        self.ending_now(status)
    }
}

impl fmt::Debug for GraphMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GraphMachine")
            .field("run", &self.now.run)
            .field(
                "busy",
                &self.phase.running().map_or(0, |running| running.busy),
            )
            .field("ending", &self.ending().map(|ending| &ending.status))
            .finish_non_exhaustive()
    }
}

/// The run failed as a whole.
fn unreached(why: impl Into<String>) -> Status {
    Status::Failed(Failure::Unreached(why.into()))
}

#[cfg(test)]
mod tests;
