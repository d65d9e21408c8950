//! The phases of a run, each with the data that exists only in it.
//!
//! A value that exists only in one phase, such as the question to a planner, is a field of that
//! phase and not an `Option` beside it. A replan is the exception: it is part of [`RunningPlan`],
//! because steps continue while the planner thinks.
//!
//! The scheduler is saved separately (`machine/save.rs`), so the types are generic over it: `S` is
//! `()` right after deserialization, and a state without its steps cannot be used by mistake.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::Arc;

use levity_core::{EffectId, Ending};
use levity_graph::Drafts;
use levity_tools::Schema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Place;
use super::perform::RunningStep;
use super::rounds::Rejection;
use crate::diff::Diff;
use crate::graph::Graph;
use crate::plan::Plan;
use crate::schedule::Scheduler;
use crate::step::StepId;

/// The current phase of a run.
///
/// The steps are saved beside the phase: `S` is `()` in a deserialized phase until it gets its
/// steps.
#[derive(Serialize, Deserialize)]
#[serde(
    rename_all = "snake_case",
    bound(serialize = "", deserialize = "S: Default")
)]
pub(super) enum Phase<S = Scheduler> {
    /// The run has not started.
    Start {
        /// The initial plan, if it is already validated.
        #[serde(skip)]
        checked: Option<Box<Graph>>,
    },
    /// An agent inspects the files.
    Profiling(EffectId),
    /// The plan is being made.
    Planning(Box<PlanQuestion>),
    /// The plan is being carried out, and possibly changed.
    Running(Box<RunningPlan<S>>),
    /// The run has ended.
    Ended {
        ending: Box<Ending>,
        /// The final state of the steps, if there was a plan.
        #[serde(skip)]
        steps: Option<Box<S>>,
    },
    /// A transient state within one input: the last phase is over, and the next one is not chosen
    /// yet.
    #[serde(skip)]
    Deciding,
}

/// A plan that is being carried out.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct RunningPlan<S = Scheduler> {
    #[serde(skip)]
    pub(super) steps: S,
    /// The schemas of its variables.
    #[serde(skip)]
    pub(super) schemas: BTreeMap<Arc<str>, Schema>,
    /// The number of step effects in progress, without pauses.
    #[serde(skip)]
    pub(super) busy: usize,
    /// The steps in progress, by number.
    pub(super) works: BTreeMap<u32, Box<RunningStep>>,
    /// The step effects in progress.
    #[serde(rename = "doing")]
    pub(super) effects: BTreeMap<EffectId, (Place, StepEffect)>,
    /// The steps whose pause is over and that wait for a free slot.
    #[serde(rename = "again")]
    pub(super) retry_queue: VecDeque<Place>,
    /// The rejections by judges, keyed by the judge's step.
    pub(super) rejections: BTreeMap<StepId, Rejection>,
    pub(super) replanning: Replanning,
}

/// The state of a replan while steps run.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Replanning {
    #[default]
    Idle,
    /// A change to the plan is being made.
    Asking(Box<PlanQuestion>),
    /// A replan found no other way, so there are no further replans.
    GaveUp,
}

/// The purpose of a step effect.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StepEffect {
    /// Performs the step itself.
    Perform,
    /// Runs code that the step's agent wrote; contains the agent's output.
    Code(Value),
    /// Asks a person whether a tool may be called.
    Permit,
    /// Waits before the next attempt.
    Pause,
}

/// A pending question about a plan, or a change to it, that is being made.
#[derive(Serialize, Deserialize)]
pub(super) struct PlanQuestion {
    pub(super) effect: EffectId,
    pub(super) to: Respondent,
    pub(super) planning: Planning,
}

/// The recipient of a question about a plan.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Respondent {
    /// The planner, which makes the plan.
    Planner,
    /// A person, who approves the proposal.
    Person(Proposal),
}

/// A plan, or a change to it, that needs human approval.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Proposal {
    Plan(Arc<Plan>),
    Change(Diff),
}

/// A plan or a change that is being made.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Planning {
    pub(super) drafts: Drafts,
    /// The number of invalid edits by a person.
    pub(super) edits: u32,
    /// The failed steps that a change is made for.
    pub(super) failed: Vec<StepId>,
    /// The complete parts of replies that were cut off.
    pub(super) kept: Map<String, Value>,
    pub(super) pieces: u32,
}

/// The purpose of an awaited effect.
pub(super) enum EffectPurpose {
    Profiles,
    Plan(Box<PlanQuestion>),
    Step(Place, StepEffect),
}

impl Phase {
    /// Returns the steps, once there is a plan.
    pub(super) fn steps(&self) -> Option<&Scheduler> {
        match self {
            Self::Running(running) => Some(&running.steps),
            Self::Ended { steps, .. } => steps.as_deref(),
            _ => None,
        }
    }

    pub(super) fn running(&self) -> Option<&RunningPlan> {
        if let Self::Running(running) = self {
            Some(running)
        } else {
            None
        }
    }

    pub(super) fn running_mut(&mut self) -> Option<&mut RunningPlan> {
        if let Self::Running(running) = self {
            Some(running)
        } else {
            None
        }
    }

    /// Returns the latest effect that the phase waits for.
    pub(super) fn last_effect(&self) -> Option<EffectId> {
        match self {
            Self::Profiling(effect) => Some(*effect),
            Self::Planning(question) => Some(question.effect),
            Self::Running(running) => running
                .effects
                .keys()
                .next_back()
                .copied()
                .max(running.question()),
            _ => None,
        }
    }

