use levity_tools::Schema;
use serde_json::json;

use super::*;

fn convert(schema: Value) -> Result<Value, String> {
    let Value::Object(schema) = schema else {
        panic!("the schema is not an object")
    };
    input(&schema, "get_weather")
}

#[track_caller]
fn check(schema: Value, expected: &Value) {
    assert_eq!(convert(schema).unwrap(), *expected);
}

const DRAFT_7: &str = "http://json-schema.org/draft-07/schema#";

#[test]
fn input_removes_keywords_without_meaning() {
    check(
        json!({
            "$schema": DRAFT_7, "title": "get_weatherArguments", "type": "object", "x-order": 3,
            "$comment": "made",
            "properties": {
                "city_name": {
                    "title": "City Name",
                    "type": "string",
                    "description": "Where.",
                    "x-mcp-header": "City",
                },
                "unit": {"title": "Unit of the answer", "enum": ["c", "f"]},
                "title": {"title": "Title", "type": "string", "default": {"title": "Title"}},
                "x-raw": {"type": "boolean"},
                "at": {"$ref": "#/$defs/Place"},
            },
            "required": ["city_name"],
            "$defs": {
                "Place": {
                    "title": "Place",
                    "anyOf": [{"title": "Point", "type": "array"}, {"type": "null"}],
                },
            },
        }),
        &json!({
            "type": "object",
            "properties": {
                "city_name": {"type": "string", "description": "Where."},
                "unit": {"title": "Unit of the answer", "enum": ["c", "f"]},
                "title": {"type": "string", "default": {"title": "Title"}},
                "x-raw": {"type": "boolean"},
                "at": {"$ref": "#/$defs/Place"},
            },
            "required": ["city_name"],
            "$defs": {"Place": {"anyOf": [{"title": "Point", "type": "array"}, {"type": "null"}]}},
        }),
    );
}

#[test]
fn input_keeps_referenced_extensions() {
    let shape = json!({
        "type": "object", "properties": {"a": {"$ref": "#/x-types/a"}},
        "x-types": {"a": {"type": "string"}},
    });
    check(shape.clone(), &shape);
}

#[test]
fn input_keeps_draft_only_where_it_matters() {
    let kept = |draft: &str, rest: Value| {
        let mut schema = json!({"$schema": draft, "type": "object"});
        schema["properties"] = json!({"a": rest});
        convert(schema).unwrap().get("$schema").is_some()
    };
    for draft in [
        DRAFT_7,
        "http://json-schema.org/draft-06/schema#",
        "https://json-schema.org/draft/2019-09/schema",
    ] {
        assert!(
            !kept(
                draft,
                json!({"type": "string", "enum": ["a"], "pattern": "^a"})
            ),
            "{draft}"
        );
        assert!(kept(draft, json!({"type": "string", "format": "email"})));
        assert!(kept(draft, json!({"items": [{"type": "string"}]})));
        assert!(kept(
            draft,
            json!({"items": {"anyOf": [{"$ref": "#", "maxLength": 3}]}})
        ));
        assert!(kept(draft, json!({"dependencies": {"b": ["c"]}})));
        assert!(!kept(draft, json!({"$ref": "#", "description": "more"})));
    }
    assert!(!kept(
        "https://json-schema.org/draft/2020-12/schema",
        json!({"format": "email"})
    ));
    assert!(kept("http://json-schema.org/draft-04/schema#", json!({})));
    // An unknown draft could only be rejected.
    assert!(!kept("https://example.com/own", json!({})));
}

#[test]
fn input_accepts_same_values_as_original_schema() {
    let values = [
        json!(null),
        json!(1),
        json!("a@b.c"),
        json!("x"),
        json!([1]),
        json!(["a", 1]),
        json!({"a": 1}),
        json!({"b": "x"}),
    ];
    let shapes = [
        json!({"type": "string", "format": "email"}),
        json!({"items": [{"type": "string"}], "additionalItems": false}),
        json!({"items": {"type": "string"}}),
        json!({"$ref": "#/definitions/s", "maxLength": 1}),
        json!({"$ref": "#/definitions/s", "title": "s"}),
        json!({"dependencies": {"a": ["b"]}}),
        json!({"required": ["a"], "not": {"required": ["b"]}, "x-a": 1, "$comment": "c"}),
        json!({"if": {"type": "string"}, "then": {"maxLength": 1}}),
        json!({"contains": {"const": 1}}),
        json!({"exclusiveMinimum": 0}),
    ];
    for draft in [
        DRAFT_7,
        "http://json-schema.org/draft-06/schema#",
        "https://json-schema.org/draft/2020-12/schema",
    ] {
        for shape in &shapes {
            let schema = json!({
                "$schema": draft, "type": "object", "properties": {"v": shape},
                "definitions": {"s": {"type": "string", "title": "S"}},
            });
            // Some schemas are valid only in older drafts.
            let Ok(before) = Schema::new(&schema) else {
                continue;
            };
            let after = convert(schema.clone()).unwrap();
            let after = Schema::new(&after).unwrap_or_else(|error| panic!("{error}: {after}"));
            for value in &values {
                let value = json!({"v": value});
                assert_eq!(
                    before.problems(&value).is_some(),
                    after.problems(&value).is_some(),
                    "{schema} {value}"
                );
            }
        }
    }
}

#[test]
fn input_repairs_type_of_object() {
    check(json!({}), &json!({"type": "object"}));
    check(
        json!({"properties": {"a": {}}}),
        &json!({"properties": {"a": {}}, "type": "object"}),
    );
    check(
        json!({"type": ["object", "null"]}),
        &json!({"type": "object"}),
    );
    check(
        json!({"type": null, "properties": null, "required": null}),
        &json!({"type": "object"}),
    );
    assert_eq!(
        convert(json!({"type": "string"})).unwrap_err(),
        "does not describe an object"
    );
    assert_eq!(
        convert(json!({"type": 5})).unwrap_err(),
        "does not describe an object"
    );
}

#[test]
fn input_rejects_hostile_schemas_with_reason() {
    let deep = (0..200).fold(json!({}), |inner, _| json!({"items": inner}));
    assert_eq!(
        convert(deep.clone()).unwrap_err(),
        "is nested deeper than 64 levels"
    );
    let large = json!({"type": "object", "description": "x".repeat(200_000)});
    assert!(convert(large.clone()).unwrap_err().starts_with("has 2000"));
    for schema in [deep, large] {
        assert!(output(schema.as_object().unwrap()).is_err());
    }
    // Values of the wrong type must not cause a panic.
    let invalid = json!({
        "properties": [1], "$defs": 2, "anyOf": "x", "items": null, "title": 5, "$ref": [],
        "$schema": 1,
    });
    convert(invalid).unwrap();
}
