use std::sync::Arc;

use levity_core::MachineOutput;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::graph::Graph;
use crate::notice::{PlanNotice, StepStatus, StepUsage, WrittenVariable};
use crate::plan::Plan;
use crate::schedule::Scheduler;
use crate::step::StepId;

/// The starting point of a run that continues another one: a plan and its completed steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct StartingPlan {
    /// The plan to carry out.
    pub plan: Arc<Plan>,
    /// The completed steps, with their outputs.
    #[serde(rename = "done")]
    pub completed: Vec<CompletedStep>,
}

/// A step that was completed before the run starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CompletedStep {
    /// The id of the step.
    pub step: StepId,
    /// The complete output of the step.
    pub output: Value,
    /// The variables that it wrote.
    pub writes: Vec<WrittenVariable>,
}

impl CompletedStep {
    /// Creates a completed step from its output and its written variables.
    pub fn new(step: impl Into<StepId>, output: Value, writes: Vec<WrittenVariable>) -> Self {
        Self {
            step: step.into(),
            output,
            writes,
        }
    }
}

impl StartingPlan {
    /// Creates a starting plan without completed steps.
    pub fn new(plan: impl Into<Arc<Plan>>) -> Self {
        Self {
            plan: plan.into(),
            completed: Vec::new(),
        }
    }

    /// Adds a completed step.
    #[must_use]
    pub fn with(mut self, done: CompletedStep) -> Self {
        self.completed.push(done);
        self
    }
}

/// Returns the number of a completed step and its values in the order of `writes`, or `None` if one
/// is missing.
fn values(graph: &Graph, done: &CompletedStep) -> Option<(u32, Vec<Value>)> {
    let at = graph.find(done.step.as_str())?;
    let value = |name: &Arc<str>| {
        done.writes
            .iter()
            .find(|w| w.name == *name)
            .map(|w| w.value.clone())
    };
    let values: Option<Vec<Value>> = graph.step(at)?.writes.iter().map(value).collect();
    Some((at, values?))
}

/// Marks the completed steps of a starting plan in the scheduler.
pub(crate) fn mark_completed(seed: &[CompletedStep], steps: &mut Scheduler) {
    for done in seed {
        let Some((at, values)) = values(steps.graph(), done) else {
            continue;
        };
        if let Some(node) = steps.node_mut(at) {
            let stores_output = values.is_empty();
            node.values = values;
            node.output = stores_output.then(|| Box::new(done.output.clone()));
        }
        steps.finish_early(at, StepStatus::Completed);
    }
}

/// Emits notices for steps that were completed before the run.
pub(crate) fn emit_notices(seed: &[CompletedStep], graph: &Graph, out: &mut MachineOutput) {
    if !out.is_watched() {
        return;
    }
    for done in seed.iter().filter(|done| values(graph, done).is_some()) {
        let notice = PlanNotice::StepCompleted {
            step: done.step.clone(),
            writes: done.writes.clone(),
            output: done.output.clone(),
            spent: StepUsage::default(),
        };
        out.emit(notice.into_event());
    }
}
