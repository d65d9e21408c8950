//! Preserves the past of a plan that is changed while it runs: settled steps keep their order and
//! edges.

use std::collections::HashMap;

use super::{Edge, Graph};
use crate::plan::Plan;
use crate::step::StepId;

/// The steps that have started or finished, with their old order and edges.
pub(super) struct SettledSteps {
    /// For each step, `true` if it is settled.
    pub(super) flags: Vec<bool>,
    /// The sort key of each step among independent ones: settled steps in their old order, then the
    /// plan order.
    pub(super) keys: Vec<(bool, u32)>,
    /// The edges between settled steps, sorted by target: source, target and attributes.
    pub(super) edges: Vec<(u32, u32, Edge)>,
}

impl SettledSteps {
    pub(super) fn new(
        plan: &Plan,
        index: &HashMap<StepId, u32>,
        old: Option<&Graph>,
        settled: &dyn Fn(&StepId) -> bool,
    ) -> Self {
        let steps = plan.steps.len();
        let mut all = Self {
            flags: vec![false; steps],
            keys: Vec::with_capacity(steps),
            edges: Vec::new(),
        };
        // A step that was not in the old plan cannot have started.
        let old_number = |id: &StepId| old?.find(id.as_str()).filter(|_| settled(id));
        for (at, step) in plan.steps.iter().enumerate() {
            let Some((old, old_number)) = old.zip(old_number(&step.id)) else {
                all.keys.push((true, at as u32));
                continue;
            };
            all.flags[at] = true;
            all.keys.push((false, old.rank(old_number)));
            for (from, edge) in old.before(old_number) {
                let from = old.step(from).map(|step| &step.id).filter(|id| settled(id));
                all.edges.extend(
                    from.and_then(|id| index.get(id))
                        .map(|from| (*from, at as u32, edge)),
                );
            }
        }
        all
    }
}
