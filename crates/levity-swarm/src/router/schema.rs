//! The requested schema of a plan.

use std::sync::Arc;

use levity_core::OutputSchema;
use serde_json::{Value, json};

/// The maximum number of workers listed in the schema. With more workers, only the check of the
/// plan applies.
const LISTED: usize = 200;

/// Returns the schema of a plan for these workers. Providers that support it enforce it. It has no
/// field for a direct answer, although one is accepted: a weak model would rather answer than
/// delegate.
pub(super) fn plan_schema(workers: &[Arc<str>]) -> OutputSchema {
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
