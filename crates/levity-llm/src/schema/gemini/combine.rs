//! Two schemas that both hold, as one.

use serde_json::{Map, Value, json};

/// What both say together. Where a keyword can be said only once, that of `over` counts, and the
/// other is kept under `also`, which is put into words.
pub(super) fn both(under: Map<String, Value>, over: Map<String, Value>) -> Map<String, Value> {
    let mut whole = under;
    for (name, value) in over {
        let Some(known) = whole.get_mut(&name) else {
            whole.insert(name, value);
            continue;
        };
        if *known == value {
            continue;
        }
        let left = join(&name, known, value);
        if let Some(left) = left {
            let also = whole.entry("also").or_insert_with(|| json!([]));
            if let Value::Array(also) = also {
                also.push(json!({ name: left }));
            }
        }
    }
    whole
}

/// Joins a keyword's values. What finds no place is given back.
fn join(name: &str, known: &mut Value, value: Value) -> Option<Value> {
    match (name, &mut *known, value) {
        ("properties" | "$defs" | "definitions", Value::Object(known), Value::Object(more)) => {
            for (name, schema) in more {
                let both = match known.shift_remove(&name) {
                    Some(known) if known != schema => json!({"allOf": [known, schema]}),
                    _ => schema,
                };
                known.insert(name, both);
            }
            None
        }
        ("required", Value::Array(known), Value::Array(more)) => {
            let new: Vec<Value> = more
                .into_iter()
                .filter(|name| !known.contains(name))
                .collect();
            known.extend(new);
            None
        }
        ("also", Value::Array(known), Value::Array(more)) => {
            known.extend(more);
            None
        }
        // What is said nearer to the place counts.
        (
            "description" | "title" | "default" | "examples" | "$id" | "$schema" | "$comment",
            known,
            value,
        ) => {
            *known = value;
            None
        }
        // An unlisted property is no longer one when the other schema lists it.
        ("additionalProperties", known, value) => {
            let left = std::mem::replace(known, value);
            (left != Value::Bool(false)).then_some(left)
        }
        ("type", known, value) => Some(narrower(known, value)).filter(|left| !left.is_null()),
        (_, known, value) => Some(std::mem::replace(known, value)),
    }
}

/// The types that both allow. Where there are none, the second stays and the first is given back.
fn narrower(known: &mut Value, value: Value) -> Value {
    let list = |value: &Value| match value {
        Value::Array(types) => types.clone(),
        other => vec![other.clone()],
    };
    let (mine, theirs) = (list(known), list(&value));
    let same: Vec<Value> = theirs
        .into_iter()
        .filter(|kind| mine.contains(kind))
        .collect();
    match &*same {
        [] => std::mem::replace(known, value),
        [one] => {
            *known = one.clone();
            Value::Null
        }
        _ => {
            *known = Value::Array(same);
            Value::Null
        }
    }
}
