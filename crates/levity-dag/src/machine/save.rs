//! The state of a machine, to be saved and restored between any two inputs.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::phase::{Phase, Running};
use super::{GraphMachine, Place, Progress};
use crate::graph::{Graph, Wiring};
use crate::notice::StepStatus;
use crate::plan::Plan;
use crate::schedule::{Node, Scheduler};

/// The keys beside those of the start, in the state of a machine that has taken in an input.
const NOW: &str = "now";
const PHASE: &str = "phase";
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
    /// Returns the state: the start of the run and, unless nothing has happened yet, its progress.
    pub(super) fn saved(&self) -> Value {
        let mut state = serde_json::to_value(&*self.start).unwrap_or_default();
        if let Some(fields) = state.as_object_mut().filter(|_| !self.is_new()) {
            let steps = self
                .phase
                .steps()
                .map(|steps| serde_json::to_value(self.saved_steps(steps)));
            let now = (NOW, serde_json::to_value(&self.now));
            let all = [now, (PHASE, serde_json::to_value(&self.phase))].into_iter();
            let all = all.chain(steps.map(|steps| (STEPS, steps)));
            fields.extend(all.map(|(key, value)| (key.to_owned(), value.unwrap_or_default())));
        }
        state
    }

    /// Whether the state is that of a machine that has taken in nothing.
    fn is_new(&self) -> bool {
        matches!(self.phase, Phase::Start { .. })
            && self.now.said.is_empty()
            && self.now.near.is_none()
    }

    fn saved_steps<'a>(&self, steps: &'a Scheduler) -> Steps<'a> {
        let plan = steps.graph().plan();
        let is_first = self
            .start
            .plan
            .as_ref()
            .is_some_and(|first| self.with_given(first) == *plan);
        Steps {
            plan: (!is_first).then(|| plan.clone()),
            wiring: (self.now.replans > 0).then(|| steps.graph().wiring()),
            nodes: Cow::Borrowed(steps.all()),
            held: steps.schedule.held().collect(),
        }
    }

    /// Resumes from a saved state.
    pub(super) fn resumed(mut self, state: &Value) -> Result<Self, String> {
        let Some(now) = state.get(NOW) else {
            return Ok(self);
        };
        // What the reader says would quote what the steps gave.
        let unread =
            |_| "its progress is not one that this version of the team can read".to_owned();
        self.now = Progress::deserialize(now).map_err(unread)?;
        let phase = Phase::<()>::deserialize(&state[PHASE]).map_err(unread)?;
        let steps = state
            .get(STEPS)
            .map(|steps| Steps::deserialize(steps).map_err(unread));
        let steps = steps
            .transpose()?
            .map(|steps| self.restored_steps(steps))
            .transpose()?;
        let contradicts = |what| format!("its state contradicts itself: {what}");
        self.phase = phase
            .with_steps(steps)
            .ok_or_else(|| contradicts("its steps belong to another phase"))?;
        let next = self.now.next;
        if next > MOST_EFFECTS
            || self
                .phase
                .last_effect()
                .is_some_and(|last| last.get() >= next)
        {
            return Err(contradicts("an effect is under way that was not asked for"));
        }
        if let Some(running) = self.phase.running_mut() {
            running
                .contradiction()
                .map_or(Ok(()), |what| Err(contradicts(what)))?;
            running.go_on_with_lists();
        }
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
            None => self
                .check(&plan)
                .map_err(|faults| format!("its plan cannot be carried out: {faults}"))?,
        };
        Scheduler::restored(graph, saved.nodes.into_owned(), &saved.held)
    }
}

impl Running {
    /// Returns the first contradiction in a plan that was under way, if there is one.
    fn contradiction(&self) -> Option<&'static str> {
        let is_running = |at: u32, node: &Node| {
            (node.status == StepStatus::Running) == self.works.contains_key(&at)
        };
        let is_list = |at: u32| {
            self.steps
                .step(at)
                .is_some_and(|step| step.fan_out().is_some())
        };
        let mut places = self
            .doing
            .values()
            .map(|(place, _)| place)
            .chain(&self.again);
        match () {
            () if !self.steps.nodes().all(|(at, node)| is_running(at, node))
                || !self.works.keys().all(|at| self.steps.step(*at).is_some()) =>
            {
                Some("the steps that run are not those that are under way")
            }
            () if !self
                .works
                .iter()
                .all(|(at, work)| work.fan.is_some() == is_list(*at)) =>
            {
                Some("a step is run for a list and has none")
            }
            () if self
                .works
                .values()
                .filter_map(|work| work.fan.as_ref())
                .any(|fan| !fan.is_sound()) =>
            {
                Some("the elements of a list do not add up")
            }
            () if !places.all(|place| self.is_under_way(*place)) => {
                Some("an effect belongs to a step that is not under way")
            }
            () => None,
        }
    }

    fn is_under_way(&self, place: Place) -> bool {
        let Some(work) = self.works.get(&place.at) else {
            return false;
        };
        match (&work.fan, place.item) {
            (Some(fan), Some(item)) => fan.is_under_way(item),
            (fan, item) => fan.is_none() && item.is_none(),
        }
    }
}
