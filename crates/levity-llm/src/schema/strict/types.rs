//! The types and values that a schema allows.

use serde_json::{Map, Value, json};

/// Returns the types that a value may have, or those of its allowed values.
///
/// Returns `None` for unknown types, and for a schema that names neither types nor values.
pub(super) fn types(map: &Map<String, Value>) -> Option<Vec<&'static str>> {
    const ALL: [&str; 7] = [
        "string", "number", "integer", "boolean", "object", "array", "null",
    ];
    let known = |name: &Value| ALL.into_iter().find(|known| name == known);
    match map.get("type") {
        Some(Value::Array(names)) if !names.is_empty() => return names.iter().map(known).collect(),
        Some(name) => return known(name).map(|name| vec![name]),
        None => {}
    }
    let values = map.get("enum").or_else(|| map.get("const"))?;
    let mut found = Vec::new();
    for value in scalars(values)? {
        let name = match value {
            Value::String(_) => "string",
            Value::Bool(_) => "boolean",
            Value::Null => "null",
            Value::Number(number) if number.is_f64() => "number",
            _ => "integer",
        };
        if !found.contains(&name) {
            found.push(name);
        }
    }
    (!found.is_empty()).then_some(found)
}

/// Returns the values of an `enum` or `const`, if none is a list or an object.
pub(super) fn scalars(value: &Value) -> Option<&[Value]> {
    let values = value
        .as_array()
        .map_or(std::slice::from_ref(value), Vec::as_slice);
    (!values
        .iter()
        .any(|value| value.is_array() || value.is_object()))
    .then_some(values)
}

/// Extends a schema to allow null.
///
/// The forms are `["string", "null"]` for a type, another branch for `anyOf`, and an `anyOf` around
/// a constant or a reference.
pub(super) fn nullable(schema: Value) -> Value {
    let Value::Object(mut map) = schema else {
        return schema;
    };
    let or_null = || json!({"type": "null"});
    if let Some(Value::Array(branches)) = map.get_mut("anyOf") {
        branches.push(or_null());
        return Value::Object(map);
    }
    if map.contains_key("const") || !map.contains_key("type") {
        return json!({"anyOf": [map, or_null()]});
    }
    for word in ["type", "enum"] {
        let more = if word == "type" {
            json!("null")
        } else {
            Value::Null
        };
        match map.get_mut(word) {
            Some(Value::Array(list)) if !list.contains(&more) => list.push(more),
            Some(one @ Value::String(_)) => *one = json!([one.take(), more]),
            _ => {}
        }
    }
    Value::Object(map)
}
