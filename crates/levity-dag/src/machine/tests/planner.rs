//! A planner that changes plans at random, mostly in valid ways.

use serde_json::{Value, json};

use super::driver::Driver;
use super::seeded_outcomes::SeededRng;
use crate::notice::StepStatus;
use crate::step::{OnFailure, Step, StepId};

/// Returns a change for these failed steps.
pub(super) fn change(driver: &Driver, failed: &[StepId], rng: &mut SeededRng) -> Value {
    match rng.below(20) {
        0 => return json!({"give_up": "there is no other way"}),
        1 | 2 => return nonsense(driver, rng),
        _ => {}
    }
    let mut add: Vec<Value> = failed.iter().map(|id| fallback(driver, id, rng)).collect();
    if rng.percent(40) {
        add.push(one_more(driver, rng));
    }
    let mut diff = json!({"reason": "it failed", "add": add});
    let pending: Vec<&Step> = driver
        .pending()
        .filter(|step| is_free(driver, step))
        .collect();
    if rng.percent(40)
        && let Some(step) = rng.pick(&pending)
    {
        diff["remove"] = json!([step.id]);
        return diff;
    }
    let pending: Vec<&Step> = driver.pending().collect();
    if rng.percent(40)
        && let Some(step) = rng.pick(&pending)
    {
        diff["change"] = json!([{"id": step.id, "inputs": {"me": step.id, "more": rng.below(9)}}]);
    }
    diff
}

/// Returns a change that is invalid or changes nothing.
fn nonsense(driver: &Driver, rng: &mut SeededRng) -> Value {
    let started_rounds: Vec<&StepId> = driver.status.keys().collect();
    let started_rounds = rng
        .pick(&started_rounds)
        .map(ToString::to_string)
        .unwrap_or_default();
    match rng.below(6) {
        0 => json!({"remove": [started_rounds]}),
        1 => json!({"change": [{"id": started_rounds, "prompt": "something else"}]}),
        2 => json!({"add": [{"id": "x", "agent": "nobody"}]}),
        3 => json!({"add": [{"id": started_rounds, "agent": "f"}]}),
        4 => {
            json!({
                "add": [
                    {"id": "x", "agent": "f", "after": ["y"]},
                    {"id": "y", "agent": "f", "after": ["x"]},
                ],
            })
        }
        _ => json!("no idea"),
    }
}

/// Returns a fallback for a failed step.
fn fallback(driver: &Driver, failed: &StepId, rng: &mut SeededRng) -> Value {
    let source = driver.step(failed);
    let id = fresh(driver, &format!("{failed}~"));
    let reads: Vec<_> = source.reads.iter().filter(|_| rng.percent(70)).collect();
    let on_failure = *rng.pick(&["fail", "skip", "continue"]).unwrap();
    let mut step = json!({
        "id": id, "agent": "f", "inputs": {"me": id}, "reads": reads, "writes": source.writes,
        "instead_of": failed,
        "on_failure": on_failure,
    });
    if rng.percent(30) {
        step["retry"] = json!({"attempts": 2, "pause": 0.01});
    }
    step
}

/// Returns a new step that uses existing variables.
fn one_more(driver: &Driver, rng: &mut SeededRng) -> Value {
    let id = fresh(driver, "n");
    let plan = &driver.plan.plan;
    let names: Vec<_> = plan
        .given
        .keys()
        .chain(plan.steps.iter().flat_map(|step| &step.writes))
        .collect();
    let reads: Vec<_> = (0..rng.below(3))
        .filter_map(|_| rng.pick(&names).copied())
        .collect();
    let ids: Vec<_> = plan.steps.iter().map(|step| &step.id).collect();
    let after = rng.pick(&ids);
    json!({
        "id": id,
        "agent": "f",
        "inputs": {"me": id},
        "reads": unique(&reads),
        "writes": [format!("v_{id}")],
        "after": after,
    })
}

fn unique<T: Ord + Clone>(all: &[T]) -> Vec<T> {
    all.iter()
        .cloned()
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .collect()
}

fn fresh(driver: &Driver, prefix: &str) -> String {
    let is_taken = |id: &String| {
        driver
            .plan
            .plan
            .steps
            .iter()
            .any(|step| step.id.as_str() == id)
    };
    (0..)
        .map(|n| format!("{prefix}{n}"))
        .find(|id| !is_taken(id))
        .unwrap()
}

/// Returns `true` if nothing in the plan refers to a step.
fn is_free(driver: &Driver, step: &Step) -> bool {
    let refers = |other: &Step| {
        other.after.iter().any(|after| after.step == step.id)
            || other.needs().any(|name| step.writes.contains(name))
            || other.fallback_for() == Some(&step.id)
            || other.on_failure == OnFailure::Fallback(step.id.clone())
    };
    !matches!(step.on_failure, OnFailure::Fallback(_))
        && !driver.plan.plan.steps.iter().any(|other| refers(other))
}

impl Driver {
    /// Returns the steps that have not started.
    fn pending(&self) -> impl Iterator<Item = &Step> {
        let steps = self.plan.plan.steps.iter().map(|step| &**step);
        steps.filter(|step| {
            self.status
                .get(&step.id)
                .is_none_or(|status| *status == StepStatus::Pending)
        })
    }
}
