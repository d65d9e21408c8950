//! The shape that a plan is asked for in.

use std::sync::Arc;

use levity_core::OutputSchema;
use serde_json::{Value, json};

/// With more workers than this, the shape does not list them: the plan is checked all the same.
const LISTED: usize = 200;

/// The shape of a plan for these workers. Providers that can hold a model to it. It has no room for
/// an answer in place of a plan, which is taken all the same: a weak model would rather answer than
/// delegate.
pub(super) fn shape(workers: &[Arc<str>]) -> OutputSchema {
    let text = || json!({"type": "string"});
    let mut worker = text();
    if workers.len() <= LISTED {
        worker["enum"] = Value::from_iter(workers.iter().map(|name| &**name));
    }
    let one = json!({
        "type": "object",
        "properties": {
            "id": text(),
            "worker": worker,
            "task": text(),
            "depends_on": {"type": "array", "items": text()},
            "expected": text(),
        },
        "required": ["id", "worker", "task"],
        "additionalProperties": false,
    });
    let schema = json!({
        "type": "object",
        "properties": {"delegations": {"type": "array", "items": one}},
        "required": ["delegations"],
        "additionalProperties": false,
    });
    OutputSchema::new("delegation_plan", schema)
}
