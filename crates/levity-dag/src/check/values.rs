//! Checks declarations and initial values: schemas compile, values match, nesting is limited.
//!
//! Sizes are estimated without serializing the value, and the walk uses no recursion, so that a
//! deeply nested value cannot exhaust the stack.

use levity_tools::Schema;
use serde_json::Value;

use crate::constraints::PlanConstraints;
use crate::fault::{Fault, FaultCollector, FaultKind};
use crate::names::short;
use crate::plan::Plan;

/// The maximum nesting of a value in a plan. A serialized plan is itself nested in other values.
pub(super) const MAX_DEPTH: usize = 64;

/// Validates the declarations of variables, and the initial values against them.
pub(super) fn variables(plan: &Plan, known: &PlanConstraints, found: &mut FaultCollector) {
    for (name, variable) in &plan.variables {
        let Some(schema) = &variable.schema else {
            continue;
        };
        match compile(schema, known.max_text) {
            Err(flaw) => {
                found.push_with(|| variable_fault(name, &format!("has an invalid schema: {flaw}")));
            }
            Ok(schema) => {
                let problems = plan
                    .given
                    .get(name)
                    .and_then(|given| schema.problems(given));
                if let Some(problems) = problems {
                    let problems: Vec<_> = problems
                        .lines()
                        .map(|line| line.trim_start_matches("- "))
                        .collect();
                    let problems = problems.join(", ");
                    found.push_with(|| {
                        variable_fault(
                            name,
                            &format!(
                                "has an initial value that does not match its schema: \
                                {problems}"
                            ),
                        )
                    });
                }
            }
        }
    }
    let names = plan.variables.keys().chain(plan.given.keys());
    for name in names.filter(|name| name.trim().is_empty()) {
        found.push(variable_fault(name, "has an empty name; give it one"));
    }
    for (name, value) in &plan.given {
        if estimated_size(value, usize::MAX).is_err() {
            let message = format!(
                "has an initial value that is nested deeper than {MAX_DEPTH} levels; flatten it"
            );
            found.push_with(|| variable_fault(name, &message));
        }
    }
}

fn compile(schema: &Value, max_bytes: usize) -> Result<Schema, String> {
    match estimated_size(schema, max_bytes) {
        Ok(bytes) if bytes > max_bytes => Err(format!("it has more than {max_bytes} bytes")),
        Err(TooDeep) => Err(format!("it is nested deeper than {MAX_DEPTH} levels")),
        Ok(_) => Schema::new(schema).map_err(|error| error.to_string()),
    }
}

fn variable_fault(name: &str, flaw: &str) -> Fault {
    Fault::new(
        FaultKind::Variable,
        format!("variable `{}` {flaw}", short(name)),
    )
}

/// The error for a value that is nested deeper than [`MAX_DEPTH`].
pub(super) struct TooDeep;

/// Estimates the size of a value as JSON in bytes; stops counting beyond `max_bytes`.
pub(super) fn estimated_size(value: &Value, max_bytes: usize) -> Result<usize, TooDeep> {
    let (mut bytes, mut open) = (0_usize, vec![(value, 0)]);
    while let Some((value, depth)) = open.pop() {
        if depth > MAX_DEPTH {
            return Err(TooDeep);
        }
        bytes += 4;
        match value {
            Value::String(text) => bytes += text.len(),
            Value::Array(list) => open.extend(list.iter().map(|value| (value, depth + 1))),
            Value::Object(map) => {
                bytes += map.keys().map(|key| key.len() + 4).sum::<usize>();
                open.extend(map.values().map(|value| (value, depth + 1)));
            }
            _ => {}
        }
        if bytes > max_bytes {
            break;
        }
    }
    Ok(bytes)
}
