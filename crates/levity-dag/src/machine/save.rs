//! The state of a machine, to be saved and restored between any two inputs.
//!
//! The state has three parts beside the start: `now` (counters and usage), `phase` (work in
//! progress) and `steps` (a status and the values of each step). The plan is omitted while it is
//! the initial one. Edges are saved only after a replan: without one, the plan determines them, and
//! they are derived again.
//!
//! A saved state comes from a journal, which another version or a damaged disk may have written.
//! Reading it therefore checks that its parts agree, and errors never quote the outputs of steps.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::phase::{Phase, RunningPlan};
use super::{GraphMachine, Place, Progress};
use crate::graph::{Graph, Wiring};
use crate::notice::StepStatus;
use crate::plan::Plan;
use crate::schedule::{Node, Scheduler};

/// The keys beside those of the start, in the state of a machine that has handled an input.
const NOW: &str = "now";
const PHASE: &str = "phase";
const STEPS: &str = "steps";

/// An upper bound on the number of effects in a run.
const MAX_EFFECTS: u64 = 1 << 60;

/// The steps of a plan and the state of each.
#[derive(Serialize, Deserialize)]
struct Steps<'a> {
    /// The plan, unless it is the initial one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    plan: Option<Arc<Plan>>,
    /// The dependencies between its steps, if the plan may have been changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wiring: Option<Wiring>,
    nodes: Cow<'a, [Node]>,
    /// The failed steps that wait for a replan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    held: Vec<u32>,
}

impl GraphMachine {
    /// Returns the state: the start of the run and, once it has handled an input, its progress.
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

    /// Returns `true` if the machine has not handled any input.
    fn is_new(&self) -> bool {
        matches!(self.phase, Phase::Start { .. })
            && self.now.messages.is_empty()
            && self.now.near_limit.is_none()
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
        // The error of the deserializer could quote outputs of the steps.
        let unreadable =
            |_| "the saved progress cannot be read by this version of the team".to_owned();
        self.now = Progress::deserialize(now).map_err(unreadable)?;
        let phase = Phase::<()>::deserialize(&state[PHASE]).map_err(unreadable)?;
        let steps = state
            .get(STEPS)
            .map(|steps| Steps::deserialize(steps).map_err(unreadable));
        let steps = steps
            .transpose()?
            .map(|steps| self.restored_steps(steps))
            .transpose()?;
        let inconsistent = |what| format!("the saved state is inconsistent: {what}");
        self.phase = phase
            .with_steps(steps)
            .ok_or_else(|| inconsistent("its steps belong to another phase"))?;
        let next = self.now.next;
        if next > MAX_EFFECTS
            || self
                .phase
                .last_effect()
                .is_some_and(|last| last.get() >= next)
        {
            return Err(inconsistent(
                "an effect is in progress that was not requested",
            ));
        }
        if let Some(running) = self.phase.running_mut() {
            running
                .contradiction()
                .map_or(Ok(()), |what| Err(inconsistent(what)))?;
            running.requeue_fan_outs();
        }
        Ok(self)
    }

    fn restored_steps(&self, saved: Steps<'_>) -> Result<Scheduler, String> {
        let plan = match (saved.plan, &self.start.plan) {
            (Some(plan), _) => plan,
            (None, Some(first)) => self.with_given(first),
            (None, None) => return Err("the saved state has no plan".to_owned()),
        };
        let graph = match &saved.wiring {
            Some(wiring) => Graph::wired(plan, wiring)?,
            None => self
                .check(&plan)
                .map_err(|faults| format!("the saved plan is invalid: {faults}"))?,
        };
        Scheduler::restored(graph, saved.nodes.into_owned(), &saved.held)
    }
}

impl RunningPlan {
    /// Returns the first inconsistency in a plan that was in progress, if there is one.
    ///
    /// Each rule protects an index or a counter that later code uses without a check.
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
            .effects
            .values()
            .map(|(place, _)| place)
            .chain(&self.retry_queue);
        match () {
            () if !self.steps.nodes().all(|(at, node)| is_running(at, node))
                || !self.works.keys().all(|at| self.steps.step(*at).is_some()) =>
            {
                Some("the running steps and the recorded work differ")
            }
            () if !self
                .works
                .iter()
                .all(|(at, work)| work.fan.is_some() == is_list(*at)) =>
            {
                Some("a step with a fan-out has no list")
            }
            () if self
                .works
                .values()
                .filter_map(|work| work.fan.as_ref())
                .any(|fan| !fan.is_sound()) =>
            {
                Some("the counts of a list's elements do not match")
            }
            () if !places.all(|place| self.is_in_progress(*place)) => {
                Some("an effect belongs to a step that is not in progress")
            }
            () => None,
        }
    }

    fn is_in_progress(&self, place: Place) -> bool {
        let Some(work) = self.works.get(&place.at) else {
            return false;
        };
        match (&work.fan, place.item) {
            (Some(fan), Some(item)) => fan.is_in_progress(item),
            (fan, item) => fan.is_none() && item.is_none(),
        }
    }
}
