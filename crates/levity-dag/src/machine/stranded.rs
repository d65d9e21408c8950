//! Checks that a change to a plan leaves no step waiting for a failed one.
//!
//! A replan that adds an unrelated step, and forgets the dependents of the failed one, would be
//! valid as a graph and useless as a plan: the dependents would be skipped. The planner gets a
//! fault instead, and can correct its change.

use crate::fault::{Fault, FaultCollector, FaultKind, Faults};
use crate::graph::Graph;
use crate::step::{Join, OnFailure, StepId};

/// Checks that no pending step waits for one of these failed steps.
pub(super) fn check_stranded(
    graph: &Graph,
    failed: &[StepId],
    settled: &dyn Fn(&StepId) -> bool,
) -> Result<(), Faults> {
    let mut found = FaultCollector::default();
    for id in failed {
        let Some(at) = graph.find(id.as_str()) else {
            continue;
        };
        let tolerated = graph
            .step(at)
            .is_some_and(|step| step.on_failure != OnFailure::Fail);
        if tolerated || graph.behind(at).any(|(_, edge)| edge.is_fallback) {
            continue;
        }
        let waiting = graph
            .behind(at)
            .filter_map(|(behind, _)| graph.step(behind));
        let waiting = waiting.filter(|step| step.join == Join::All && !settled(&step.id));
        for step in waiting {
            let message = format!(
                "step `{}` still waits for `{id}`, which has failed: add a step with \
                    `instead_of: \"{id}\"`, or change or \
                 remove `{}`",
                step.id, step.id,
            );
            found.push(Fault::at(FaultKind::Reference, &step.id, message));
        }
    }
    found.finish()
}
