#![expect(clippy::needless_pass_by_value, reason = "schemas are written inline")]

use serde_json::{Value, json};

use super::output;

/// Checks the converted schema of an answer; `None` if it is described in words.
#[track_caller]
fn check(schema: Value, expected: impl Into<Option<Value>>) {
    assert_eq!(output(&schema), expected.into(), "{schema}");
}

fn object(properties: Value) -> Value {
    let names: Vec<String> = properties
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, _)| name.clone())
        .collect();
    json!({
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
        "required": names,
    })
}

#[test]
fn supported_keywords_are_unchanged() {
    let same = [
        json!({
            "type": "string",
            "format": "date-time",
            "pattern": "^[a-z]+\\d*\\.$",
            "title": "T",
        }),
        json!({"type": ["string", "null"], "enum": ["a", null]}),
        json!({"const": 1}),
        json!({"type": "array", "items": {"type": "boolean"}, "minItems": 1}),
        object(json!({"a": {"anyOf": [{"type": "number"}, {"type": "null"}]}})),
        json!({"type": "object", "properties": {}, "additionalProperties": false}),
    ];
    for schema in same {
        check(schema.clone(), schema);
    }
}

#[test]
fn unsupported_keywords_become_description() {
    check(
        json!({
            "type": "string",
            "minLength": 2,
            "format": "colour",
            "pattern": "a{2}",
            "examples": ["x"],
        }),
        json!({"type": "string", "description": "Constraints: minLength: 2, format: \"colour\", \
            pattern: \"a{2}\"."}),
    );
    check(
        json!({
            "type": "array",
            "items": {"type": "integer", "format": "uint8"},
            "minItems": 2,
            "uniqueItems": true,
        }),
        json!({
            "type": "array", "items": {"type": "integer"}, "minItems": 1,
            "description": "Constraints: minItems: 2, uniqueItems: true.",
        }),
    );
    check(
        json!({"oneOf": [{"type": "string"}, {"type": "null"}], "description": "A name."}),
        json!({
            "anyOf": [{"type": "string"}, {"type": "null"}],
            "description": "A name.\n\nConstraints: exactly one of these.",
        }),
    );
    let open = json!({
        "type": "object",
        "properties": {"a": {"type": "null"}},
        "required": ["a"],
        "additionalProperties": true,
    });
    check(open, object(json!({"a": {"type": "null"}})));
    for pattern in ["(?=a)", "\\bword", "(a)\\1", "a{1,900}"] {
        let converted = output(&json!({"type": "string", "pattern": pattern}));
        assert!(
            converted.is_some_and(|converted| converted.get("pattern").is_none()),
            "{pattern}"
        );
    }
}

#[test]
fn definitions_are_retained_and_converted() {
    let name = json!({"type": "string", "maxLength": 9});
    let schema = json!({
        "type": "object",
        "properties": {
            "a": {"$ref": "#/$defs/Name"},
            "b": {"$ref": "#/$defs/Name", "description": "Another."},
        },
        "required": ["a", "b"],
        "$defs": {"Name": name, "Unused": true},
    });
    let mut expected = object(json!({
        "a": {"$ref": "#/$defs/Name"},
        "b": {"type": "string", "description": "Another.\n\nConstraints: maxLength: 9."},
    }));
    expected["$defs"] =
        json!({"Name": {"type": "string", "description": "Constraints: maxLength: 9."}});
    check(schema, expected);
    let all = json!({
        "allOf": [
            {"$ref": "#/definitions/A"},
            {"type": "object", "properties": {"b": {"type": "null"}}, "required": ["b"]},
        ],
        "definitions": {"A": object(json!({"a": {"type": "null"}}))},
    });
    check(
        all,
        object(json!({"a": {"type": "null"}, "b": {"type": "null"}})),
    );
}

#[test]
fn unenforceable_schema_returns_none() {
    let none = [
        json!(true),
        json!({}),
        json!({"description": "Anything."}),
        json!({"type": "object"}),
        json!({"type": "object", "additionalProperties": true}),
        json!({"type": "object", "properties": {"a": {}}}),
        json!({
            "type": "object",
            "properties": {"a": {"type": "null"}},
            "patternProperties": {"x": {}},
        }),
        json!({"type": "array"}),
        json!({"type": "array", "items": false, "prefixItems": [{"type": "null"}]}),
        json!({"enum": [{"a": 1}]}),
        json!({"$ref": "https://example.com/a"}),
        json!({"$ref": "#"}),
        json!({"allOf": [{"$ref": "#"}]}),
        json!({
            "type": "object",
            "properties": {"next": {"$ref": "#/$defs/A"}},
            "$defs": {
                "A": {
                    "type": "object",
                    "properties": {"next": {"$ref": "#/$defs/A", "title": "Next"}},
                },
            },
        }),
        json!({"allOf": [{"type": "string"}, {"type": "number"}]}),
        json!({"type": 7, "properties": 3, "items": 1, "anyOf": 2, "$defs": []}),
    ];
    for schema in none {
        check(schema, None);
    }
}

#[test]
fn oversized_schema_returns_none() {
    let optional = |count: usize| -> Value {
        let names = (0..count).map(|at| (format!("p{at}"), json!({"type": "null"})));
        json!({"type": "object", "properties": names.collect::<serde_json::Map<_, _>>()})
    };
    assert!(output(&optional(24)).is_some() && output(&optional(25)).is_none());
    // Each level doubles the size after expansion.
    let mut levels = serde_json::Map::new();
    for at in 0..40 {
        let next = |title: &str| json!({"$ref": format!("#/$defs/{}", at + 1), "title": title});
        levels.insert(
            at.to_string(),
            object(json!({"a": next("a"), "b": next("b")})),
        );
    }
    levels.insert("40".to_owned(), json!({"type": "null"}));
    check(
        json!({"$ref": "#/$defs/0", "title": "All", "$defs": levels}),
        None,
    );
    let deep = (0..100).fold(
        json!({"type": "null"}),
        |deep, _| json!({"type": "array", "items": deep}),
    );
    check(deep, None);
}
