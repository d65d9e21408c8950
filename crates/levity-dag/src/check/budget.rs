use std::collections::HashMap;

use levity_core::Money;
use serde_json::Value;

use crate::fault::{Fault, FaultKind, Found};
use crate::known::PlanConstraints;
use crate::step::{Budget, Step};

/// What is counted: its name, what a budget says of it, and how an amount is shown.
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

/// What the steps use at worst must be there: attempts and elements of lists are counted as if all
/// were needed. Steps without a bound count nothing.
pub(super) fn worst<'a>(
    known: &PlanConstraints,
    lists: &HashMap<&str, &Value>,
    steps: &(impl Iterator<Item = &'a Step> + Clone),
    found: &mut Found,
) {
    let limits = &known.limits;
    let there = [
        limits.tokens,
        limits.money.map(Money::nanos),
        limits.model_calls,
        limits.tool_calls,
    ];
    for (unit, there) in UNITS.iter().zip(there) {
        let Some(there) = there else { continue };
        let (mut sum, mut largest) = (0_u64, None);
        for step in steps.clone() {
            let uses = of_step(unit, known, lists, step);
            sum = sum.saturating_add(uses);
            if largest.is_none_or(|(most, _)| uses > most) {
                largest = Some((uses, step));
            }
        }
        if let Some((most, step)) = largest.filter(|_| sum > there) {
            found.push_with(|| too_much(unit, sum, there, most, step));
        }
    }
}

fn of_step(
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
    let of_performer = || {
        known
            .performer(&step.agent)?
            .1
            .budget
            .as_ref()
            .and_then(unit.of)
    };
    let Some(once) = own.or_else(of_performer) else {
        return 0;
    };
    once.saturating_mul(step.tries().attempts.into())
        .saturating_mul(elements(lists, step))
}

/// For how many elements a step is run, at most.
fn elements(lists: &HashMap<&str, &Value>, step: &Step) -> u64 {
    let Some(map) = step.fan_out() else { return 1 };
    let given = lists.get(&*map.over).and_then(|value| value.as_array());
    given.map_or(map.most, |list| list.len().min(map.most)) as u64
}

fn too_much(unit: &Unit, sum: u64, there: u64, most: u64, step: &Step) -> Fault {
    let (name, id) = (unit.name, &step.id);
    let (sum, there, most) = ((unit.show)(sum), (unit.show)(there), (unit.show)(most));
    let message = format!(
        "at worst the steps use {sum}, and there are {there}; `{id}` alone may use {most}: lower \
            its `{name}`, its \
         attempts or its `most`"
    );
    Fault::at(FaultKind::Budget, id, message)
}
