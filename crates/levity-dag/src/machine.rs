//! The state machine of a team's run, without I/O and without a clock.
//!
//! A run passes through the phases of [`phase::Phase`]: files are profiled, a plan is made, the
//! plan is carried out, the run ends. Each input either changes the phase or the state of one step,
//! and may request effects. `pump` then starts steps until the parallel limit is reached.
//!
//! Invariants: every requested effect is in the phase until its outcome arrives, so a saved state
//! names all work in progress. Effect numbers grow by one and are never reused. The same inputs in
//! the same order give the same effects, events and ending, which is the base of resume, replay and
//! fork.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use levity_builtin_tools::profile::FileManifest;
use levity_core::{
    Effect, EffectId, Ending, Failure, Input, Limit, Limits, Machine, MachineKind, MachineOutput,
    Media, Outcome, RunId, Stats, Status, Usage,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::constraints::PlanConstraints;
use crate::diff::Diff;
use crate::graph::Graph;
use crate::notice::PlanNotice;
use crate::plan::Plan;
use crate::schedule::{Skip, SkippedStep};
use crate::starting_plan::CompletedStep;
use crate::step::{Step, StepId};

mod approve;
mod ending;
mod fan_out;
mod partial_reply;
mod perform;
mod phase;
mod plan;
mod planner_brief;
mod rounds;
mod save;
mod stranded;

pub(crate) use perform::{AUTHOR, TIMEOUT};
use phase::{EffectPurpose, Phase, RunningPlan, StepEffect};
pub(crate) use plan::{FILES, QUERY};

const KIND: &str = "graph";
const VERSION: u32 = 1;

/// The state machine that carries out a plan: it requests and validates the plan, starts each step
/// as soon as its inputs are ready, and requests a change when steps fail.
///
/// A [`Team`](crate::Team) creates it and holds the agents and functions that run the steps.
pub struct GraphMachine {
    rules: Arc<Rules>,
    start: Arc<Start>,
    phase: Phase,
    now: Progress,
}

/// The part of the state that changes and outlives phases.
///
/// The saved names of some fields differ from those in the code. Changing them would make the
/// journals of older versions unreadable.
#[derive(Serialize, Deserialize)]
struct Progress {
    run: RunId,
    /// The number of the next effect.
    next: u64,
    /// The number of replans started.
    replans: u32,
    /// The profiles of the input files.
    profiles: Option<Value>,
    #[serde(rename = "said")]
    messages: Vec<String>,
    /// The limit that is nearly reached, if any: then there are no replans and no retries.
    #[serde(rename = "near")]
    near_limit: Option<Limit>,
    usage: Usage,
    stats: Stats,
}

/// The configuration of a machine, which it shares and does not save.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) known: PlanConstraints,
    pub(crate) planner: Option<PlannerKind>,
    /// The agent that inspects files first.
    pub(crate) profiler: Option<Arc<str>>,
    /// The name of the program that runs code.
    pub(crate) code: Option<Arc<str>>,
}

/// The kinds of planners.
#[derive(Clone, Debug)]
pub(crate) enum PlannerKind {
    /// The agent with this name.
    Agent(Arc<str>),
    /// The planner of the host program.
    Program,
}

/// The tool name under which the host program's planner is called.
pub(crate) const PLAN: &str = "plan";
/// The tool name of the question whether a plan, or a change to it, may be carried out. It is the
/// name of the call in the [`Ask`](levity_core::Ask), whose arguments are the [`Plan`] or the
/// [`Diff`](crate::Diff).
pub const CARRY_OUT: &str = "carry_out_plan";

/// The initial data of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Start {
    pub(crate) goal: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) given: BTreeMap<Arc<str>, Value>,
    /// The description of the input files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) files: Option<FileManifest>,
    /// The images and other media of the goal.
    #[serde(default, skip_serializing_if = "has_no_media")]
    pub(crate) media: Arc<[Media]>,
    /// The plan, if the run starts with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) plan: Option<Arc<Plan>>,
    /// The steps that are already completed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) done: Vec<CompletedStep>,
    /// The limits of the run, against which plans are validated.
    #[serde(default)]
    pub(crate) limits: Limits,
    pub(crate) settings: Settings,
}

fn has_no_media(media: &[Media]) -> bool {
    media.is_empty()
}

/// The settings of a run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) parallel: usize,
    pub(crate) replans: u32,
    /// The number of drafts that the planner may submit for one request.
    pub(crate) drafts: u32,
    /// The maximum number of turns for an attempt at a step, over all rounds.
    pub(crate) turns: u64,
    /// `true` if plans and changes need human approval.
    pub(crate) approve: bool,
    /// The maximum number of replies for one plan. Runs that were started without this setting
    /// accept a plan in one reply only.
    #[serde(default = "one")]
    pub(crate) pieces: u32,
    /// `true` if code that an agent wrote calls that agent's tools. In runs that were started
    /// without this setting, it calls the tools of the team.
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

/// A step, or one element of its fan-out list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) at: u32,
    pub(crate) item: Option<u32>,
}

