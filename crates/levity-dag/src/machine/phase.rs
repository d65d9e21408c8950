//! The phases of a run, each with the data that exists only in it.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::Arc;

use levity_core::{EffectId, Ending};
use levity_graph::Drafts;
use levity_tools::Schema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Place;
use super::perform::Work;
use super::rounds::Rejection;
use crate::diff::Diff;
use crate::graph::Graph;
use crate::plan::Plan;
use crate::schedule::Scheduler;
use crate::step::StepId;

/// Where a run stands.
///
/// The steps are saved beside the phase: `S` is `()` in a phase that was read, until it gets its
/// steps.
#[derive(Serialize, Deserialize)]
#[serde(
    rename_all = "snake_case",
    bound(serialize = "", deserialize = "S: Default")
)]
pub(super) enum Phase<S = Scheduler> {
    /// The run has not begun.
    Start {
        /// The plan it begins with, when it was checked already.
        #[serde(skip)]
        checked: Option<Box<Graph>>,
    },
    /// An agent looks at the files.
    Profiling(EffectId),
    /// The plan is made.
    Planning(Box<PlanQuestion>),
    /// The plan is carried out, and perhaps changed.
    Running(Box<Running<S>>),
    /// The run has ended.
    Ended {
        ending: Box<Ending>,
        /// The steps as they were then, if there was a plan.
        #[serde(skip)]
        steps: Option<Box<S>>,
    },
    /// Within one input: the last phase is over, and the next one is not chosen yet.
    #[serde(skip)]
    Deciding,
}

/// A plan that is carried out.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Running<S = Scheduler> {
    #[serde(skip)]
    pub(super) steps: S,
    /// The schemas of its variables.
    #[serde(skip)]
    pub(super) schemas: BTreeMap<Arc<str>, Schema>,
    /// How many effects of steps are under way, pauses aside.
    #[serde(skip)]
    pub(super) busy: usize,
    /// The steps under way, by number.
    pub(super) works: BTreeMap<u32, Box<Work>>,
    /// The effects of steps under way.
    pub(super) doing: BTreeMap<EffectId, (Place, Doing)>,
    /// Steps whose pause is over, and that wait for their turn.
    pub(super) again: VecDeque<Place>,
    /// What judges have sent back, by their steps.
    pub(super) rejections: BTreeMap<StepId, Rejection>,
    pub(super) replanning: Replanning,
}

/// The search for another way while steps run.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Replanning {
    #[default]
    Idle,
    /// A change of the plan is made.
    Asking(Box<PlanQuestion>),
    /// No other way was found once, and none is looked for any more.
    GaveUp,
}

/// What an effect of a step is for.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Doing {
    /// The step itself.
    Perform,
    /// Code that the step's agent wrote, and what it gave with it.
    Code(Value),
    /// A person is asked whether a tool may be called.
    Permit,
    /// The pause before the next attempt.
    Pause,
}

/// An open question about a plan, or a change of it, that is being made.
#[derive(Serialize, Deserialize)]
pub(super) struct PlanQuestion {
    pub(super) effect: EffectId,
    pub(super) to: Respondent,
    pub(super) planning: Planning,
}

/// Who is asked about a plan.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Respondent {
    /// The planner, for the plan.
    Planner,
    /// A person, whether this may be carried out.
    Person(Proposal),
}

/// A plan, or a change of it, that a person is asked about.
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
    /// How often a person has put something in its place that cannot be carried out.
    pub(super) edits: u32,
    /// The failed steps that a change is for.
    pub(super) failed: Vec<StepId>,
    /// What came whole of replies that were cut off, and how many there were.
    pub(super) kept: Map<String, Value>,
    pub(super) pieces: u32,
}

/// What an outcome is for.
pub(super) enum Awaited {
    Profiles,
    Plan(Box<PlanQuestion>),
    Step(Place, Doing),
}

impl Phase {
    /// The steps, once there is a plan.
    pub(super) fn steps(&self) -> Option<&Scheduler> {
        match self {
            Self::Running(running) => Some(&running.steps),
            Self::Ended { steps, .. } => steps.as_deref(),
            _ => None,
        }
    }

