use serde_json::{Value, json};

use super::{MAX_SCHEMAS, convert, parameters};

#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "cases are written inline")]
fn check(schema: Value, expected: Value) {
    assert_eq!(convert(&schema), expected, "{schema}");
}

/// Checks that a schema stays unchanged.
#[track_caller]
fn same(schema: Value) {
    check(schema.clone(), schema);
}

#[test]
fn supported_keywords_are_unchanged() {
    same(
        json!({"type": "string", "title": "City", "description": "Where.", "format": "date-time"}),
    );
    same(json!({"type": "integer", "minimum": 1, "maximum": 9, "format": "int64"}));
    same(json!({
        "type": "array",
        "items": {"type": "string", "enum": ["a", "b"]},
        "minItems": 1,
        "maxItems": 3,
    }));
    same(json!({
        "type": "array",
        "prefixItems": [{"type": "string"}, {"type": "number"}],
        "items": {},
    }));
    same(json!({
        "type": "object",
        "properties": {"a": {"type": "boolean"}, "b": {"type": ["string", "null"]}},
        "required": ["a"],
        "additionalProperties": false,
    }));
    same(json!({"type": "object", "additionalProperties": {"type": "number"}}));
    same(json!({"anyOf": [{"type": "string"}, {"type": "integer"}], "description": "Either."}));
    check(json!(true), json!({}));
    check(
        json!({"type": "OBJECT", "properties": {"a": {"type": "STRING"}}}),
        json!({"type": "object", "properties": {"a": {"type": "string"}}}),
    );
}

#[test]
fn unsupported_keywords_become_description() {
    let text = |keyword: &str, value: Value, clause: &str| {
        let schema = json!({"type": "string", "description": "A word.", keyword: value});
        check(
            schema,
            json!({"type": "string", "description": format!("A word. ({clause})")}),
        );
    };
    text("minLength", json!(1), "at least 1 character");
    text("maxLength", json!(5), "at most 5 characters");
    text(
        "pattern",
        json!("^a$"),
        "matches the regular expression \"^a$\"",
    );
    text("format", json!("email"), "format: email");
    text("default", json!("x"), "default: \"x\"");
    text(
        "not",
        json!({"const": "x"}),
        "does not match {\"const\":\"x\"}",
    );
    text("examples", json!(["a"]), "for example [\"a\"]");
    check(
        json!({"type": "number", "multipleOf": 5, "exclusiveMinimum": 0}),
        json!({"type": "number", "description": "greater than 0; a multiple of 5"}),
    );
    check(
        json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true}),
        json!({"type": "array", "items": {"type": "string"}, "description": "no item twice"}),
    );
    check(
        json!({
            "type": "object",
            "properties": {},
            "required": ["x"],
            "minProperties": 2,
            "if": {},
            "$comment": "c",
        }),
        json!({"type": "object", "properties": {}, "description": "\"x\" is required; at least 2 \
            keys; if: {}"}),
    );
}

