//! Simplifies schemas to what every model provider accepts.
//!
//! Rust types produce formats such as `uint32`, and some providers reject a whole request because
//! of one. The content of `enum` or `default` is data and stays as it is.

use serde_json::Value;

/// Number formats of Rust, which JSON Schema does not define and some providers reject.
const NUMBERS: [&str; 16] = [
    "double", "float", "int", "int8", "int16", "int32", "int64", "int128", "uint", "uint8",
    "uint16", "uint32", "uint64", "uint128", "isize", "usize",
];

/// Keywords whose content is a value and not a schema.
const VALUES: [&str; 5] = ["const", "default", "enum", "example", "examples"];

/// Returns the schema without number formats and without the dialect, which defaults to that of the
/// protocol.
pub(super) fn portable(schema: &Value) -> Value {
    let mut schema = schema.clone();
    if let Some(map) = schema.as_object_mut() {
        map.shift_remove("$schema");
    }
    clean(&mut schema);
    schema
}

/// Removes number formats from a schema and everything below it, except from values.
fn clean(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(clean),
        Value::Object(map) => {
            let odd = |format: &Value| {
                format
                    .as_str()
                    .is_some_and(|format| NUMBERS.contains(&format))
            };
            if map.get("format").is_some_and(odd) {
                map.shift_remove("format");
            }
            let parts = map
                .iter_mut()
                .filter(|(key, _)| !VALUES.contains(&key.as_str()));
            parts.for_each(|(_, part)| clean(part));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn portable_removes_only_dialect_and_number_formats() {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "n": {"type": "number", "format": "double"},
                "many": {
                    "type": "array",
                    "items": {"type": "integer", "format": "uint8", "minimum": 0},
                },
                "day": {"type": "string", "format": "date"},
                "format": {"type": "string", "enum": ["double"], "default": {"format": "double"}},
            },
        });
        let expected = json!({
            "type": "object",
            "properties": {
                "n": {"type": "number"},
                "many": {"type": "array", "items": {"type": "integer", "minimum": 0}},
                "day": {"type": "string", "format": "date"},
                "format": {"type": "string", "enum": ["double"], "default": {"format": "double"}},
            },
        });
        assert_eq!(portable(&schema), expected);
    }
}