/// A validated plan, or a validated change to one.
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
            messages: Vec::new(),
            near_limit: None,
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
            "the run is of kind `{kind}`, but this team resumes `{KIND}/{VERSION}`"
        ))
    }

    pub(crate) fn restore(rules: Arc<Rules>, state: &Value) -> Result<Self, String> {
        let start = Start::deserialize(state)
            .map_err(|error| format!("cannot read the saved state: {error}"))?;
        Self::new(rules, start).resumed(state)
    }

    /// The caller must store the returned id in the phase before the input ends, or the outcome is
    /// ignored.
    fn request(&mut self, effect: Effect, out: &mut MachineOutput) -> EffectId {
        let id = EffectId::new(self.now.next);
        self.now.next += 1;
        out.request(id, effect);
        id
    }

    fn request_for(
        &mut self,
        place: Place,
        doing: StepEffect,
        effect: Effect,
        out: &mut MachineOutput,
    ) -> EffectId {
        let id = self.request(effect, out);
        if let Some(running) = self.phase.running_mut() {
            running.wait_for(id, place, doing);
        }
        id
    }

    /// The closure runs only if somebody listens: notices copy plans and outputs, which a run
    /// without observers must not pay for.
    fn notify(out: &mut MachineOutput, notice: impl FnOnce() -> PlanNotice) {
        if out.is_watched() {
            out.emit(notice().into_event());
        }
    }

    fn add_up(&mut self, usage: Usage, stats: &Stats) {
        self.now.usage += usage;
        self.now.stats += *stats;
    }

    fn step(&self, at: u32) -> Option<Arc<Step>> {
        self.phase.steps()?.step(at).cloned()
    }

    /// Returns the id of a step.
    fn id(&self, at: u32) -> StepId {
        self.step(at)
            .map_or_else(|| StepId::new(""), |step| step.id.clone())
    }

    fn notify_skipped(&self, skipped: &[SkippedStep], out: &mut MachineOutput) {
        for one in skipped {
            Self::notify(out, || PlanNotice::StepSkipped {
                step: self.id(one.at),
                reason: self.skip_message(one),
            });
        }
    }

    fn skip_message(&self, skipped: &SkippedStep) -> String {
        let by = skipped.cause.map(|cause| self.id(cause));
        match (skipped.reason, by) {
            (Skip::NotNeeded, Some(by)) => format!("`{by}` did not fail"),
            (Skip::Failure | Skip::Tolerated, Some(by)) => format!("`{by}` did not complete"),
            (Skip::Condition, Some(by)) => format!("the edge from `{by}` was not taken"),
            _ => "its condition does not hold".to_owned(),
        }
    }

    /// Starts the steps that may start, and ends the run if nothing remains to do.
    ///
    /// Retries have priority over new steps, because their pause is already over. The loop ends at
    /// the parallel limit; the next outcome calls it again.
    fn pump(&mut self, out: &mut MachineOutput) {
        while let Some(running) = self.phase.running_mut()
            && running.busy < self.start.settings.parallel
        {
            if let Some(place) = running.retry_queue.pop_front() {
                self.perform(place, out);
            } else if let Some(at) = running.steps.schedule.next() {
                self.begin_step(at, out);
            } else {
                break;
            }
        }
        if self.phase.running().is_some_and(RunningPlan::is_done) {
            self.conclude();
        }
    }

    fn handle_finished(&mut self, effect: EffectId, outcome: Outcome, out: &mut MachineOutput) {
        match self.phase.take(effect) {
            Some(EffectPurpose::Profiles) => self.handle_profiles(outcome, out),
            Some(EffectPurpose::Plan(question)) => self.handle_answer(*question, outcome, out),
            Some(EffectPurpose::Step(place, StepEffect::Perform)) => {
                self.handle_step_outcome(place, outcome, out);
            }
            Some(EffectPurpose::Step(place, StepEffect::Code(output))) => {
                self.handle_code_result(place, output, outcome, out);
            }
            Some(EffectPurpose::Step(place, StepEffect::Permit)) => {
                self.handle_permission(place, outcome, out);
            }
            Some(EffectPurpose::Step(place, StepEffect::Pause)) => {
                if let Some(running) = self.phase.running_mut() {
                    running.retry_queue.push_back(place);
                }
            }
            None => return,
        }
        self.pump(out);
    }
}

impl Machine for GraphMachine {
    fn kind(&self) -> MachineKind {
        MachineKind::new(KIND, VERSION)
    }

    fn save(&self) -> Value {
        self.saved()
    }

    fn apply(&mut self, input: Input, out: &mut MachineOutput) {
        if self.ending().is_some() {
            return;
        }
        match input {
            Input::Begin { run, wrap } => self.begin(run, wrap, out),
            Input::Finished { effect, outcome } => self.handle_finished(effect, outcome, out),
            Input::Say(message) => self.now.messages.push(message.text().into_owned()),
            Input::FinishSoon(limit) => self.now.near_limit = Some(limit),
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

    fn partial_ending(&self, status: Status) -> Ending {
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

/// Returns the status of a run that failed as a whole.
fn unreached(reason: impl Into<String>) -> Status {
    Status::Failed(Failure::GoalNotReached(reason.into()))
}

#[cfg(test)]
mod tests;
