//! What can be wrong with a plan, beside its order.

use std::collections::HashMap;

use crate::fault::{Fault, FaultKind, Found};
use crate::graph::StandIns;
use crate::known::Known;
use crate::plan::Plan;
use crate::step::StepId;

mod reads;
mod writers;

pub(crate) use reads::Reads;
pub(crate) use writers::Writers;

/// Whether there are steps, and not too many.
pub(crate) fn size(plan: &Plan, known: &Known, found: &mut Found) {
    let (steps, most) = (plan.steps.len(), known.max_steps.min(u32::MAX as usize - 1));
    if steps == 0 {
        found.push(Fault::new(
            FaultKind::Size,
            "the plan has no steps; `steps` must be a list of at least one",
        ));
    } else if steps > most {
        let message =
            format!("the plan has {steps} steps, more than {most}; fan a step out over a list instead");
        found.push(Fault::new(FaultKind::Size, message));
    }
}

/// The number of each step. Ids must be there, each once.
pub(crate) fn ids(plan: &Plan, found: &mut Found) -> HashMap<StepId, u32> {
    let mut index = HashMap::with_capacity(plan.steps.len());
    for (at, step) in plan.steps.iter().enumerate() {
        if index.contains_key(&step.id) {
            let message = format!("two steps have the id `{}`; give each its own", step.id);
            found.push(Fault::at(FaultKind::Id, &step.id, message));
            continue;
        }
        index.insert(step.id.clone(), at as u32);
    }
    index
}

/// Each step for itself, and the variables.
pub(crate) fn parts(plan: &Plan, known: &Known, settled: &[bool], found: &mut Found) {
    let _ = (plan, known, settled, found);
}

/// Who stands in for a step writes what it writes.
pub(crate) fn stand_ins(plan: &Plan, stand_ins: &StandIns, found: &mut Found) {
    for (source, stand_in) in stand_ins.pairs() {
        let (Some(source), Some(step)) =
            (plan.steps.get(*source as usize), plan.steps.get(*stand_in as usize))
        else {
            continue;
        };
        for name in source.writes.iter().filter(|name| !step.writes.contains(name)) {
            found.push_with(|| {
                let message = format!(
                    "step `{}` stands in for `{}` and does not write `{name}`; add it to its `writes`",
                    step.id, source.id
                );
                Fault::at(FaultKind::Write, &step.id, message)
            });
        }
    }
}