    pub(super) fn running(&self) -> Option<&Running> {
        if let Self::Running(running) = self {
            Some(running)
        } else {
            None
        }
    }

    pub(super) fn running_mut(&mut self) -> Option<&mut Running> {
        if let Self::Running(running) = self {
            Some(running)
        } else {
            None
        }
    }

    /// The last of the effects that it waits for.
    pub(super) fn last_effect(&self) -> Option<EffectId> {
        match self {
            Self::Profiling(effect) => Some(*effect),
            Self::Planning(question) => Some(question.effect),
            Self::Running(running) => running
                .doing
                .keys()
                .next_back()
                .copied()
                .max(running.question()),
            _ => None,
        }
    }

    /// Waits for an answer about a plan: in a phase of its own, or for a change while steps run.
    pub(super) fn wait_for(&mut self, question: PlanQuestion) {
        let question = Box::new(question);
        match self {
            Self::Running(running) => running.replanning = Replanning::Asking(question),
            _ => *self = Self::Planning(question),
        }
    }

    /// Ends the wait for an effect, if this is one that it waits for.
    pub(super) fn take(&mut self, effect: EffectId) -> Option<Awaited> {
        match mem::replace(self, Self::Deciding) {
            Self::Profiling(asked) if asked == effect => Some(Awaited::Profiles),
            Self::Planning(question) if question.effect == effect => Some(Awaited::Plan(question)),
            other => {
                *self = other;
                self.running_mut()?.take(effect)
            }
        }
    }

    /// Ends the run.
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
    /// A phase that was read, with its steps; nothing when it has none and needs them, or the other
    /// way round.
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

impl Running<()> {
    fn with_steps(self, steps: Scheduler) -> Running {
        let Self {
            works,
            doing,
            again,
            rejections,
            replanning,
            ..
        } = self;
        let busy = doing.values().filter(|(_, doing)| doing.is_busy()).count();
        let schemas = schemas(steps.graph().plan());
        Running {
            steps,
            schemas,
            busy,
            works,
            doing,
            again,
            rejections,
            replanning,
        }
    }
}

impl Running {
    pub(super) fn new(steps: Scheduler) -> Self {
        Running::<()>::default().with_steps(steps)
    }

    /// The effect of the question about a change, if there is one.
    fn question(&self) -> Option<EffectId> {
        if let Replanning::Asking(question) = &self.replanning {
            Some(question.effect)
        } else {
            None
        }
    }

    /// Waits for an effect of a step.
    pub(super) fn wait_for(&mut self, effect: EffectId, place: Place, doing: Doing) {
        self.busy += usize::from(doing.is_busy());
        self.doing.insert(effect, (place, doing));
    }

    fn take(&mut self, effect: EffectId) -> Option<Awaited> {
        if let Some((place, doing)) = self.doing.remove(&effect) {
            self.busy -= usize::from(doing.is_busy());
            return Some(Awaited::Step(place, doing));
        }
        match mem::take(&mut self.replanning) {
            Replanning::Asking(question) if question.effect == effect => {
                Some(Awaited::Plan(question))
            }
            other => {
                self.replanning = other;
                None
            }
        }
    }

    /// Nothing is left to do.
    pub(super) fn is_done(&self) -> bool {
        self.steps.schedule.is_done() && self.doing.is_empty() && self.question().is_none()
    }

    /// Puts the steps that have more elements to begin among those that may begin.
    pub(super) fn go_on_with_lists(&mut self) {
        let has_more = |work: &Work| work.fan.as_ref().is_some_and(|fan| fan.has_more());
        let lists = self.works.iter().filter(|(_, work)| has_more(work));
        lists.for_each(|(at, _)| self.steps.push(*at));
    }

    /// The plan after a change, which was made for the sake of these steps.
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
        let effects = changed.doing.values_mut().map(|(place, _)| place);
        effects
            .chain(&mut changed.again)
            .for_each(|place| place.at = new(place.at).unwrap_or(u32::MAX));
        changed
    }
}

impl Doing {
    /// Whether a step is at work meanwhile.
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
