//! The serialized form of the nodes and edges of a session file.
//!
//! The forms define the file format, which other programs read. Some names differ from those of
//! the code, such as `agent_prompt` and `execution_time`; changing one breaks those programs.

use levity_core::{FileChange, Stats, Timestamp, Usage};
use levity_dag::{Plan, Step, StepId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::error::SessionProblem;
use crate::view::{ItemProgress, PlanView, StepView, edge_kind};

/// The name of the root node, unless a step has the same id.
pub(super) const ROOT: &str = "ROOT";

/// Returns a name for the root node that no step has.
pub(super) fn root_of(view: &PlanView) -> String {
    let mut name = ROOT.to_owned();
    while view.step(&name).is_some() {
        name.push('_');
    }
    name
}

/// The serialized status of a step.
#[derive(Serialize)]
struct StatusForm<'a> {
    status: &'static str,
    error: Option<&'a str>,
    cost: f64,
    input_tokens: u64,
    output_tokens: u64,
    start_time: Option<String>,
    end_time: Option<String>,
    execution_time: Option<f64>,
    attempts: u32,
    #[serde(skip_serializing_if = "is_zero")]
    attempt: u32,
    #[serde(skip_serializing_if = "is_zero")]
    round: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    items: Option<ItemsForm>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    artifacts: &'a [FileChange],
    usage: &'a Usage,
    stats: &'a Stats,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The serialized progress of a list.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) struct ItemsForm {
    done: u32,
    failed: u32,
    of: u32,
}

impl From<ItemProgress> for ItemsForm {
    fn from(
        ItemProgress {
            done,
            failed,
            total: of,
        }: ItemProgress,
    ) -> Self {
        Self { done, failed, of }
    }
}

impl From<ItemsForm> for ItemProgress {
    fn from(ItemsForm { done, failed, of }: ItemsForm) -> Self {
        Self {
            done,
            failed,
            total: of,
        }
    }
}

/// Serializes the attributes of a step's node without its output, as the members of an object
/// without its braces.
pub(super) fn members(step: &Step, view: &StepView) -> Result<Vec<u8>, SessionProblem> {
    let mut bytes = object(&step_form(step)?)?;
    let usage = &view.spent.usage;
    let status_form = StatusForm {
        status: view.status.as_str(),
        error: view.error.as_deref(),
        cost: usage.cost.map_or(0.0, |cost| cost.nanos() as f64 / 1e9),
        input_tokens: usage.input.unwrap_or(0),
        output_tokens: usage.output.unwrap_or(0),
        start_time: format_time(view.started),
        end_time: format_time(view.ended),
        execution_time: view.took(None).map(|took| took.as_secs_f64()),
        attempts: view.spent.attempts.max(view.attempt),
        attempt: view.attempt,
        round: view.round,
        items: view.items.map(Into::into),
        artifacts: &view.artifacts,
        usage,
        stats: &view.spent.stats,
    };
    bytes.push(b',');
    bytes.extend(object(&status_form)?);
    Ok(bytes)
}

pub(super) fn format_time(at: Option<Timestamp>) -> Option<String> {
    at.map(|at| at.to_string())
}

/// Returns a step with the field names of the file format. The fields that every node has are
/// always present.
fn step_form(step: &Step) -> Result<Map<String, Value>, SessionProblem> {
    let Value::Object(mut rest) = serde_json::to_value(step).map_err(io)? else {
        return Ok(Map::new());
    };
    let mut form = Map::new();
    for (name, written) in FIELDS {
        let missing = if *name == "reads" || *name == "writes" {
            Value::Array(Vec::new())
        } else {
            "".into()
        };
        form.insert(
            (*written).to_owned(),
            rest.shift_remove(*name).unwrap_or(missing),
        );
    }
    form.extend(rest);
    Ok(form)
}

/// The fields that every node has, with their names in a step and in a file.
pub(super) const FIELDS: &[(&str, &str)] = &[
    ("id", "id"),
    ("agent", "agent"),
    ("description", "description"),
    ("prompt", "agent_prompt"),
    ("reads", "reads"),
    ("writes", "writes"),
];

/// Serializes the members of a value without the braces of the object.
fn object(value: &impl Serialize) -> Result<Vec<u8>, SessionProblem> {
    let mut bytes = serde_json::to_vec(value).map_err(io)?;
    bytes.pop();
    if !bytes.is_empty() {
        bytes.remove(0);
    }
    Ok(bytes)
}

pub(super) fn io(error: serde_json::Error) -> SessionProblem {
    SessionProblem::Io(error.into())
}

/// The serialized form of an edge.
#[derive(Serialize)]
struct EdgeForm<'a> {
    source: &'a str,
    target: &'a str,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    when: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    variables: Vec<String>,
}

/// Serializes all edges as a list.
pub(super) fn edges(view: &PlanView, plan: &Plan, root: &str) -> Result<Vec<u8>, SessionProblem> {
    let mut forms = Vec::new();
    for step in view.steps().iter().filter(|step| step.before.is_empty()) {
        forms.push(EdgeForm {
            source: root,
            target: step.id.as_str(),
            kind: "root",
            when: None,
            variables: Vec::new(),
        });
    }
    for &(from, to) in view.edges() {
        let ends = plan
            .steps
            .get(from as usize)
            .zip(plan.steps.get(to as usize));
        if let Some((from, to)) = ends {
            forms.push(edge(from, to));
        }
    }
    serde_json::to_vec(&forms).map_err(io)
}

fn edge<'a>(from: &'a Step, to: &'a Step) -> EdgeForm<'a> {
    let kind = edge_kind(from, to);
    let (source, target): (&StepId, &StepId) = (&from.id, &to.id);
    let name = match () {
        () if kind.is_fallback => "stands_in",
        () if kind.after => "after",
        () => "reads",
    };
    EdgeForm {
        source: source.as_str(),
        target: target.as_str(),
        kind: name,
        when: kind.when,
        variables: kind.variables,
    }
}
