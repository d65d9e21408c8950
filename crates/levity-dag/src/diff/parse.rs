//! Reads a change that a planner wrote, in its own form or as a whole plan.
//!
//! Models often return the whole plan although a change was requested. The difference is then
//! computed; settled steps that it omits are kept, because nobody can remove work that is done.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::Diff;
use crate::fault::{Fault, FaultCollector, FaultKind, Faults};
use crate::plan::Plan;
use crate::read;
use crate::step::{Step, StepId};

pub(super) fn parse(
    text: &str,
    plan: &Plan,
    settled: &dyn Fn(&StepId) -> bool,
) -> Result<Diff, Faults> {
    let value = read::value(text, "change", |value| {
        read::is_diff(value) || read::is_plan(value)
    })?;
    if let Some(own) = own_form(&value) {
        let mut found = FaultCollector::default();
        let diff = own_fields(own, plan, &mut found);
        return found.finish().map(|()| diff);
    }
    if !read::is_plan(&value) {
        let message = "the change has none of `add`, `remove`, `change` and `give_up`, and no \
            `steps` of a whole plan";
        return Err(Fault::new(FaultKind::Malformed, message).into());
    }
    let mut diff = between(plan, &read::plan(&value)?, settled);
    diff.reason = value
        .get("reason")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    Ok(diff)
}

/// Returns the object with the fields of a change, if there is one.
fn own_form(value: &Value) -> Option<&Map<String, Value>> {
    let within = || read::DIFF_WRAPPERS.iter().filter_map(|key| value.get(key));
    std::iter::once(value)
        .chain(within())
        .find(|value| read::has_diff(value))?
        .as_object()
}

fn own_fields(map: &Map<String, Value>, plan: &Plan, found: &mut FaultCollector) -> Diff {
    let mut diff = Diff {
        reason: text(map, "reason", found).unwrap_or_default(),
        ..Diff::default()
    };
    diff.add = steps(map, "add", None, found);
    let old: HashMap<&str, &Arc<Step>> = plan
        .steps
        .iter()
        .map(|step| (step.id.as_str(), step))
        .collect();
    let changed = steps(map, "change", Some(&old), found);
    // A complete step with an unknown id can only be meant as a new one.
    let is_new = |step: &Arc<Step>| {
        let whole = !step.agent.is_empty() || !step.variants().is_empty();
        whole && !old.contains_key(step.id.as_str())
    };
    let (new, changed): (Vec<_>, Vec<_>) = changed.into_iter().partition(is_new);
    diff.add.extend(new);
    diff.change = changed;
    let ids = map.get("remove").into_iter().flat_map(one_or_all);
    for value in ids {
        match read::id_of(value).or_else(|| read::id_of(value.get("id")?)) {
            Some(id) => diff.remove.push(id),
            None => found.push(wrong_type("remove", "a list of ids of steps", value)),
        }
    }
    if let Some(value) = map.get("variables").filter(|value| !value.is_null()) {
        diff.variables = read::variables(value, found);
    }
    if let Some(links) = map.get("links").or_else(|| map.get("edges")) {
        let added = diff.add.len();
        let mut all: Vec<_> = diff.add.drain(..).chain(diff.change.drain(..)).collect();
        read::links(&mut all, links, found);
        diff.change = all.split_off(added);
        diff.add = all;
    }
    diff.give_up = match map.get("give_up") {
        None | Some(Value::Null | Value::Bool(false)) => None,
        Some(Value::Bool(true)) => Some(diff.reason.clone()),
        Some(_) => text(map, "give_up", found),
    };
    diff
}

fn text(map: &Map<String, Value>, key: &str, found: &mut FaultCollector) -> Option<String> {
    match map.get(key)? {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => {
            found.push(wrong_type(key, "a text", other));
            None
        }
    }
}

fn wrong_type(key: &str, what: &str, value: &Value) -> Fault {
    Fault::new(
        FaultKind::Malformed,
        format!("`{key}` must be {what}, not {}", read::kind_of(value)),
    )
}

fn one_or_all(value: &Value) -> &[Value] {
    match value {
        Value::Null => &[],
        Value::Array(list) => list,
        one => std::slice::from_ref(one),
    }
}

/// Reads the steps of a list, merged over those with the same ids in `old`.
fn steps(
    map: &Map<String, Value>,
    key: &str,
    old: Option<&HashMap<&str, &Arc<Step>>>,
    found: &mut FaultCollector,
) -> Vec<Arc<Step>> {
    let list = map.get(key).map_or(&[] as &[Value], one_or_all);
    let mut steps = Vec::with_capacity(list.len());
    for (at, value) in list.iter().enumerate() {
        let id = value.get("id").and_then(read::id_of);
        let below = id.and_then(|id| old?.get(id.as_str()).copied());
        let merged = below.and_then(|below| overlay(below, value));
        steps.extend(read::step(merged.as_ref().unwrap_or(value), at, None, found).map(Arc::new));
    }
    steps
}

/// Merges new fields over a step; `null` removes a field.
fn overlay(old: &Step, new: &Value) -> Option<Value> {
    let Ok(Value::Object(mut step)) = serde_json::to_value(old) else {
        return None;
    };
    for (key, value) in new.as_object()? {
        // An unknown key is preserved, so that it is reported if it resembles a field.
        step.insert(
            read::field_name(key).unwrap_or(key).to_owned(),
            value.clone(),
        );
    }
    Some(Value::Object(step))
}

/// Returns the change that turns one plan into another; missing settled steps remain.
pub(super) fn between(old: &Plan, new: &Plan, settled: &dyn Fn(&StepId) -> bool) -> Diff {
    let before: HashMap<&StepId, &Arc<Step>> =
        old.steps.iter().map(|step| (&step.id, step)).collect();
    let after: HashMap<&StepId, &Arc<Step>> =
        new.steps.iter().map(|step| (&step.id, step)).collect();
    let mut diff = Diff::default();
    for step in &new.steps {
        match before.get(&step.id) {
            None => diff.add.push(step.clone()),
            Some(old) if *old != step => diff.change.push(step.clone()),
            Some(_) => {}
        }
    }
    let removed = old
        .steps
        .iter()
        .filter(|step| !after.contains_key(&step.id) && !settled(&step.id));
    diff.remove = removed.map(|step| step.id.clone()).collect();
    let declared = new
        .variables
        .iter()
        .filter(|(name, variable)| old.variables.get(*name) != Some(*variable));
    diff.variables = declared
        .map(|(name, variable)| (name.clone(), variable.clone()))
        .collect();
    diff
}