    /// Waits for an answer about a plan: in a separate phase, or for a change while steps run.
    pub(super) fn wait_for(&mut self, question: PlanQuestion) {
        let question = Box::new(question);
        match self {
            Self::Running(running) => running.replanning = Replanning::Asking(question),
            _ => *self = Self::Planning(question),
        }
    }

    /// Stops waiting for an effect, if the phase waits for it.
    ///
    /// An effect that the phase does not wait for gives `None`, and the outcome is ignored. That
    /// happens after a stop, or when a host delivers an outcome twice.
    pub(super) fn take(&mut self, effect: EffectId) -> Option<EffectPurpose> {
        match mem::replace(self, Self::Deciding) {
            Self::Profiling(pending) if pending == effect => Some(EffectPurpose::Profiles),
            Self::Planning(question) if question.effect == effect => {
                Some(EffectPurpose::Plan(question))
            }
            other => {
                *self = other;
                self.running_mut()?.take(effect)
            }
        }
    }

    /// Ends the run and retains the steps, if there are any.
    pub(super) fn end(&mut self, ending: Ending) {
        let steps = match mem::replace(self, Self::Deciding) {
            Self::Running(running) => Some(Box::new(running.steps)),
            _ => None,
        };
        *self = Self::Ended {
            ending: Box::new(ending),
            steps,
        };
    }
}

impl Phase<()> {
    /// Adds the steps to a deserialized phase. Returns `None` if the phase needs steps and there
    /// are none, or the reverse.
    pub(super) fn with_steps(self, steps: Option<Scheduler>) -> Option<Phase> {
        Some(match (self, steps) {
            (Self::Start { checked }, None) => Phase::Start { checked },
            (Self::Profiling(effect), None) => Phase::Profiling(effect),
            (Self::Planning(question), None) => Phase::Planning(question),
            (Self::Running(running), Some(steps)) => {
                Phase::Running(Box::new(running.with_steps(steps)))
            }
            (Self::Ended { ending, .. }, steps) => Phase::Ended {
                ending,
                steps: steps.map(Box::new),
            },
            _ => return None,
        })
    }
}

impl RunningPlan<()> {
    fn with_steps(self, steps: Scheduler) -> RunningPlan {
        let Self {
            works,
            effects,
            retry_queue,
            rejections,
            replanning,
            ..
        } = self;
        let busy = effects
            .values()
            .filter(|(_, effect)| effect.is_busy())
            .count();
        let schemas = schemas(steps.graph().plan());
        RunningPlan {
            steps,
            schemas,
            busy,
            works,
            effects,
            retry_queue,
            rejections,
            replanning,
        }
    }
}

impl RunningPlan {
    pub(super) fn new(steps: Scheduler) -> Self {
        RunningPlan::<()>::default().with_steps(steps)
    }

    /// Returns the effect of the question about a change, if there is one.
    fn question(&self) -> Option<EffectId> {
        if let Replanning::Asking(question) = &self.replanning {
            Some(question.effect)
        } else {
            None
        }
    }

    /// Waits for a step effect.
    pub(super) fn wait_for(&mut self, effect: EffectId, place: Place, doing: StepEffect) {
        self.busy += usize::from(doing.is_busy());
        self.effects.insert(effect, (place, doing));
    }

    fn take(&mut self, effect: EffectId) -> Option<EffectPurpose> {
        if let Some((place, doing)) = self.effects.remove(&effect) {
            self.busy -= usize::from(doing.is_busy());
            return Some(EffectPurpose::Step(place, doing));
        }
        match mem::take(&mut self.replanning) {
            Replanning::Asking(question) if question.effect == effect => {
                Some(EffectPurpose::Plan(question))
            }
            other => {
                self.replanning = other;
                None
            }
        }
    }

    /// Returns `true` if nothing remains to do.
    pub(super) fn is_done(&self) -> bool {
        self.steps.schedule.is_done() && self.effects.is_empty() && self.question().is_none()
    }

    /// Puts fan-out steps with remaining elements back into the queue.
    pub(super) fn requeue_fan_outs(&mut self) {
        let has_more = |work: &RunningStep| work.fan.as_ref().is_some_and(|fan| fan.has_more());
        let lists = self.works.iter().filter(|(_, work)| has_more(work));
        lists.for_each(|(at, _)| self.steps.push(*at));
    }

    /// Returns the plan after a change that was made for these failed steps.
    ///
    /// Numbers of steps change with the plan, so every stored place is translated. A place without
    /// a new number becomes `u32::MAX`, which no step has; a started step is never removed, so this
    /// is a guard against damaged state only.
    pub(super) fn changed(self, graph: Graph, failed: &[StepId]) -> Self {
        let (steps, places) = self.steps.changed(graph, failed);
        let schemas = schemas(steps.graph().plan());
        let new = |at: u32| places.get(at as usize).copied().flatten();
        let works = self
            .works
            .into_iter()
            .filter_map(|(at, work)| Some((new(at)?, work)))
            .collect();
        let mut changed = Self {
            steps,
            schemas,
            works,
            ..self
        };
        let places = changed.effects.values_mut().map(|(place, _)| place);
        places
            .chain(&mut changed.retry_queue)
            .for_each(|place| place.at = new(place.at).unwrap_or(u32::MAX));
        changed
    }
}

impl StepEffect {
    /// Returns `true` if the effect occupies a parallel slot.
    fn is_busy(&self) -> bool {
        !matches!(self, Self::Pause)
    }
}

fn schemas(plan: &Plan) -> BTreeMap<Arc<str>, Schema> {
    let schemas = plan.variables.iter().filter_map(|(name, variable)| {
        let schema = Schema::new(variable.schema.as_ref()?).ok()?;
        Some((name.clone(), schema))
    });
    schemas.collect()
}
