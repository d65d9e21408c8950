//! Validates a plan in everything but its order.
//!
//! Sizes are checked first, because the cost of every later check depends on them. All other checks
//! run to the end and report up to 50 faults at once: a planner that is a model corrects them in
//! one reply. The order of steps is checked in `graph`.
//!
//! Plans come from models and are untrusted. The cost of the checks is close to linear in the size
//! of the plan, and fault messages show shortened names.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use crate::constraints::PlanConstraints;
use crate::fault::{Fault, FaultCollector, FaultKind};
use crate::graph::Fallbacks;
use crate::names::short;
use crate::plan::Plan;
use crate::step::StepId;

mod budget;
mod reads;
mod step;
mod values;
mod writers;

pub(crate) use reads::Reads;
pub(crate) use writers::Writers;

/// The maximum size of an id or the name of a variable, in bytes.
pub(crate) const MAX_NAME: usize = 256;

/// The id of the node that represents the question itself in sessions.
pub(crate) const ROOT: &str = "ROOT";

/// Checks that the numbers of steps and variables are within their limits. It runs first, because
/// later checks cost more.
pub(crate) fn size(plan: &Plan, known: &PlanConstraints, found: &mut FaultCollector) {
    let (steps, limit) = (plan.steps.len(), known.max_steps.min(u32::MAX as usize - 1));
    if steps == 0 {
        found.push(Fault::new(
            FaultKind::Size,
            "the plan has no steps; add at least one to `steps`",
        ));
    } else if steps > limit {
        let message = format!(
            "the plan has {steps} steps, more than the limit of {limit}; fan one step out over a \
                list instead"
        );
        found.push(Fault::new(FaultKind::Size, message));
    }
    for (field, len) in [
        ("variables", plan.variables.len()),
        ("given", plan.given.len()),
    ] {
        if len > limit {
            let message = format!(
                "`{field}` has {len} entries, more than the limit of {limit}; put them \
                    into one list"
            );
            found.push(Fault::new(FaultKind::Size, message));
        }
    }
}

/// Returns the number of each step. Every id must be valid and unique.
pub(crate) fn ids(plan: &Plan, found: &mut FaultCollector) -> HashMap<StepId, u32> {
    let mut index = HashMap::with_capacity(plan.steps.len());
    for (at, step) in plan.steps.iter().enumerate() {
        let id = step.id.as_str();
        if let Some(flaw) = name_flaw(id) {
            let message = format!("the id of step {} {flaw}", at + 1);
            found.push_with(|| Fault::at(FaultKind::Id, &step.id, message));
        } else if id == ROOT {
            let message = format!(
                "the id `{ROOT}` of step {} is reserved for the question itself; choose another id",
                at + 1
            );
            found.push_with(|| Fault::at(FaultKind::Id, &step.id, message));
        }
        match index.get(&step.id) {
            Some(first) => found.push_with(|| {
                let (first, at, id) = (first + 1, at + 1, short(id));
                let message =
                    format!("steps {first} and {at} both have the id `{id}`; give each its own");
                Fault::at(FaultKind::Id, &step.id, message)
            }),
            None => _ = index.insert(step.id.clone(), at as u32),
        }
    }
    index
}

/// Returns the flaw of a name, if it has one.
fn name_flaw(name: &str) -> Option<String> {
    if name.trim().is_empty() {
        Some("is empty; give it a name".into())
    } else if name.len() > MAX_NAME {
        Some(format!(
            "has {} bytes, more than {MAX_NAME}; choose a shorter one",
            name.len()
        ))
    } else if name.chars().any(char::is_control) {
        Some("contains a control character; use printable characters".into())
    } else {
        None
    }
}

/// Checks each step, the variables and the worst-case usage.
pub(crate) fn parts(
    plan: &Plan,
    known: &PlanConstraints,
    index: &HashMap<StepId, u32>,
    settled: &[bool],
    found: &mut FaultCollector,
) {
    let lists = given_lists(plan);
    let steps = plan
        .steps
        .iter()
        .zip(settled)
        .filter(|(_, settled)| !**settled);
    for (step, _) in steps.clone() {
        step::Check {
            step,
            plan,
            known,
            index,
            lists: &lists,
        }
        .all(found);
    }
    values::variables(plan, known, found);
    budget::check_worst_case(known, &lists, &steps.map(|(step, _)| step.as_ref()), found);
}

/// Returns the initial variables that no step overwrites. Their values are known before the run.
fn given_lists(plan: &Plan) -> HashMap<&str, &Value> {
    let mut given: HashMap<&str, &Value> = plan
        .given
        .iter()
        .map(|(name, value)| (&**name, value))
        .collect();
    if !given.is_empty() {
        plan.steps
            .iter()
            .flat_map(|step| &step.writes)
            .for_each(|name| _ = given.remove(&**name));
    }
    given
}

/// Checks that a fallback writes every variable that its step writes.
pub(crate) fn fallbacks(plan: &Plan, fallbacks: &Fallbacks, found: &mut FaultCollector) {
    for pairs in fallbacks.pairs().chunk_by(|a, b| a.0 == b.0) {
        let Some(source) = pairs
            .first()
            .and_then(|(source, _)| plan.steps.get(*source as usize))
        else {
            continue;
        };
        let mut writes: Vec<_> = source.writes.iter().collect();
        writes.sort_unstable();
        writes.dedup();
        for step in pairs
            .iter()
            .filter_map(|(_, fallback)| plan.steps.get(*fallback as usize))
        {
            let written: HashSet<_> = step.writes.iter().collect();
            // The search stops at the first missing name. So a source with many names and many
            // fallbacks costs no more than the fallbacks write.
            let Some(name) = writes.iter().find(|name| !written.contains(*name)) else {
                continue;
            };
            found.push_with(|| {
                let (id, of, name) = (&step.id, &source.id, short(name));
                let message = format!(
                    "step `{id}` is a fallback for `{of}` but does not write `{name}`; add it to \
                        its \
                        `writes`"
                );
                Fault::at(FaultKind::Write, id, message)
            });
        }
    }
}

#[cfg(test)]
mod tests;
