//! Reads plans that models write.
//!
//! Models name fields differently, so each field has synonyms: `worker`, `agent`, `to` and
//! `assignee` mean the same. A bare list, a single delegation and a text `answer` are accepted as
//! well. Missing ids are generated as `d1`, `d2` and so on, without repeating those of earlier
//! rounds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use levity_llm::json::{Repairs, repair};
use serde_json::{Map, Value};

use super::{Delegation, PlanFault};
use crate::names::short;

/// The answer of a router.
#[derive(Debug)]
pub(crate) enum RouterAnswer {
    /// A plan, and the repairs of its JSON.
    Plan(Vec<Delegation>, Repairs),
    /// The answer itself, because there is nothing to delegate.
    Answer(String),
}

/// The maximum number of delegations that are read. Longer plans are invalid anyway and would only
/// use memory.
const MAX_DELEGATIONS: usize = 10_000;

const LISTS: [&str; 5] = ["delegations", "plan", "tasks", "steps", "assignments"];
const IDS: [&str; 3] = ["id", "name", "step"];
const WORKERS: [&str; 4] = ["worker", "agent", "to", "assignee"];
const TASKS: [&str; 5] = [
    "task",
    "instruction",
    "instructions",
    "prompt",
    "description",
];
const NEEDS: [&str; 6] = [
    "depends_on",
    "depends-on",
    "dependsOn",
    "dependencies",
    "after",
    "needs",
];
const EXPECTED: [&str; 5] = [
    "expected",
    "expected_result",
    "expectedResult",
    "expected-result",
    "expected_output",
];

/// Reads a plan. It may refer to delegations of earlier rounds.
///
/// # Errors
/// Returns an error if the text does not contain a plan.
pub(crate) fn read(
    text: &str,
    earlier: &BTreeMap<Arc<str>, usize>,
) -> Result<RouterAnswer, PlanFault> {
    let repaired = repair(text).map_err(|error| {
        unreadable(format!(
            "the answer is not JSON: \
        {error}"
        ))
    })?;
    let list = match repaired.value {
        Value::Array(list) => list,
        Value::Object(mut object) => match take(&mut object, &LISTS) {
            Some(Value::Array(list)) if list.is_empty() && object.contains_key("answer") => {
                return lone(object, repaired.repairs, earlier).or(Err(PlanFault::Empty));
            }
            Some(Value::Array(list)) => list,
            Some(_) => return Err(unreadable("`delegations` is not a list")),
            None => return lone(object, repaired.repairs, earlier),
        },
        _ => {
            return Err(unreadable(
                "the answer is not a JSON object with `delegations`",
            ));
        }
    };
    if list.len() > MAX_DELEGATIONS {
        return Err(PlanFault::TooMany {
            count: list.len(),
            most: MAX_DELEGATIONS,
        });
    }
    delegations(list, earlier).map(|plan| RouterAnswer::Plan(plan, repaired.repairs))
}

/// Reads an object without a list: one delegation, or the answer.
fn lone(
    mut object: Map<String, Value>,
    mends: Repairs,
    earlier: &BTreeMap<Arc<str>, usize>,
) -> Result<RouterAnswer, PlanFault> {
    if WORKERS.iter().any(|key| object.contains_key(*key)) {
        return delegations(vec![Value::Object(object)], earlier)
            .map(|plan| RouterAnswer::Plan(plan, mends));
    }
    match object.remove("answer") {
        Some(Value::String(text)) if !text.trim().is_empty() => Ok(RouterAnswer::Answer(text)),
        _ => Err(unreadable("the answer has no `delegations`")),
    }
}

fn delegations(
    list: Vec<Value>,
    earlier: &BTreeMap<Arc<str>, usize>,
) -> Result<Vec<Delegation>, PlanFault> {
    let mut plan: Vec<(Delegation, Vec<Value>)> = Vec::with_capacity(list.len());
    let last = last_number(earlier);
    for (at, one) in list.into_iter().enumerate() {
        plan.push(delegation(at, last, one)?);
    }
    let ids: Vec<Arc<str>> = plan.iter().map(|(one, _)| one.id.clone()).collect();
    let known: BTreeSet<&str> = ids.iter().chain(earlier.keys()).map(|id| &**id).collect();
    let mut read = Vec::with_capacity(plan.len());
    for (mut one, needs) in plan {
        one.depends_on = needs
            .iter()
            .filter_map(|need| dependency(need, &ids, &known))
            .collect();
        read.push(one);
    }
    Ok(read)
}

fn delegation(at: usize, last: usize, one: Value) -> Result<(Delegation, Vec<Value>), PlanFault> {
    let Value::Object(mut fields) = one else {
        return Err(unreadable(format!(
            "delegation {} is not an object",
            at + 1
        )));
    };
    let needs = match take(&mut fields, &NEEDS) {
        Some(Value::Array(needs)) => needs,
        Some(Value::Null) | None => Vec::new(),
        Some(one) => vec![one],
    };
    let id = text(take(&mut fields, &IDS))
        .unwrap_or_else(|| format!("d{}", last.saturating_add(at + 1)));
    let Some(worker) = text(take(&mut fields, &WORKERS)) else {
        return Err(unreadable(format!(
            "`{}` has no `worker`; name one",
            short(&id)
        )));
    };
    let task = text(take(&mut fields, &TASKS)).unwrap_or_default();
    let mut one = Delegation::new(id, worker.trim(), task);
    one.expected = text(take(&mut fields, &EXPECTED))
        .filter(|text| !text.trim().is_empty())
        .map(Into::into);
    Ok((one, needs))
}

/// Returns the last number among generated ids of earlier rounds, so that new generated ids do not
/// repeat them.
fn last_number(earlier: &BTreeMap<Arc<str>, usize>) -> usize {
    let number = |id: &Arc<str>| id.strip_prefix('d')?.parse::<usize>().ok();
    earlier.keys().filter_map(number).max().unwrap_or(0)
}

/// Returns a dependency, given by its id or by its number from 1.
fn dependency(need: &Value, ids: &[Arc<str>], known: &BTreeSet<&str>) -> Option<Arc<str>> {
    let name = text(Some(need.clone()))?;
    if known.contains(&*name) {
        return Some(name.into());
    }
    let number = name
        .parse::<usize>()
        .ok()
        .and_then(|number| ids.get(number.checked_sub(1)?));
    number.cloned().or_else(|| Some(name.into()))
}

fn take(fields: &mut Map<String, Value>, keys: &[&str]) -> Option<Value> {
    keys.iter().find_map(|key| fields.remove(*key))
}

fn text(value: Option<Value>) -> Option<String> {
    match value? {
        Value::String(text) => Some(text),
        Value::Number(number) => Some(number.to_string()),
        value @ (Value::Object(_) | Value::Array(_)) => Some(value.to_string()),
        _ => None,
    }
}

fn unreadable(what: impl Into<String>) -> PlanFault {
    PlanFault::Unreadable { what: what.into() }
}
