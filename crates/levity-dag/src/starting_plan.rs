//! The start of a run that continues another one.
//!
//! Completed steps are settled before the scheduler looks for ready steps, so their dependents
//! start at once. Their notices are emitted again, which gives a session file of the new run all
//! steps.

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
///
/// levity ignores a completed step that the plan does not contain, or that lacks a value for one of
/// its `writes`; such a step runs again. The new run has an id and a journal of its own.
///
/// ```
/// use levity_dag::{
///     CompletedStep, Plan, StartingPlan, Step, StepInput, Strategy, Team, WrittenVariable,
/// };
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> levity_dag::Result<()> {
/// let team = Team::builder()
///     .function("fetch", |_: StepInput| async { unreachable!("it was completed before") })
///     .function("count", |input: StepInput| async move {
///         Ok(json!(input.parse::<String>("page")?.len()))
///     })
///     .build()?;
/// let plan = Plan::new()
///     .step(Step::new("fetch", "fetch").writes(["page"]))
///     .step(Step::new("count", "count").reads(["page"]).writes(["bytes"]));
/// let page = WrittenVariable::new("page", Strategy::Output, json!("tides"));
/// let start = StartingPlan::new(plan)
///     .with(CompletedStep::new("fetch", json!({"page": "tides"}), vec![page]));
/// assert_eq!(team.run(start).await?.variable("bytes"), Some(&json!(5)));
/// # Ok(())
/// # }
/// ```
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
///
/// ```
/// use levity_dag::{CompletedStep, Strategy, WrittenVariable};
/// use serde_json::json;
///
/// let page = WrittenVariable::new("page", Strategy::Output, json!("tides"));
/// let done = CompletedStep::new("fetch", json!({"page": "tides"}), vec![page]);
/// assert_eq!((done.step.as_str(), &*done.writes[0].name), ("fetch", "page"));
/// ```
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