#[test]
fn exclusive_bound_of_integer_becomes_next_integer() {
    check(
        json!({"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 10}),
        json!({"type": "integer", "minimum": 1, "maximum": 9}),
    );
    check(
        json!({"type": "integer", "exclusiveMinimum": i64::MIN, "exclusiveMaximum": i64::MIN}),
        json!({
            "type": "integer",
            "minimum": i64::MIN + 1,
            "description": format!("less than {}", i64::MIN),
        }),
    );
    check(
        json!({"type": "integer", "format": "uint8", "minimum": 0}),
        json!({"type": "integer", "minimum": 0, "description": "format: uint8"}),
    );
}

#[test]
fn constants_become_enums_or_description() {
    check(
        json!({"const": "a"}),
        json!({"type": "string", "enum": ["a"]}),
    );
    check(
        json!({"const": 3, "description": "D"}),
        json!({"type": "integer", "enum": [3], "description": "D"}),
    );
    check(
        json!({"type": "number", "enum": [1, 2.5]}),
        json!({"type": "number", "enum": [1, 2.5]}),
    );
    check(
        json!({"const": true}),
        json!({"type": "boolean", "description": "always true"}),
    );
    check(json!({"const": null}), json!({"type": "null"}));
    check(
        json!({"enum": ["a", 1]}),
        json!({
            "anyOf": [{"type": "string"}, {"type": "integer"}],
            "description": "one of [\"a\",1]",
        }),
    );
    check(
        json!({"type": ["string", "null"], "enum": ["a", null]}),
        json!({"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]}),
    );
}

#[test]
fn nullable_alternative_uses_short_form() {
    check(
        json!({"anyOf": [{"type": "null"}, {"type": "string"}], "description": "D"}),
        json!({"type": ["string", "null"], "description": "D"}),
    );
    check(
        json!({"type": "string", "nullable": true}),
        json!({"type": ["string", "null"]}),
    );
    check(
        json!({"type": ["integer", "string", "null"], "minimum": 1, "minLength": 2}),
        json!({
            "anyOf": [{"type": "integer", "minimum": 1}, {"type": "string"}, {"type": "null"}],
            "description": "at least 2 characters",
        }),
    );
}

#[test]
fn alternatives_absorb_surrounding_keywords() {
    check(
        json!({
            "type": "object",
            "description": "D",
            "properties": {"id": {"type": "string"}},
            "required": ["id"],
            "oneOf": [
                {"properties": {"a": {"type": "string"}}, "required": ["a"]},
                {"properties": {"b": {"type": "string"}}},
            ],
        }),
        json!({
            "anyOf": [
                {
                    "type": "object",
                    "properties": {"a": {"type": "string"}, "id": {"type": "string"}},
                    "required": ["a", "id"],
                },
                {
                    "type": "object",
                    "properties": {"b": {"type": "string"}, "id": {"type": "string"}},
                    "required": ["id"],
                },
            ],
            "description": "D",
        }),
    );
}

#[test]
fn all_of_is_merged_into_one_schema() {
    check(
        json!({
            "$defs": {
                "base": {
                    "type": "object",
                    "properties": {"id": {"type": "string"}},
                    "required": ["id"],
                },
            },
            "allOf": [
                {"$ref": "#/$defs/base"},
                {"properties": {"n": {"type": "integer"}}, "required": ["n"]},
            ],
        }),
        json!({
            "type": "object",
            "properties": {"n": {"type": "integer"}, "id": {"type": "string"}},
            "required": ["n", "id"],
        }),
    );
    check(
        json!({"allOf": [{"type": "string", "pattern": "a"}, {"pattern": "b"}]}),
        json!({"type": "string", "description": "matches the regular expression \"a\"; also \
            matches [{\"pattern\":\"b\"}]"}),
    );
}

#[test]
fn references_are_replaced_with_targets() {
    check(
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$defs": {"City": {"type": "string", "description": "A city."}},
            "type": "object",
            "properties": {
                "from": {"$ref": "#/$defs/City", "description": "Where it begins."},
                "to": {"$ref": "#/$defs/City"},
                "lost": {"$ref": "#/$defs/None"},
                "far": {"$ref": "https://example.com/s"},
            },
        }),
        json!({
            "type": "object",
            "properties": {
                "from": {"type": "string", "description": "Where it begins."},
                "to": {"type": "string", "description": "A city."},
                "lost": {"description": "of the same shape as `None`"},
                "far": {"description": "of the same shape as `s`"},
            },
        }),
    );
}

#[test]
fn recursive_reference_is_named() {
    check(
        json!({
            "$defs": {"Node": {
                "type": "object",
                "properties": {"next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}},
            }},
            "$ref": "#/$defs/Node",
        }),
        json!({
            "type": "object",
            "properties": {
                "next": {"type": ["object", "null"], "description": "of the same shape as `Node`"},
            },
        }),
    );
    check(
        json!({"type": "array", "items": {"$ref": "#"}}),
        json!({"type": "array", "items": {
            "type": "array",
            "items": {"type": "array", "items": {}, "description": "of the same shape as `the \
                whole`"},
        }}),
    );
}

#[test]
fn conversion_of_hostile_schemas_terminates() {
    // Each level doubles the size of the one below.
    let mut defs = serde_json::Map::new();
    for n in 0..40 {
        let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
        defs.insert(
            format!("d{n}"),
            json!({"type": "object", "properties": {"a": next, "b": next}}),
        );
    }
    let wide = convert(&json!({"$defs": defs, "$ref": "#/$defs/d0"}));
    assert!(wide.to_string().len() < 200 * MAX_SCHEMAS);

    let forms: Vec<Value> = (0..200).map(|n| json!({"const": n})).collect();
    let mixed = convert(&json!({"anyOf": forms, "oneOf": forms}));
    assert!(mixed.to_string().len() < 200 * MAX_SCHEMAS);

    convert(&json!({"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"}));
    convert(&json!({"$ref": "#/$ref"}));
    for odd in [
        json!(7),
        json!({"type": 7}),
        json!({"properties": 7, "required": 7, "enum": 7}),
        json!({"anyOf": []}),
    ] {
        convert(&odd);
    }
}

#[test]
fn function_without_arguments_has_no_parameters() {
    assert_eq!(parameters(&Value::Null), None);
    assert_eq!(
        parameters(&json!({"type": "object", "properties": {}, "additionalProperties": false})),
        None
    );
    let some = json!({"properties": {"a": {"type": "string"}}});
    assert_eq!(
        parameters(&some).map(|schema| schema["type"].clone()),
        Some(json!("object"))
    );
    let map = json!({"type": "object", "additionalProperties": {"type": "string"}});
    assert_eq!(parameters(&map), Some(map));
}

#[test]
fn function_may_accept_any_arguments() {
    let free = json!({"type": "object", "additionalProperties": true, "description": "Any pairs."});
    assert_eq!(parameters(&free), Some(free));
    let named =
        parameters(&json!({"type": "object", "patternProperties": {"^x-": {"type": "string"}}}));
    assert!(named.is_some_and(|named| named["description"].as_str().unwrap().contains("^x-")));
    for none in [
        json!({"type": "object"}),
        json!({"type": "object", "additionalProperties": false}),
    ] {
        assert_eq!(parameters(&none), None);
    }
}
