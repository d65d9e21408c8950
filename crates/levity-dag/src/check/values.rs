use levity_tools::Schema;
use serde_json::Value;

use crate::fault::{Fault, FaultKind, Found};
use crate::known::PlanConstraints;
use crate::names::short;
use crate::plan::Plan;

/// How deep a value in a plan may be nested: a plan is written down and read back within others.
pub(super) const MAX_DEPTH: usize = 64;

/// What is said about variables makes sense, and what is given fits it.
pub(super) fn variables(plan: &Plan, known: &PlanConstraints, found: &mut Found) {
    for (name, variable) in &plan.variables {
        let Some(schema) = &variable.schema else {
            continue;
        };
        match compiled(schema, known.max_text) {
            Err(flaw) => {
                found.push_with(|| of(name, &format!("has a schema that cannot be used: {flaw}")));
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
                        of(
                            name,
                            &format!("is given a value that does not fit its schema: {problems}"),
                        )
                    });
                }
            }
        }
    }
    let names = plan.variables.keys().chain(plan.given.keys());
    for name in names.filter(|name| name.trim().is_empty()) {
        found.push(of(name, "has no name; give it one"));
    }
    for (name, value) in &plan.given {
        if weigh(value, usize::MAX).is_err() {
            let message = format!(
                "is given a value that is nested deeper than {MAX_DEPTH} levels; flatten it"
            );
            found.push_with(|| of(name, &message));
        }
    }
}

fn compiled(schema: &Value, most: usize) -> Result<Schema, String> {
    match weigh(schema, most) {
        Ok(bytes) if bytes > most => Err(format!("it has more than {most} bytes")),
        Err(TooDeep) => Err(format!("it is nested deeper than {MAX_DEPTH} levels")),
        Ok(_) => Schema::new(schema).map_err(|error| error.to_string()),
    }
}

fn of(name: &str, flaw: &str) -> Fault {
    Fault::new(
        FaultKind::Variable,
        format!("variable `{}` {flaw}", short(name)),
    )
}

/// A value is nested deeper than [`MAX_DEPTH`].
pub(super) struct TooDeep;

/// About how many bytes a value has as JSON; counts no further than beyond `most`.
pub(super) fn weigh(value: &Value, most: usize) -> Result<usize, TooDeep> {
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
        if bytes > most {
            break;
        }
    }
    Ok(bytes)
}
