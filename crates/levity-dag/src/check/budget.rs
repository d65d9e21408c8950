//! Compares the worst case of a plan with the limits of its run, before any money is spent.
//!
//! The worst case of a step is its budget, times its attempts, times the elements of its list. A
//! step without a budget counts as zero: the run itself still stops at its limits.

use std::collections::HashMap;

use levity_core::Money;
use serde_json::Value;

use crate::constraints::PlanConstraints;
use crate::fault::{Fault, FaultCollector, FaultKind};
use crate::step::{Budget, Step};

/// A counted resource: its name, its limit in a budget, and the format of an amount.
struct Unit {
    name: &'static str,
    of: fn(&Budget) -> Option<u64>,
    show: fn(u64) -> String,
}

const UNITS: [Unit; 4] = [
    Unit {
        name: "tokens",
        of: |budget| budget.tokens,
        show: |amount| format!("{amount} tokens"),
    },
    Unit {
        name: "money",
        of: |budget| budget.money.map(Money::nanos),
        show: |amount| Money::from_nanos(amount).to_string(),
    },
    Unit {
        name: "model_calls",
        of: |budget| budget.model_calls,
        show: |amount| format!("{amount} model calls"),
    },
    Unit {
        name: "tool_calls",
        of: |budget| budget.tool_calls,
        show: |amount| format!("{amount} tool calls"),
    },
];

/// Checks that the worst case is within the limits: all attempts and all elements of lists count.
/// Steps without a budget count as zero.
pub(super) fn check_worst_case<'a>(
    known: &PlanConstraints,
    lists: &HashMap<&str, &Value>,
    steps: &(impl Iterator<Item = &'a Step> + Clone),
    found: &mut FaultCollector,
) {
    let limits = &known.limits;
    let available = [
        limits.tokens,
        limits.money.map(Money::nanos),
        limits.model_calls,
        limits.tool_calls,
    ];
    for (unit, available) in UNITS.iter().zip(available) {
        let Some(available) = available else { continue };
        let (mut sum, mut largest) = (0_u64, None);
        for step in steps.clone() {
            let uses = step_usage(unit, known, lists, step);
            sum = sum.saturating_add(uses);
            if largest.is_none_or(|(known, _)| uses > known) {
                largest = Some((uses, step));
            }
        }
        if let Some((most, step)) = largest.filter(|_| sum > available) {
            found.push_with(|| over_budget(unit, sum, available, most, step));
        }
    }
}

fn step_usage(
    unit: &Unit,
    known: &PlanConstraints,
    lists: &HashMap<&str, &Value>,
    step: &Step,
) -> u64 {
    let own = step
        .more
        .as_ref()
        .and_then(|more| more.budget.as_ref())
        .and_then(unit.of);
    let runner_budget = || {
        known
            .runner(&step.agent)?
            .1
            .budget
            .as_ref()
            .and_then(unit.of)
    };
    let Some(once) = own.or_else(runner_budget) else {
        return 0;
    };
    once.saturating_mul(step.retry_policy().attempts.into())
        .saturating_mul(elements(lists, step))
}

/// Returns the maximum number of elements that a step runs for.
fn elements(lists: &HashMap<&str, &Value>, step: &Step) -> u64 {
    let Some(map) = step.fan_out() else { return 1 };
    let given = lists.get(&*map.over).and_then(|value| value.as_array());
    given.map_or(map.max_items, |list| list.len().min(map.max_items)) as u64
}

fn over_budget(unit: &Unit, sum: u64, available: u64, largest: u64, step: &Step) -> Fault {
    let (name, id) = (unit.name, &step.id);
    let (sum, available, largest) = (
        (unit.show)(sum),
        (unit.show)(available),
        (unit.show)(largest),
    );
    let message = format!(
        "the steps may use {sum}, more than the available {available}; `{id}` alone may use \
            {largest}: lower \
            its `{name}`, its \
         attempts or its `most`"
    );
    Fault::at(FaultKind::Budget, id, message)
}
