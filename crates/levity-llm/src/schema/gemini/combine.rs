//! Combines two schemas that must both hold into one.
//!
//! `allOf`, and keywords next to a reference, mean that several schemas hold at once. Gemini has no
//! word for that, so they are merged keyword by keyword. Nothing is dropped: a value that cannot be
//! merged is collected under the private keyword `also`, which becomes a sentence of the
//! description.

use serde_json::{Map, Value, json};

/// Returns the combination of two schemas. For a keyword that can occur only once, `over` takes
/// precedence, and the other value moves to `also`, which is described in words.
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
        let rest = join(&name, known, value);
        if let Some(rest) = rest {
            let also = whole.entry("also").or_insert_with(|| json!([]));
            if let Value::Array(also) = also {
                also.push(json!({ name: rest }));
            }
        }
    }
    whole
}

/// Joins the values of a keyword. Returns a value that cannot be joined.
///
/// A property of both schemas becomes an `allOf` of the two, which is merged in turn during its own
/// conversion.
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
        // The value closer to the use takes precedence.
        (
            "description" | "title" | "default" | "examples" | "$id" | "$schema" | "$comment",
            known,
            value,
        ) => {
            *known = value;
            None
        }
        // A property is no longer unlisted if the other schema lists it.
        ("additionalProperties", known, value) => {
            let rest = std::mem::replace(known, value);
            (rest != Value::Bool(false)).then_some(rest)
        }
        ("type", known, value) => Some(narrower(known, value)).filter(|rest| !rest.is_null()),
        (_, known, value) => Some(std::mem::replace(known, value)),
    }
}

/// Intersects two sets of types. If they are disjoint, the second stays and the first is returned.
///
/// `["string", "null"]` and `"string"` leave `"string"`. The result `null` means that nothing was
/// lost.
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
