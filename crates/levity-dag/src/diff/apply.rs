//! Applies a change to a plan, or reports all reasons why it cannot be applied.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::Diff;
use crate::fault::{Fault, FaultCollector, FaultKind, Faults};
use crate::names::{did_you_mean, short};
use crate::plan::Plan;
use crate::step::{OnFailure, Step, StepId};

pub(super) fn apply(
    diff: &Diff,
    plan: &Plan,
    settled: &dyn Fn(&StepId) -> bool,
) -> Result<Plan, Faults> {
    let mut found = FaultCollector::default();
    if diff.is_empty() {
        let message = "the change changes nothing; use `add`, `remove`, `change` or `give_up`";
        found.push(Fault::new(FaultKind::Malformed, message));
    }
    let old: HashMap<&StepId, &Arc<Step>> =
        plan.steps.iter().map(|step| (&step.id, step)).collect();
    let check = Check { plan, settled, old };
    let mut removed: HashSet<&StepId> = HashSet::new();
    // Checked in the given order, so that the faults are the same each time.
    for id in &diff.remove {
        if removed.insert(id) {
            check.check_editable(id, "removed", &mut found);
        }
    }
    let changed = check.changed(diff, &removed, &mut found);
    check.added(diff, &removed, &mut found);
    check.fallbacks(diff, &mut found);
    check.variables(diff, &mut found);
    found.finish()?;
    let kept = plan.steps.iter().filter(|step| !removed.contains(&step.id));
    let kept = kept.map(|step| changed.get(&step.id).copied().unwrap_or(step));
    let mut new = Plan {
        steps: kept.chain(&diff.add).cloned().collect(),
        ..Plan::new()
    };
    new.variables = plan.variables.clone();
    new.variables.extend(diff.variables.clone());
    new.given = plan.given.clone();
    Ok(new)
}

struct Check<'a> {
    plan: &'a Plan,
    settled: &'a dyn Fn(&StepId) -> bool,
    old: HashMap<&'a StepId, &'a Arc<Step>>,
}

impl Check<'_> {
    /// Checks that a step to change or remove exists and has not started.
    fn check_editable(&self, id: &StepId, what: &str, found: &mut FaultCollector) {
        if !self.old.contains_key(id) {
            found.push_with(|| {
                let hint = did_you_mean(
                    id.as_str(),
                    self.plan.steps.iter().map(|step| step.id.as_str()),
                );
                let message = format!(
                    "step `{}` does not exist and cannot be {what}{hint}",
                    short(id.as_str())
                );
                Fault::at(FaultKind::Reference, id, message)
            });
        } else if (self.settled)(id) {
            let message = format!(
                "step `{id}` has started or finished and cannot be {what}; add a step with \
                    another id and \
                 `instead_of` for its work"
            );
            found.push_with(|| Fault::at(FaultKind::Settled, id, message));
        }
    }

    fn changed<'d>(
        &self,
        diff: &'d Diff,
        removed: &HashSet<&StepId>,
        found: &mut FaultCollector,
    ) -> HashMap<&'d StepId, &'d Arc<Step>> {
        let mut changed = HashMap::new();
        for step in &diff.change {
            self.check_editable(&step.id, "changed", found);
            if removed.contains(&step.id) || changed.insert(&step.id, step).is_some() {
                let id = &step.id;
                let message = format!(
                    "step `{}` is changed twice, or both changed and removed; keep one",
                    short(id.as_str())
                );
                found.push_with(|| Fault::at(FaultKind::Id, id, message));
            }
        }
        changed
    }

    fn added(&self, diff: &Diff, removed: &HashSet<&StepId>, found: &mut FaultCollector) {
        let mut added = HashSet::new();
        for id in diff.add.iter().map(|step| &step.id) {
            if (self.settled)(id) {
                let message = format!(
                    "step `{id}` has started or finished and cannot be added again; choose another \
                     id"
                );
                found.push_with(|| Fault::at(FaultKind::Settled, id, message));
            } else if !added.insert(id) {
                let message = format!(
                    "two new steps have the id `{}`; give each its own",
                    short(id.as_str())
                );
                found.push_with(|| Fault::at(FaultKind::Id, id, message));
            } else if self.old.contains_key(id) && !removed.contains(id) {
                let message =
                    format!("step `{id}` already exists; use `change`, or choose another id");
                found.push_with(|| Fault::at(FaultKind::Id, id, message));
            }
        }
    }

    /// Checks that no new fallback is settled: a fallback follows its step, and a settled step
    /// cannot follow a new one.
    fn fallbacks(&self, diff: &Diff, found: &mut FaultCollector) {
        for step in diff.add.iter().chain(&diff.change) {
            let OnFailure::Fallback(to) = &step.on_failure else {
                continue;
            };
            let unchanged = self
                .old
                .get(&step.id)
                .is_some_and(|old| old.on_failure == step.on_failure);
            if !unchanged && (self.settled)(to) {
                let id = &step.id;
                let message = format!(
                    "step `{id}` cannot fall back to `{to}`, which has started or finished; add a \
                        step for that"
                );
                found.push_with(|| Fault::at(FaultKind::Settled, id, message));
            }
        }
    }

    /// Checks that no declaration changes, because values may already exist.
    fn variables(&self, diff: &Diff, found: &mut FaultCollector) {
        for (name, variable) in &diff.variables {
            if self
                .plan
                .variables
                .get(name)
                .is_some_and(|old| old != variable)
            {
                let message = format!(
                    "the declaration of `{}` cannot be changed; use another variable",
                    short(name)
                );
                found.push_with(|| Fault::new(FaultKind::Variable, message));
            }
        }
    }
}
