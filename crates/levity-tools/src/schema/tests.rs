use serde_json::json;

use super::*;

fn schema(value: &Value) -> Result<Schema, Error> {
    Schema::compile("t", SchemaSide::Input, value)
}

#[track_caller]
fn check(shape: &Value, value: &Value, expected: &[&str]) {
    let problems = schema(shape).unwrap().problems(value).unwrap_or_default();
    assert_eq!(
        problems.lines().collect::<Vec<_>>(),
        expected,
        "{shape} {value}"
    );
}

fn nested(depth: usize) -> Value {
    (0..depth).fold(json!(1), |inner, _| Value::Array(vec![inner]))
}

#[test]
fn each_problem_is_reported_with_its_place() {
    let shape = json!({
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer", "maximum": 7},
            "unit": {"enum": ["c", "f"]},
            "at": {"type": "object", "required": ["x"]},
        },
        "required": ["city"],
        "additionalProperties": false,
    });
    check(&shape, &json!({"city": "Rome", "days": 3}), &[]);
    check(
        &shape,
        &json!({"city": 5}),
        &["- at `/city`: 5 is not of type \"string\""],
    );
    check(&shape, &json!({}), &["- the property \"city\" is missing"]);
    check(
        &shape,
        &json!({"city": "a", "ctiy": 1}),
        &["- there is no property \"ctiy\""],
    );
    check(&shape, &json!([]), &["- [] is not of type \"object\""]);
    check(
        &shape,
        &json!({"city": "a", "days": 9, "unit": "k", "at": {}}),
        &[
            "- at `/days`: 9 is greater than the maximum of 7",
            "- at `/unit`: \"k\" is not one of \"c\" or \"f\"",
            "- at `/at`: the property \"x\" is missing",
        ],
    );
}

#[test]
fn many_problems_are_counted_and_huge_values_report_one() {
    let shape = json!({"items": {"type": "string"}});
    let problems = schema(&shape)
        .unwrap()
        .problems(&json!(vec![0; 20]))
        .unwrap();
    assert_eq!(problems.lines().count(), MAX_PROBLEMS + 1);
    assert!(problems.ends_with("- and 12 more"), "{problems}");
    check(
        &shape,
        &json!(vec![0; MAX_SEARCHED + 1]),
        &["- at `/0`: 0 is not of type \"string\""],
    );
}

#[test]
fn long_value_gives_short_message() {
    let long = "é".repeat(100_000);
    let shapes = [
        json!({"type": "integer"}),
        json!({"enum": [1]}),
        json!({"properties": {long.clone(): {"type": "null"}}}),
        json!({"propertyNames": {"maxLength": 1}}),
        json!({"additionalProperties": false}),
        json!({"not": {"required": [long.clone()]}}),
        json!({"required": [long.repeat(2)]}),
        json!({"anyOf": [{"type": "integer"}, {"type": "null"}]}),
    ];
    for shape in shapes {
        let problems = schema(&shape)
            .unwrap()
            .problems(&json!({long.clone(): long}))
            .unwrap();
        assert!(problems.len() < 600, "{} bytes", problems.len());
    }
}

#[test]
fn schema_may_forbid_everything() {
    check(&json!(false), &json!(1), &["- nothing is allowed here"]);
    check(
        &json!({"properties": {"a": false}}),
        &json!({"a": 1}),
        &["- at `/a`: nothing is allowed here"],
    );
    check(&json!(true), &json!(1), &[]);
}

#[test]
fn invalid_schema_is_rejected() {
    for shape in [
        json!({"type": "nothing"}),
        json!({"properties": 5}),
        json!({"pattern": "("}),
        json!({"pattern": "(".repeat(50_000) + &")".repeat(50_000)}),
        json!({"patternProperties": {"(?:".repeat(50_000) + &")".repeat(50_000): true}}),
        json!({"$ref": "#/$defs/gone"}),
        json!("object"),
    ] {
        let Err(Error::InvalidSchema { cause, .. }) = schema(&shape).map(drop) else {
            panic!("{shape}")
        };
        assert!(!cause.to_string().is_empty());
    }
}

