//! The nodes of a session file as steps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use levity_core::{Money, Usage};
use levity_dag::{Step, StepSpent, StepStatus, Strategy, WrittenVariable};
use serde::Deserialize as _;
use serde_json::{Map, Value};

use super::SessionStep;
use super::error::SessionProblem;
use super::node::ItemsForm;
use super::read::Attributes;

type Result<T> = std::result::Result<T, SessionProblem>;
type Globals = BTreeMap<Arc<str>, Value>;

/// The attributes of a node that are of the step itself, as a step has them.
const STEP: [&str; 17] = [
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

/// The steps in the nodes; the root is none.
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
        let id = id.ok_or_else(|| node.wrong("id", "it is neither a text nor a number"))?;
        if !ids.insert(id.clone()) {
            return Err(node.wrong("id", "another node has it, too"));
        }
        if id != root {
            steps.push(one(id, node, globals)?);
        }
    }
    Ok(steps)
}

/// The id of a node: others may have numbers.
pub(super) fn id_of(value: &Value) -> Option<String> {
    match value {
        Value::String(id) => Some(id.clone()),
        Value::Number(id) => Some(id.to_string()),
        _ => None,
    }
}

fn one(id: String, mut node: Attributes, globals: &Globals) -> Result<SessionStep> {
    let step = Arc::new(step(id, &mut node)?);
    let spent = spent(&mut node)?;
    node.take("execution_time");
    let status = node
        .text("status")?
        .map_or(StepStatus::Pending, |text| status(&text));
    // What a step gave may be `null`; whether it gave anything is told by its status.
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
        started: node.moment("start_time"),
        ended: node.moment("end_time"),
        extra: node.map,
        step,
    })
}

/// Why it failed: a text, or whatever others put there.
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
    for name in &STEP[1..] {
        form.extend(node.take(name).map(|value| ((*name).to_owned(), value)));
    }
    Step::deserialize(&Value::Object(form.clone())).map_err(|_| culprit(&form, node))
}

/// Which attribute of a step makes no sense.
fn culprit(form: &Map<String, Value>, node: &Attributes) -> SessionProblem {
    let alone = |name: &str, value: &Value| {
        Step::deserialize(serde_json::json!({"id": "", name: value})).is_err()
    };
    let name = form
        .iter()
        .skip(1)
        .find(|(name, value)| alone(name, value))
        .map_or("", |(name, _)| name.as_str());
    let name = if name == "prompt" {
        "agent_prompt"
    } else {
        name
    };
    node.wrong(name, "it is not what a step has there")
}

fn spent(node: &mut Attributes) -> Result<StepSpent> {
    let mut usage = Usage::default();
    usage.cost = node
        .take("cost")
        .and_then(|cost| cost.as_f64())
        .map(Money::from_dollars);
    usage.input = node.take("input_tokens").and_then(|tokens| count(&tokens));
    usage.output = node.take("output_tokens").and_then(|tokens| count(&tokens));
    let mut spent = StepSpent::default();
    spent.attempts = node.read("attempts")?.unwrap_or_default();
    spent.usage = node.read("usage")?.unwrap_or(usage);
    spent.stats = node.read("stats")?.unwrap_or_default();
    Ok(spent)
}

/// A number of tokens; estimates of others may have a fraction.
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
        // Others keep what was written among the variables only.
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
    let wrong = || node.wrong("written", "it is no list of what was written");
    let one = |mut form: Map<String, Value>| {
        let name: Arc<str> = form.get("name").and_then(Value::as_str)?.into();
        let by = Strategy::deserialize(form.get("by")?).ok()?;
        let value = form.shift_remove("value").or_else(|| global(&name))?;
        Some(WrittenVariable::new(name, by, value))
    };
    list.into_iter()
        .map(|form| one(form).ok_or_else(wrong))
        .collect()
}
