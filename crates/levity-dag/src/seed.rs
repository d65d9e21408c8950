use std::sync::Arc;

use levity_core::MachineOutput;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::graph::Graph;
use crate::notice::{PlanNotice, StepSpent, StepStatus, WrittenVariable};
use crate::plan::Plan;
use crate::schedule::Scheduler;
use crate::step::StepId;

/// What a run begins with that goes on from another one: a plan, and steps of it that are done
/// already.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct StartingPlan {
    /// The plan.
    pub plan: Arc<Plan>,
    /// The steps that are done, with what they gave.
    pub done: Vec<CompletedStep>,
}

/// A step that is done before a run begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CompletedStep {
    /// The step.
    pub step: StepId,
    /// All that it gave.
    pub output: Value,
    /// What it wrote.
    pub writes: Vec<WrittenVariable>,
}

impl CompletedStep {
    /// A step that gave and wrote this.
    pub fn new(step: impl Into<StepId>, output: Value, writes: Vec<WrittenVariable>) -> Self {
        Self {
            step: step.into(),
            output,
            writes,
        }
    }
}

impl StartingPlan {
    /// A plan of which nothing is done yet.
    pub fn new(plan: impl Into<Arc<Plan>>) -> Self {
        Self {
            plan: plan.into(),
            done: Vec::new(),
        }
    }

    /// Says that a step is done.
    #[must_use]
    pub fn with(mut self, done: CompletedStep) -> Self {
        self.done.push(done);
        self
    }
}

/// The number of a step that is done, and what it wrote in the order of its `writes`; `None` when
/// something is missing.
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

/// Marks steps as done.
pub(crate) fn sow(seed: &[CompletedStep], steps: &mut Scheduler) {
    for done in seed {
        let Some((at, values)) = values(steps.graph(), done) else {
            continue;
        };
        if let Some(node) = steps.node_mut(at) {
            let keeps = values.is_empty();
            node.values = values;
            node.output = keeps.then(|| Box::new(done.output.clone()));
        }
        steps.finish_early(at, StepStatus::Completed);
    }
}

/// Tells of steps that are done as if they had just been done.
pub(crate) fn tell(seed: &[CompletedStep], graph: &Graph, wants: &mut MachineOutput) {
    if !wants.is_watched() {
        return;
    }
    for done in seed.iter().filter(|done| values(graph, done).is_some()) {
        let notice = PlanNotice::StepCompleted {
            step: done.step.clone(),
            writes: done.writes.clone(),
            output: done.output.clone(),
            spent: StepSpent::default(),
        };
        wants.tell(notice.into_event());
    }
}