#[test]
fn remote_references_are_never_fetched() {
    let refused = |reference: &str| {
        let shape = json!({"type": "object", "properties": {"a": {"$ref": reference}}});
        schema(&shape).map(drop).unwrap_err().to_string()
    };
    assert_eq!(
        refused("https://example.com/a.json"),
        "the input schema of `t` refers to `https://example.com/a.json`, which is never fetched; \
            move it to `$defs`"
    );
    assert!(refused("file:///etc/passwd").contains("file:///etc/passwd"));
    assert!(refused("other.json").contains("other.json"));
    let own = json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}});
    assert!(schema(&own).is_ok());
    let meta = json!({"$schema": "https://example.com/meta", "type": "object"});
    assert!(schema(&meta).is_err());
}

#[test]
fn deep_values_are_rejected_before_validation() {
    let tree = json!({"items": {"$ref": "#"}});
    let schema = schema(&tree).unwrap();
    assert_eq!(schema.problems(&nested(MAX_DEPTH)), None);
    assert_eq!(
        schema.problems(&nested(5_000)).unwrap(),
        "- it is nested deeper than 100 levels"
    );
}

#[test]
fn deep_and_circular_schemas_do_no_harm() {
    let deep = |depth| (0..depth).fold(json!({}), |inner, _| json!({"items": inner}));
    assert!(schema(&deep(MAX_DEPTH - 1)).is_ok());
    assert!(schema(&deep(MAX_DEPTH + 1)).is_err());
    for shape in [
        json!({"$ref": "#"}),
        json!({"allOf": [{"$ref": "#"}]}),
        json!({"anyOf": [{"$ref": "#"}]}),
    ] {
        if let Ok(schema) = schema(&shape) {
            schema.problems(&json!({"a": 1}));
        }
    }
}

#[test]
fn exponential_pattern_is_aborted() {
    let shape = json!({"pattern": "^(a+)+\\1$"});
    assert!(
        schema(&shape)
            .unwrap()
            .problems(&json!("a".repeat(60) + "b"))
            .is_some()
    );
}

/// Returns `true` if the meta-schema accepts the schema.
fn is_valid(schema: &Value) -> bool {
    jsonschema::meta::is_valid(schema)
}

#[test]
fn simple_valid_schemas_are_valid() {
    // This is the schema of a type as `schemars` generates it.
    let trip = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Trip",
        "type": "object",
        "properties": {
            "city": {"description": "Where to.", "type": "string"},
            "days": {"type": ["integer", "null"], "format": "uint8", "minimum": 0, "maximum": 255},
            "ways": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
        },
        "required": ["city", "ways"],
        "additionalProperties": false,
        "$defs": {"Way": {"oneOf": [
            {"type": "string", "enum": ["Foot"]},
            {"type": "object", "properties": {"Train": {"type": "object"}}, "required": ["Train"]},
        ]}},
    });
    for sound in [
        trip,
        json!(true),
        json!({"type": ["string", "null"], "enum": ["a", null], "const": 1, "default": {}}),
        json!({
            "anyOf": [{"minLength": 3}, false],
            "$defs": {"a": {"maxItems": 3, "minimum": 0.5}},
        }),
    ] {
        assert!(simple::is_valid(&sound) && is_valid(&sound), "{sound}");
        assert!(schema(&sound).is_ok(), "{sound}");
    }
}

#[test]
fn invalid_schemas_are_not_recognized_as_simple() {
    for wrong in [
        json!(null),
        json!([]),
        json!({"type": "text"}),
        json!({"type": []}),
        json!({"type": ["string", "string"]}),
        json!({"type": ["string", 1]}),
        json!({"required": "a"}),
        json!({"required": ["a", "a"]}),
        json!({"required": [1]}),
        json!({"properties": []}),
        json!({"properties": {"a": {"type": "text"}}}),
        json!({"items": [{}]}),
        json!({"additionalProperties": 1}),
        json!({"anyOf": []}),
        json!({"allOf": {}}),
        json!({"oneOf": [1]}),
        json!({"minimum": "1"}),
        json!({"maxLength": -1}),
        json!({"maxItems": 1.5}),
        json!({"description": 1}),
        json!({"enum": "a"}),
        json!({"$ref": 1}),
        json!({"$defs": {"a": 1}}),
    ] {
        assert!(!is_valid(&wrong) && !simple::is_valid(&wrong), "{wrong}");
        assert!(schema(&wrong).is_err(), "{wrong}");
    }
    // Schemas that are unknown here, or may fail to compile, are left to the compiler.
    for other in [
        json!({"pattern": "("}),
        json!({"$ref": "#/$defs/none"}),
        json!({"$schema": "other"}),
    ] {
        assert!(!simple::is_valid(&other), "{other}");
    }
}
