//! Conversion of the nodes of a session file into steps.
//!
//! A node combines the definition of a step, its state and its output. Attributes of the definition
//! are deserialized as a [`Step`](levity_dag::Step); the rest is read one by one, and what remains
//! is kept as `extra`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use levity_core::{Money, Usage};
use levity_dag::{Step, StepStatus, StepUsage, Strategy, WrittenVariable};
use serde::Deserialize as _;
use serde_json::{Map, Value};

use super::SessionStep;
use super::error::SessionProblem;
use super::node::ItemsForm;
use super::read::Attributes;

type Result<T> = std::result::Result<T, SessionProblem>;
type Globals = BTreeMap<Arc<str>, Value>;

/// The attributes of a node that belong to the step definition.
const STEP_FIELDS: [&str; 17] = [
    "id",
    "agent",
    "description",
    "prompt",
    "reads",
    "writes",
    "after",
    "join",
    "when",
    "map",
    "code",
    "inputs",
    "retry",
    "timeout",
    "budget",
    "instead_of",
    "on_failure",
];

/// Reads the steps from the nodes, without the root.
pub(super) fn read(nodes: Vec<Value>, root: &str, globals: &Globals) -> Result<Vec<SessionStep>> {
    let mut steps = Vec::with_capacity(nodes.len());
    let mut ids = BTreeSet::new();
    for (at, node) in nodes.into_iter().enumerate() {
        let place = format!("/nodes/{at}");
        let mut node = Attributes::new(&place, node)?;
        // NetworkX numbers nodes that have no id.
        let id = node
            .take("id")
            .map_or_else(|| Some(at.to_string()), |id| id_of(&id));
        let id = id.ok_or_else(|| node.invalid("id", "expected a string or a number"))?;
        if !ids.insert(id.clone()) {
            return Err(node.invalid("id", "another node has the same id"));
        }
        if id != root {
            steps.push(read_step(id, node, globals)?);
        }
    }
    Ok(steps)
}

/// Returns the id of a node; other programs may use numbers.
pub(super) fn id_of(value: &Value) -> Option<String> {
    match value {
        Value::String(id) => Some(id.clone()),
        Value::Number(id) => Some(id.to_string()),
        _ => None,
    }
}

fn read_step(id: String, mut node: Attributes, globals: &Globals) -> Result<SessionStep> {
    let step = Arc::new(step(id, &mut node)?);
    let spent = spent(&mut node)?;
    node.take("execution_time");
    let status = node
        .text("status")?
        .map_or(StepStatus::Pending, |text| status(&text));
    // The output of a step may be `null`; only the status shows whether there is one.
    let output = node.map.shift_remove("output");
    let output = output.filter(|output| !output.is_null() || status == StepStatus::Completed);
    Ok(SessionStep {
        written: written(&mut node, &step, status, globals)?,
        status,
        output,
        error: error(&mut node)?,
        spent,
        attempt: node.read("attempt")?.unwrap_or(spent.attempts),
        round: node.read("round")?.unwrap_or_default(),
        items: node.read::<ItemsForm>("items")?.map(Into::into),
        artifacts: node.read("artifacts")?.unwrap_or_default(),
        started: node.moment("start_time"),
        ended: node.moment("end_time"),
        extra: node.map,
        step,
    })
}

/// Returns the error of a step: a string, or the JSON of any other value.
fn error(node: &mut Attributes) -> Result<Option<String>> {
    Ok(node.take("error").map(|error| match error {
        Value::String(text) => text,
        other => other.to_string(),
    }))
}

fn status(text: &str) -> StepStatus {
    StepStatus::deserialize(Value::from(text)).unwrap_or_default()
}

fn step(id: String, node: &mut Attributes) -> Result<Step> {
    if let Some(prompt) = node.take("agent_prompt") {
        node.map.insert("prompt".to_owned(), prompt);
    }
    let mut form = Map::new();
    form.insert("id".to_owned(), id.into());
    for name in &STEP_FIELDS[1..] {
        form.extend(node.take(name).map(|value| ((*name).to_owned(), value)));
    }
    Step::deserialize(&Value::Object(form.clone())).map_err(|_| invalid_attribute(&form, node))
}

/// Finds the attribute that makes a step invalid.
fn invalid_attribute(form: &Map<String, Value>, node: &Attributes) -> SessionProblem {
    let is_invalid = |name: &str, value: &Value| {
        Step::deserialize(serde_json::json!({"id": "", name: value})).is_err()
    };
    let name = form
        .iter()
        .skip(1)
        .find(|(name, value)| is_invalid(name, value))
        .map_or("", |(name, _)| name.as_str());
    let name = if name == "prompt" {
        "agent_prompt"
    } else {
        name
    };
    node.invalid(name, "invalid value for a step")
}

fn spent(node: &mut Attributes) -> Result<StepUsage> {
    let mut usage = Usage::default();
    usage.cost = node
        .take("cost")
        .and_then(|cost| cost.as_f64())
        .map(Money::from_dollars);
    usage.input = node.take("input_tokens").and_then(|tokens| count(&tokens));
    usage.output = node.take("output_tokens").and_then(|tokens| count(&tokens));
    let mut spent = StepUsage::default();
    spent.attempts = node.read("attempts")?.unwrap_or_default();
    spent.usage = node.read("usage")?.unwrap_or(usage);
    spent.stats = node.read("stats")?.unwrap_or_default();
    Ok(spent)
}

/// Reads a number of tokens; estimates of other programs may have a fraction.
fn count(value: &Value) -> Option<u64> {
    value
        .as_u64()
        .or_else(|| value.as_f64().map(|tokens| tokens as u64))
}

fn written(
    node: &mut Attributes,
    step: &Step,
    status: StepStatus,
    globals: &Globals,
) -> Result<Vec<WrittenVariable>> {
    let global = |name: &str| globals.get(name).cloned();
    let Some(list) = node.read::<Vec<Map<String, Value>>>("written")? else {
        // Other programs store written values only with the variables.
        let names = step
            .writes
            .iter()
            .filter(|_| status == StepStatus::Completed);
        let written = names.filter_map(|name| {
            Some(WrittenVariable::new(
                name.clone(),
                Strategy::Output,
                global(name)?,
            ))
        });
        return Ok(written.collect());
    };
    let invalid = || node.invalid("written", "expected a list of written variables");
    let read_step = |mut form: Map<String, Value>| {
        let name: Arc<str> = form.get("name").and_then(Value::as_str)?.into();
        let by = Strategy::deserialize(form.get("by")?).ok()?;
        let value = form.shift_remove("value").or_else(|| global(&name))?;
        Some(WrittenVariable::new(name, by, value))
    };
    list.into_iter()
        .map(|form| read_step(form).ok_or_else(invalid))
        .collect()
}
