//! Recognizes simple schemas that are certainly valid, like those of most tools.

use serde_json::Value;

use super::{MAX_DEPTH, nodes};

const TYPES: [&str; 7] = [
    "array", "boolean", "integer", "null", "number", "object", "string",
];

/// Returns `true` if a schema has only known keywords with allowed values, so that compiling it
/// cannot fail. Other schemas may be valid, too.
pub(super) fn is_valid(schema: &Value) -> bool {
    nodes(schema, MAX_DEPTH).is_some() && is_schema(schema)
}

fn is_schema(schema: &Value) -> bool {
    match schema {
        Value::Bool(_) => true,
        Value::Object(keywords) => keywords.iter().all(|(name, value)| is_keyword(name, value)),
        _ => false,
    }
}

fn is_keyword(name: &str, value: &Value) -> bool {
    match name {
        "$schema" => value == "https://json-schema.org/draft/2020-12/schema",
        "title" | "description" | "format" => value.is_string(),
        "const" | "default" => true,
        "enum" | "examples" => value.is_array(),
        "type" => is_type(value) || is_list_of(value, is_type) && is_set(value),
        "required" => is_set(value),
        "properties" | "$defs" => value
            .as_object()
            .is_some_and(|all| all.values().all(is_schema)),
        "items" | "additionalProperties" => is_schema(value),
        "allOf" | "anyOf" | "oneOf" => is_list_of(value, is_schema),
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => value.is_number(),
        "minLength" | "maxLength" | "minItems" | "maxItems" => value.is_u64(),
        _ => false,
    }
}

fn is_type(value: &Value) -> bool {
    value.as_str().is_some_and(|name| TYPES.contains(&name))
}

/// Returns `true` for a non-empty list whose items are all right.
fn is_list_of(value: &Value, is_right: impl Fn(&Value) -> bool) -> bool {
    value
        .as_array()
        .is_some_and(|items| !items.is_empty() && items.iter().all(is_right))
}

/// Returns `true` for a list of texts without duplicates.
fn is_set(value: &Value) -> bool {
    let Some(items) = value.as_array() else {
        return false;
    };
    // Long lists are left to the compiler: this comparison is quadratic.
    let is_new = |(at, item): (usize, &Value)| {
        item.is_string() && !items.iter().take(at).any(|other| other == item)
    };
    items.len() <= 64 && items.iter().enumerate().all(is_new)
}
