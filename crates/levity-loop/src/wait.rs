//! The tool by which a model lets time pass.
//!
//! The machine turns a call of it into a [`Wait`](levity_core::Wait) effect, so a run that waits
//! for days needs no process.

use std::time::Duration;

use levity_core::{Hints, ToolError, ToolErrorKind, ToolSpec};
use serde_json::{Value, json};

/// The name of the tool.
pub(crate) const NAME: &str = "wait";

pub(crate) fn spec(longest: Duration) -> ToolSpec {
    let limit = longest.as_secs_f64();
    ToolSpec::new(
        NAME,
        "Waits, and then continues: for something to be ready, or for a better time.",
    )
    .with_hints(Hints::new().read_only())
    .with_input(json!({
        "type": "object",
        "properties": {"seconds": {
            "type": "number",
            "minimum": 0,
            "maximum": limit,
            "description": format!("How long, {limit} at most."),
        }},
        "required": ["seconds"],
        "additionalProperties": false,
    }))
}

/// Returns the arguments of a call that waits this long.
pub(crate) fn args(time: Duration) -> Value {
    json!({ "seconds": time.as_secs_f64() })
}

/// Returns the time that a call asks to wait.
pub(crate) fn time(args: &Value, longest: Duration) -> Result<Duration, ToolError> {
    let time = args
        .get("seconds")
        .and_then(Value::as_f64)
        .map(Duration::try_from_secs_f64);
    match time {
        Some(Ok(time)) if time <= longest => Ok(time),
        _ => {
            let limit = longest.as_secs_f64();
            let message = format!("`seconds` must be a number from 0 to {limit}");
            Err(ToolError::new(ToolErrorKind::InvalidArgs, message))
        }
    }
}
