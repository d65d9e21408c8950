//! Ends a run and reports its result.
//!
//! A run reaches its goal if every step completed, was skipped by a condition, failed under a
//! policy that tolerates it, or was replaced by a fallback or a replan. Otherwise the ending names
//! up to 20 steps, in plan order, and the values that exist are its partial result.

use std::sync::Arc;

use levity_core::text::head;
use levity_core::{Ending, Status};
use serde_json::{Map, Value};

use super::{GraphMachine, unreached};
use crate::notice::{StepStatus, StepUsage};
use crate::plan::Plan;
use crate::schedule::{Scheduler, Skip};
use crate::step::{OnFailure, StepId};
use crate::task::clipped;

/// The maximum number of incomplete steps that are named.
const MAX_NAMED: usize = 20;

impl GraphMachine {
    /// Ends the run now, with its current results.
    pub(super) fn stop(&mut self, status: Status) {
        self.phase.end(self.ending_now(status));
    }

    /// Returns the current results as an ending.
    pub(super) fn ending_now(&self, status: Status) -> Ending {
        let mut ending = Ending::new(status);
        ending.text = self.answer();
        let values: Map<String, Value> = self
            .values()
            .into_iter()
            .map(|(name, value)| (name.to_string(), value))
            .collect();
        ending.value = Some(Value::Object(values));
        (ending.usage, ending.stats) = (self.now.usage, self.now.stats);
        ending
    }

    /// Ends the run when nothing remains to do.
    pub(super) fn conclude(&mut self) {
        let missing = self
            .phase
            .steps()
            .map(|steps| self.missing(steps))
            .unwrap_or_default();
        let status = match (self.now.near_limit, &*missing) {
            (_, []) => Status::Complete,
            (Some(limit), _) => Status::Partial(limit),
            (None, missing) => unreached(missing.join("; ")),
        };
        self.stop(status);
    }

    /// Describes the steps that should have completed and did not.
    fn missing(&self, steps: &Scheduler) -> Vec<String> {
        let mut missing = Vec::new();
        for (at, node) in steps.nodes() {
            let what = match (node.status, node.skip) {
                (StepStatus::Failed, _) => {
                    let step = steps.step(at);
                    let tolerated = step.is_some_and(|step| {
                        matches!(step.on_failure, OnFailure::Skip | OnFailure::Continue)
                    });
                    if tolerated || node.handled || self.is_replaced(steps, at) {
                        continue;
                    }
                    format!(
                        "step `{}` failed: {}",
                        self.id(at),
                        head(node.error.as_deref().unwrap_or(""), 500)
                    )
                }
                (StepStatus::Skipped, Some(Skip::Failure)) => {
                    format!("step `{}` was skipped", self.id(at))
                }
                (StepStatus::Skipped | StepStatus::Completed, _) => continue,
                _ => format!("step `{}` did not complete", self.id(at)),
            };
            missing.push(what);
        }
        let more = missing.len().saturating_sub(MAX_NAMED);
        missing.truncate(MAX_NAMED);
        if more > 0 {
            missing.push(format!("and {more} more"));
        }
        missing
    }

    /// Returns `true` if a failed step has fallbacks that ran: their results count instead. Skipped
    /// fallbacks do not count.
    fn is_replaced(&self, steps: &Scheduler, at: u32) -> bool {
        let mut fallbacks = steps
            .fallbacks(at)
            .filter_map(|fallback| steps.node(fallback));
        fallbacks.any(|node| node.status != StepStatus::Skipped)
    }

    /// Returns the output of the last completed step as text.
    fn answer(&self) -> String {
        self.last_output()
            .map_or_else(String::new, |value| clipped(&value, usize::MAX))
    }

    /// Returns the output of the last completed step: the value of its only variable, or an object
    /// of several.
    pub(crate) fn last_output(&self) -> Option<Value> {
        let steps = self.phase.steps()?;
        let done = steps
            .nodes()
            .filter(|(_, node)| node.status == StepStatus::Completed);
        let (at, node) = done.max_by_key(|(at, _)| steps.graph().rank(*at))?;
        let step = steps.step(at)?;
        match (&*node.values, &node.output) {
            ([value], _) => Some(value.clone()),
            ([], output) => {
                let output = output.as_ref()?;
                Some(output.get("final_answer").unwrap_or(output).clone())
            }
            (values, _) => {
                let named = step.writes.iter().zip(values);
                let named: Map<String, Value> = named
                    .map(|(name, value)| (name.to_string(), value.clone()))
                    .collect();
                Some(Value::Object(named))
            }
        }
    }

    /// Returns the latest plan.
    pub(crate) fn plan(&self) -> Option<&Arc<Plan>> {
        self.phase.steps().map(|steps| steps.graph().plan())
    }

    /// Returns the number of replans started.
    pub(crate) fn replans(&self) -> u32 {
        self.now.replans
    }

    /// Returns each step of an ended run with its status, error and usage. Steps that were still
    /// running count as pending.
    pub(crate) fn reports(
        &self,
    ) -> impl Iterator<Item = (StepId, StepStatus, Option<String>, StepUsage)> + '_ {
        let nodes = self.phase.steps().into_iter().flat_map(Scheduler::nodes);
        nodes.map(|(at, node)| {
            let mut spent = node.spent.as_deref().copied().unwrap_or_default();
            if spent.attempts == 0 && matches!(node.status, StepStatus::Completed) {
                spent.attempts = 1;
            }
            let status = if node.status.is_settled() {
                node.status
            } else {
                StepStatus::Pending
            };
            (
                self.id(at),
                status,
                node.error.as_deref().map(str::to_owned),
                spent,
            )
        })
    }
}
