//! Parses plans that people and models write.
//!
//! Reading is lenient in form and strict in content. It accepts wrappers, prose, fences, synonyms
//! of fields and other key styles, because models vary in these. It rejects values of a wrong type,
//! fields that look like a typing error, and text that ends within a value, because half a plan is
//! a different plan. Unknown fields are ignored otherwise, so that session files and other tools
//! can add their own.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use levity_llm::json::{self, Repair};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::check::ROOT;
use crate::fault::{Fault, FaultCollector, FaultKind, Faults};
use crate::plan::{Plan, Variable};
use crate::step::Step;

mod fields;
mod links;
mod step;

use fields::Fields;
pub(crate) use fields::{id_of, kind_of};
pub(crate) use links::add as links;
pub(crate) use step::{field_name, step};

/// The maximum number of wrappers around a plan.
const MAX_WRAPPERS: usize = 4;

/// The keys that may wrap a plan.
pub(crate) const PLAN_WRAPPERS: [&str; 3] = ["plan_graph", "plan", "output"];

/// The keys that identify an object as a plan.
const PLAN_KEYS: [&str; 2] = ["steps", "nodes"];

/// The keys that identify an object as a change to a plan.
pub(crate) const DIFF_KEYS: [&str; 4] = ["add", "remove", "change", "give_up"];

/// The keys that may wrap a change.
pub(crate) const DIFF_WRAPPERS: [&str; 3] = ["diff", "output", "plan"];

/// Returns the JSON value in a text; `fits` tests for the expected kind of value.
pub(crate) fn value(text: &str, what: &str, fits: fn(&Value) -> bool) -> Result<Value, Fault> {
    let malformed = |message: String| Fault::new(FaultKind::Malformed, message);
    if text.len() > Plan::MAX_BYTES {
        let (len, limit) = (text.len(), Plan::MAX_BYTES);
        return Err(Fault::new(
            FaultKind::Size,
            format!("the {what} has {len} bytes, more than the limit of {limit}; shorten it"),
        ));
    }
    if let Ok(value) = serde_json::from_str(text) {
        return Ok(unquoted(value));
    }
    let repaired = json::repair(text).map_err(|error| {
        malformed(format!(
            "the text is not a {what}: \
            {error}"
        ))
    })?;
    // A single missing brace is a typing error. A text that ends within a value has lost content,
    // and half a plan is a different plan.
    if repaired.repairs.contains(Repair::Truncated) && !is_closed(text) {
        return Err(malformed(format!(
            "the {what} is cut off at byte {}; write it completely",
            text.len()
        )));
    }
    if fits(&repaired.value) {
        return Ok(repaired.value);
    }
    Ok(candidate(text).filter(fits).unwrap_or(repaired.value))
}

/// Returns `true` if a text ends with a closing brace or bracket.
pub(crate) fn is_closed(text: &str) -> bool {
    text.trim_end_matches(|c: char| c.is_whitespace() || c == '`')
        .ends_with(['}', ']'])
}

/// Returns another value in the text that is a plan or a change to one. The prose around it may
/// contain larger examples.
fn candidate(text: &str) -> Option<Value> {
    #[derive(Deserialize)]
    #[serde(try_from = "Value")]
    struct Body(Value);
    impl TryFrom<Value> for Body {
        type Error = &'static str;
        fn try_from(value: Value) -> Result<Self, Self::Error> {
            if is_plan(&value) || is_diff(&value) {
                Ok(Self(value))
            } else {
                Err("not a plan")
            }
        }
    }
    json::parse_as::<Body>(text).ok().map(|body| body.0)
}

/// Parses a JSON text within a JSON string.
fn unquoted(value: Value) -> Value {
    match &value {
        Value::String(text) => json::parse(text).unwrap_or(value),
        _ => value,
    }
}

/// Returns `true` if a value may be a plan in any of its forms.
pub(crate) fn is_plan(value: &Value) -> bool {
    let mut value = value;
    for _ in 0..MAX_WRAPPERS {
        match value {
            Value::Array(_) => return true,
            Value::Object(map) if PLAN_KEYS.iter().any(|key| map.contains_key(*key)) => {
                return true;
            }
            Value::Object(map) => match PLAN_WRAPPERS.iter().find_map(|key| map.get(*key)) {
                Some(inner) => value = inner,
                None => return false,
            },
            _ => return false,
        }
    }
    false
}

/// Returns `true` if a value may be a change to a plan, possibly wrapped.
pub(crate) fn is_diff(value: &Value) -> bool {
    has_diff(value)
        || DIFF_WRAPPERS
            .iter()
            .filter_map(|key| value.get(key))
            .any(has_diff)
}

/// Returns `true` if a value has a field of a change.
pub(crate) fn has_diff(value: &Value) -> bool {
    DIFF_KEYS.iter().any(|key| value.get(key).is_some())
}

/// Reads a plan from a value in any of its forms.
pub(crate) fn plan(value: &Value) -> Result<Plan, Faults> {
    let mut found = FaultCollector::default();
    let plan = unwrapped_plan(value, &mut found);
    found.finish()?;
    Ok(plan)
}

