//! A planner that changes plans in made-up ways, most of which can be carried out.

use serde_json::{Value, json};

use super::driver::Driver;
use super::fate::Dice;
use crate::notice::StepStatus;
use crate::step::{OnFailure, Step, StepId};

/// A change for the sake of these steps.
pub(super) fn change(driver: &Driver, failed: &[StepId], dice: &mut Dice) -> Value {
    match dice.below(20) {
        0 => return json!({"give_up": "there is no other way"}),
        1 | 2 => return nonsense(driver, dice),
        _ => {}
    }
    let mut add: Vec<Value> = failed.iter().map(|id| stand_in(driver, id, dice)).collect();
    if dice.percent(40) {
        add.push(one_more(driver, dice));
    }
    let mut diff = json!({"reason": "it failed", "add": add});
    let pending: Vec<&Step> = driver
        .pending()
        .filter(|step| is_free(driver, step))
        .collect();
    if dice.percent(40)
        && let Some(step) = dice.pick(&pending)
    {
        diff["remove"] = json!([step.id]);
        return diff;
    }
    let pending: Vec<&Step> = driver.pending().collect();
    if dice.percent(40)
        && let Some(step) = dice.pick(&pending)
    {
        diff["change"] = json!([{"id": step.id, "inputs": {"me": step.id, "more": dice.below(9)}}]);
    }
    diff
}

/// Something that cannot be carried out, or that leaves things as they are.
fn nonsense(driver: &Driver, dice: &mut Dice) -> Value {
    let begun: Vec<&StepId> = driver.status.keys().collect();
    let begun = dice
        .pick(&begun)
        .map(ToString::to_string)
        .unwrap_or_default();
    match dice.below(6) {
        0 => json!({"remove": [begun]}),
        1 => json!({"change": [{"id": begun, "prompt": "something else"}]}),
        2 => json!({"add": [{"id": "x", "agent": "nobody"}]}),
        3 => json!({"add": [{"id": begun, "agent": "f"}]}),
        4 => {
            json!({"add": [{"id": "x", "agent": "f", "after": ["y"]}, {"id": "y", "agent": "f", "after": ["x"]}]})
        }
        _ => json!("no idea"),
    }
}

/// Somebody who does the work of a step that has failed.
fn stand_in(driver: &Driver, failed: &StepId, dice: &mut Dice) -> Value {
    let source = driver.step(failed);
    let id = fresh(driver, &format!("{failed}~"));
    let reads: Vec<_> = source.reads.iter().filter(|_| dice.percent(70)).collect();
    let on_failure = *dice.pick(&["fail", "skip", "continue"]).unwrap();
    let mut step = json!({
        "id": id, "agent": "f", "inputs": {"me": id}, "reads": reads, "writes": source.writes, "instead_of": failed,
        "on_failure": on_failure,
    });
    if dice.percent(30) {
        step["retry"] = json!({"attempts": 2, "pause": 0.01});
    }
    step
}

/// A step that uses what there is.
fn one_more(driver: &Driver, dice: &mut Dice) -> Value {
    let id = fresh(driver, "n");
    let plan = &driver.plan.plan;
    let names: Vec<_> = plan
        .given
        .keys()
        .chain(plan.steps.iter().flat_map(|step| &step.writes))
        .collect();
    let reads: Vec<_> = (0..dice.below(3))
        .filter_map(|_| dice.pick(&names).copied())
        .collect();
    let ids: Vec<_> = plan.steps.iter().map(|step| &step.id).collect();
    let after = dice.pick(&ids);
    json!({"id": id, "agent": "f", "inputs": {"me": id}, "reads": unique(&reads), "writes": [format!("v_{id}")], "after": after})
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

/// Whether nothing in the plan refers to a step.
fn is_free(driver: &Driver, step: &Step) -> bool {
    let refers = |other: &Step| {
        other.after.iter().any(|after| after.step == step.id)
            || other.needs().any(|name| step.writes.contains(name))
            || other.stands_in_for() == Some(&step.id)
            || other.on_failure == OnFailure::Fallback(step.id.clone())
    };
    !matches!(step.on_failure, OnFailure::Fallback(_))
        && !driver.plan.plan.steps.iter().any(|other| refers(other))
}

impl Driver {
    /// The steps that have not begun.
    fn pending(&self) -> impl Iterator<Item = &Step> {
        let steps = self.plan.plan.steps.iter().map(|step| &**step);
        steps.filter(|step| {
            self.status
                .get(&step.id)
                .is_none_or(|status| *status == StepStatus::Pending)
        })
    }
}
