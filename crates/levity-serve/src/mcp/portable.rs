//! Schemas in the words that every client's model provider takes.

use serde_json::Value;

/// Kinds of numbers of Rust's, which JSON Schema does not know and some providers turn down.
const NUMBERS: [&str; 16] = [
    "double", "float", "int", "int8", "int16", "int32", "int64", "int128", "uint", "uint8",
    "uint16", "uint32", "uint64", "uint128", "isize", "usize",
];

/// Where values stand that are no schemas.
const VALUES: [&str; 5] = ["const", "default", "enum", "example", "examples"];

/// The schema without the dialect, which is the protocol's own where nothing is said, and without
/// formats of numbers.
pub(super) fn portable(schema: &Value) -> Value {
    let mut schema = schema.clone();
    if let Some(map) = schema.as_object_mut() {
        map.shift_remove("$schema");
    }
    clean(&mut schema);
    schema
}

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
    fn only_noise_goes() {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "n": {"type": "number", "format": "double"},
                "many": {"type": "array", "items": {"type": "integer", "format": "uint8", "minimum": 0}},
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