fn unwrapped_plan(value: &Value, found: &mut FaultCollector) -> Plan {
    let mut value = value;
    for _ in 0..MAX_WRAPPERS {
        match value {
            Value::Array(steps) => {
                return Plan {
                    steps: list(steps, false, found),
                    ..Plan::new()
                };
            }
            Value::Object(map) => match PLAN_WRAPPERS.iter().find_map(|key| map.get(*key)) {
                Some(inner) if !PLAN_KEYS.iter().any(|key| map.contains_key(*key)) => value = inner,
                _ => return object(map, found),
            },
            _ => break,
        }
    }
    let kind = kind_of(value);
    found.push(Fault::new(
        FaultKind::Malformed,
        format!("a plan is an object with a list `steps`, not {kind}"),
    ));
    Plan::new()
}

fn object(map: &Map<String, Value>, found: &mut FaultCollector) -> Plan {
    let graph = map.get("graph").and_then(Value::as_object);
    let field = |key: &str| map.get(key).or_else(|| graph?.get(key));
    let mut plan = Plan::new();
    plan.variables = field("variables").map_or_else(BTreeMap::new, |value| variables(value, found));
    plan.given = field("given").map_or_else(BTreeMap::new, |value| given(value, found));
    let linked = map.contains_key("nodes") && !map.contains_key("steps");
    let key = if linked { "nodes" } else { "steps" };
    plan.steps = match map.get(key) {
        Some(Value::Array(steps)) => list(steps, linked, found),
        Some(Value::Object(steps)) => keyed(steps, found),
        Some(other) => {
            let message = format!("`{key}` must be a list of objects, not {}", kind_of(other));
            found.push(Fault::new(FaultKind::Malformed, message));
            Vec::new()
        }
        None => {
            found.push(Fault::new(
                FaultKind::Malformed,
                "the plan has no `steps`; write {\"steps\": [..]}",
            ));
            Vec::new()
        }
    };
    if let Some(edges) = map.get("links").or_else(|| map.get("edges")) {
        links::add(&mut plan.steps, edges, found);
    }
    plan
}

/// Reads the steps of a list. A node `ROOT` represents the question and is not a step.
fn list(steps: &[Value], linked: bool, found: &mut FaultCollector) -> Vec<Arc<Step>> {
    let mut read = Vec::with_capacity(steps.len());
    for (at, value) in steps.iter().enumerate() {
        if linked && value.get("id").and_then(Value::as_str) == Some(ROOT) {
            continue;
        }
        read.extend(step(value, at, None, found).map(Arc::new));
    }
    read
}

/// Reads the steps of an object, keyed by id.
fn keyed(steps: &Map<String, Value>, found: &mut FaultCollector) -> Vec<Arc<Step>> {
    let steps = steps.iter().enumerate().filter(|(_, (id, _))| *id != ROOT);
    steps
        .filter_map(|(at, (id, value))| step(value, at, Some(id), found).map(Arc::new))
        .collect()
}

/// Reads the declarations of variables: an object for each, or the name of a reducer.
pub(crate) fn variables(value: &Value, found: &mut FaultCollector) -> BTreeMap<Arc<str>, Variable> {
    let Some(map) = value.as_object() else {
        let message = format!("`variables` must be an object, not {}", kind_of(value));
        found.push(Fault::new(FaultKind::Malformed, message));
        return BTreeMap::new();
    };
    map.iter()
        .map(|(name, value)| (name.as_str().into(), variable(name, value, found)))
        .collect()
}

fn variable(name: &str, value: &Value, found: &mut FaultCollector) -> Variable {
    let mut declared = Variable::new();
    match value {
        Value::Null => {}
        Value::String(_) => {
            declared.reducer = fields::reducer(value, &format!("variable `{name}`"), found);
        }
        Value::Object(map) => {
            let mut fields = Fields::new(format!("variable `{name}`"), map, found);
            declared.schema = fields.take("schema").cloned();
            declared.reducer = fields.reducer("reducer");
        }
        other => {
            let message = format!(
                "variable `{name}` must be an object, not {}",
                kind_of(other)
            );
            found.push(Fault::new(FaultKind::Malformed, message));
        }
    }
    declared
}

fn given(value: &Value, found: &mut FaultCollector) -> BTreeMap<Arc<str>, Value> {
    match value {
        Value::Null => BTreeMap::new(),
        Value::Object(map) => map
            .iter()
            .map(|(name, value)| (name.as_str().into(), value.clone()))
            .collect(),
        other => {
            let message = format!(
                "`given` must be an object of names and values, not {}",
                kind_of(other)
            );
            found.push(Fault::new(FaultKind::Malformed, message));
            BTreeMap::new()
        }
    }
}

/// Removes duplicates: a step that follows another both by a field and by an edge.
fn each_once(step: &mut Step) {
    if step.after.len() < 2 {
        return;
    }
    let mut seen = HashSet::with_capacity(step.after.len());
    let key = |after: &crate::step::After| {
        (
            after.step.clone(),
            after.when.as_ref().map(ToString::to_string),
        )
    };
    step.after.retain(|after| seen.insert(key(after)));
}

/// Maps the id of each step to its number.
fn numbers(steps: &[Arc<Step>]) -> HashMap<&str, usize> {
    steps
        .iter()
        .enumerate()
        .map(|(at, step)| (step.id.as_str(), at))
        .collect()
}

#[cfg(test)]
mod tests;
