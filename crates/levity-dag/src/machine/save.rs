//! The state of a machine, to be saved and restored between any two inputs.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Doing, GraphMachine, Place, Progress};
use crate::graph::{Graph, Wiring};
use crate::notice::StepStatus;
use crate::plan::Plan;
use crate::schedule::{Node, Scheduler};

/// The keys beside those of the start, in the state of a machine that was fed.
const NOW: &str = "now";
const STEPS: &str = "steps";

/// More effects than any run has.
const MOST_EFFECTS: u64 = 1 << 60;

/// The steps of a plan, and where each stands.
#[derive(Serialize, Deserialize)]
struct Steps<'a> {
    /// The plan, unless it is the one that the run began with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    plan: Option<Arc<Plan>>,
    /// The dependencies between its steps, if the plan may have been changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wiring: Option<Wiring>,
    nodes: Cow<'a, [Node]>,
    /// The steps that have failed, and for which another way is looked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    held: Vec<u32>,
}

impl GraphMachine {
    /// Returns the state: the start of the run and, once the machine was fed, its progress.
    pub(super) fn saved(&self) -> Value {
        let mut state = serde_json::to_value(&*self.start).unwrap_or_default();
        if let Some(fields) = state.as_object_mut().filter(|_| self.fed) {
            fields.insert(NOW.to_owned(), serde_json::to_value(&self.now).unwrap_or_default());
            let steps = self.steps.as_ref().map(|steps| serde_json::to_value(self.saved_steps(steps)));
            fields.extend(steps.map(|steps| (STEPS.to_owned(), steps.unwrap_or_default())));
        }
        state
    }

    fn saved_steps<'a>(&self, steps: &'a Scheduler) -> Steps<'a> {
        let plan = steps.graph().plan();
        let is_first = self.start.plan.as_ref().is_some_and(|first| self.with_given(first) == *plan);
        Steps {
            plan: (!is_first).then(|| plan.clone()),
            wiring: (self.now.replans > 0).then(|| steps.graph().wiring()),
            nodes: Cow::Borrowed(steps.all()),
            held: steps.schedule.held().collect(),
        }
    }

    /// Resumes from a saved state.
    pub(super) fn resumed(mut self, state: &Value) -> Result<Self, String> {
        let Some(now) = state.get(NOW) else { return Ok(self) };
        // What the reader says would quote what the steps gave.
        let unread = |_| "its progress is not one that this version of the team can read".to_owned();
        self.now = Progress::deserialize(now).map_err(unread)?;
        self.fed = true;
        let is_step =
            |doing: &&Doing| matches!(doing, Doing::Perform(_) | Doing::Code(..) | Doing::Permit(_));
        self.running = self.now.doing.values().filter(is_step).count();
        if let Some(steps) = state.get(STEPS) {
            let steps = self.restored_steps(Steps::deserialize(steps).map_err(unread)?)?;
            self.learn_schemas(steps.graph().plan());
            self.steps = Some(steps);
        }
        if let Some(what) = self.contradiction() {
            return Err(format!("its state contradicts itself: {what}"));
        }
        self.go_on_with_lists();
        Ok(self)
    }

    fn restored_steps(&self, saved: Steps<'_>) -> Result<Scheduler, String> {
        let plan = match (saved.plan, &self.start.plan) {
            (Some(plan), _) => plan,
            (None, Some(first)) => self.with_given(first),
            (None, None) => return Err("its plan is not there".to_owned()),
        };
        let graph = match &saved.wiring {
            Some(wiring) => Graph::wired(plan, wiring)?,
            None => {
                self.check(&plan).map_err(|faults| format!("its plan cannot be carried out: {faults}"))?
            }
        };
        Scheduler::restored(graph, saved.nodes.into_owned(), &saved.held)
    }

    /// Returns the first contradiction in a saved state, if there is one.
    fn contradiction(&self) -> Option<&'static str> {
        let now = &self.now;
        let ended = now.ending.is_some();
        let is_running =
            |at: u32, node: &Node| (node.status == StepStatus::Running) == now.works.contains_key(&at);
        let nodes = || self.steps.iter().flat_map(Scheduler::nodes);
        let plans = now.doing.values().any(|doing| matches!(doing, Doing::Plan | Doing::Approve));
        match () {
            () if now.next > MOST_EFFECTS || now.doing.keys().any(|id| id.get() >= now.next) => {
                Some("an effect is under way that was not asked for")
            }
            () if !nodes().all(|(at, node)| is_running(at, node))
                || !now.works.keys().all(|at| self.is_step(*at)) =>
            {
                Some("the steps that run are not those that are under way")
            }
            () if !now.works.iter().all(|(at, work)| work.fan.is_some() == self.is_list(*at)) => {
                Some("a step is run for a list and has none")
            }
            () if now.works.values().filter_map(|work| work.fan.as_ref()).any(|fan| !fan.is_sound()) => {
                Some("the elements of a list do not add up")
            }
            () if !ended && !self.places().all(|place| self.is_under_way(place)) => {
                Some("an effect belongs to a step that is not under way")
            }
            () if !ended && now.planning.is_some() && !plans => Some("a plan is made, and nobody makes it"),
            () => None,
        }
    }

    /// The steps and elements that effects and pauses are for.
    fn places(&self) -> impl Iterator<Item = Place> {
        let doing = self.now.doing.values().filter_map(|doing| match doing {
            Doing::Perform(place) | Doing::Code(place, _) | Doing::Permit(place) | Doing::Pause(place) => {
                Some(*place)
            }
            Doing::Profile | Doing::Plan | Doing::Approve => None,
        });
        doing.chain(self.now.again.iter().copied())
    }

    fn is_step(&self, at: u32) -> bool {
        self.steps.as_ref().is_some_and(|steps| steps.step(at).is_some())
    }

    fn is_list(&self, at: u32) -> bool {
        self.steps.as_ref().and_then(|steps| steps.step(at)).is_some_and(|step| step.fan_out().is_some())
    }

    fn is_under_way(&self, place: Place) -> bool {
        let Some(work) = self.now.works.get(&place.at) else { return false };
        match (&work.fan, place.item) {
            (Some(fan), Some(item)) => fan.is_under_way(item),
            (fan, item) => fan.is_none() && item.is_none(),
        }
    }
}
