//! What can be wrong with a plan, beside its order.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use crate::fault::{Fault, FaultKind, Found};
use crate::graph::StandIns;
use crate::known::PlanConstraints;
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

/// How many bytes an id or the name of a variable may have.
pub(crate) const MAX_NAME: usize = 256;

/// The id of the node that stands for the question itself in sessions.
pub(crate) const ROOT: &str = "ROOT";

/// Whether there are steps, and not too many; likewise variables. Nothing costly is done before
/// this.
pub(crate) fn size(plan: &Plan, known: &PlanConstraints, found: &mut Found) {
    let (steps, most) = (plan.steps.len(), known.max_steps.min(u32::MAX as usize - 1));
    if steps == 0 {
        found.push(Fault::new(
            FaultKind::Size,
            "the plan has no steps; `steps` must be a list of at least one",
        ));
    } else if steps > most {
        let message = format!(
            "the plan has {steps} steps, more than {most}; fan a step out over a list instead"
        );
        found.push(Fault::new(FaultKind::Size, message));
    }
    for (field, len) in [
        ("variables", plan.variables.len()),
        ("given", plan.given.len()),
    ] {
        if len > most {
            let message =
                format!("`{field}` has {len} entries, more than {most}; put them into one list");
            found.push(Fault::new(FaultKind::Size, message));
        }
    }
}

/// The number of each step. Ids must be there, each once.
pub(crate) fn ids(plan: &Plan, found: &mut Found) -> HashMap<StepId, u32> {
    let mut index = HashMap::with_capacity(plan.steps.len());
    for (at, step) in plan.steps.iter().enumerate() {
        let id = step.id.as_str();
        if let Some(flaw) = name_flaw(id) {
            let message = format!("the id of step {} {flaw}", at + 1);
            found.push_with(|| Fault::at(FaultKind::Id, &step.id, message));
        } else if id == ROOT {
            let message = format!(
                "the id `{ROOT}` of step {} means the question itself; take another",
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

/// What is wrong with a name, if anything is.
fn name_flaw(name: &str) -> Option<String> {
    if name.trim().is_empty() {
        Some("is empty; give it a name".into())
    } else if name.len() > MAX_NAME {
        Some(format!(
            "has {} bytes, more than {MAX_NAME}; take a shorter one",
            name.len()
        ))
    } else if name.chars().any(char::is_control) {
        Some("has a control character in it; take plain letters".into())
    } else {
        None
    }
}

/// Each step for itself, the variables, and what all of it uses at worst.
pub(crate) fn parts(
    plan: &Plan,
    known: &PlanConstraints,
    index: &HashMap<StepId, u32>,
    settled: &[bool],
    found: &mut Found,
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
    budget::worst(known, &lists, &steps.map(|(step, _)| step.as_ref()), found);
}

/// The variables that are given and that no step may replace: what they hold can be looked at.
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

/// Who stands in for a step writes what it writes.
pub(crate) fn stand_ins(plan: &Plan, stand_ins: &StandIns, found: &mut Found) {
    for pairs in stand_ins.pairs().chunk_by(|a, b| a.0 == b.0) {
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
            .filter_map(|(_, stand_in)| plan.steps.get(*stand_in as usize))
        {
            let written: HashSet<_> = step.writes.iter().collect();
            // Each name is looked for once and the first that is missing ends it, so one source
            // with many names and many stand-ins costs no more than what those write.
            let Some(name) = writes.iter().find(|name| !written.contains(*name)) else {
                continue;
            };
            found.push_with(|| {
                let (id, of, name) = (&step.id, &source.id, short(name));
                let message = format!(
                    "step `{id}` stands in for `{of}` and does not write `{name}`; add it to its \
                        `writes`"
                );
                Fault::at(FaultKind::Write, id, message)
            });
        }
    }
}

#[cfg(test)]
mod tests;
