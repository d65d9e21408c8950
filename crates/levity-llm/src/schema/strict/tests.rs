use serde_json::json;

use super::*;
use crate::schema::nulls::Filter;

#[track_caller]
fn check(schema: &Value, expected: &Value) -> Strict {
    let converted = strict(schema).unwrap_or_else(|| panic!("the schema is rejected"));
    assert_eq!(converted.schema, *expected, "\n{:#}", converted.schema);
    converted
}

#[track_caller]
fn check_rejected(schema: &Value) {
    assert!(strict(schema).is_none(), "{schema} was converted");
}

/// An object with one property, and its strict form.
fn object(property: &Value) -> Value {
    json!({"type": "object", "properties": {"p": property}, "required": ["p"]})
}

#[track_caller]
fn property(given: Value, expected: Value) {
    let object = |property: Value| {
        json!({
            "type": "object",
            "properties": {"p": property},
            "required": ["p"],
            "additionalProperties": false,
        })
    };
    check(&object(given), &object(expected));
}

#[test]
fn optional_property_becomes_nullable() {
    let given = json!({
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "unit": {"type": "string", "enum": ["c", "f"]},
            "days": {"type": ["integer", "string"]},
            "kind": {"const": "x"},
            "note": {"type": ["string", "null"]},
            "any": {"anyOf": [{"type": "string"}, {"type": "number"}]},
        },
        "required": ["city"],
    });
    let converted = check(
        &given,
        &json!({
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "unit": {"type": ["string", "null"], "enum": ["c", "f", null]},
                "days": {"type": ["integer", "string", "null"]},
                "kind": {"anyOf": [{"type": "string", "const": "x"}, {"type": "null"}]},
                "note": {"type": ["string", "null"]},
                "any": {"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "null"}]},
            },
            "required": ["city", "unit", "days", "kind", "note", "any"],
            "additionalProperties": false,
        }),
    );
    let mut filter = Filter::new(std::sync::Arc::new(converted.nulls.unwrap()));
    let arguments = r#"{"city":"Rome","unit":null,"days":null,"kind":null,"note":null,"any":null}"#;
    assert_eq!(filter.feed(arguments), r#"{"city":"Rome","note":null}"#);
}

#[test]
fn schema_without_optional_properties_has_no_nulls() {
    let given = json!({"type": "object", "properties": {"a": {"type": ["string", "null"]}}});
    assert!(strict(&given).unwrap().nulls.is_none());
    let none =
        json!({"type": "object", "properties": {}, "required": [], "additionalProperties": false});
    check(&json!({"type": "object", "properties": {}}), &none);
    check(
        &json!({"type": "object", "additionalProperties": false}),
        &none,
    );
}

#[test]
fn unsupported_keywords_become_description() {
    property(
        json!({
            "type": "string",
            "description": "A name.",
            "minLength": 2,
            "maxLength": 9,
            "default": "Eve",
        }),
        json!({
            "type": "string",
            "description": "A name. Characters at least: 2. Characters at most: 9. Default: Eve.",
        }),
    );
    property(
        json!({
            "type": "array",
            "items": {"type": "string", "format": "uri"},
            "uniqueItems": true,
            "minItems": 1,
        }),
        json!({
            "type": "array",
            "items": {"type": "string", "description": "Format: uri."},
            "minItems": 1,
            "description": "No item twice.",
        }),
    );
    property(
        json!({"type": "string", "pattern": "^(?=a)b", "examples": ["ab"]}),
        json!({"type": "string", "description": "Must match: ^(?=a)b. Examples: [\"ab\"]."}),
    );
    let unchanged =
        json!({"type": "string", "pattern": "^(?:a|b)+$", "format": "date-time", "title": "T"});
    property(unchanged.clone(), unchanged);
    let unchanged =
        json!({"type": "integer", "minimum": 0, "exclusiveMaximum": 10, "multipleOf": 2});
    property(unchanged.clone(), unchanged);
}

#[test]
fn types_are_inferred_from_values() {
    property(
        json!({"enum": ["a", 1, null]}),
        json!({"type": ["string", "integer", "null"], "enum": ["a", 1, null]}),
    );
    property(
        json!({"const": true}),
        json!({"type": "boolean", "const": true}),
    );
}

#[test]
fn alternatives_are_retained() {
    property(
        json!({"oneOf": [{"const": "a", "description": "First."}, {"const": "b"}]}),
        json!({"anyOf": [
            {"type": "string", "const": "a", "description": "First."},
            {"type": "string", "const": "b"},
        ]}),
    );
    property(
        json!({"oneOf": [{"type": "integer", "minimum": 5}, {"type": "integer", "maximum": 9}]}),
        json!({
            "description": "Exactly one of these.",
            "anyOf": [{"type": "integer", "minimum": 5}, {"type": "integer", "maximum": 9}],
        }),
    );
}

#[test]
fn references_are_retained_as_only_keyword() {
    let given = json!({
        "type": "object",
        "properties": {
            "head": {"$ref": "#/definitions/Node", "description": "The first."},
            "next": {"$ref": "#/definitions/Node"},
            "self": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
        },
        "required": ["head"],
        "definitions": {
            "Node": {
                "type": "object",
                "properties": {"value": {"type": "number"}, "next": {"$ref": "#/definitions/Node"}},
            },
            "Unused": {"type": "object", "additionalProperties": true},
        },
    });
    let converted = check(
        &given,
        &json!({
            "type": "object",
            "properties": {
                "head": {"description": "The first.", "anyOf": [{"$ref": "#/$defs/Node"}]},
                "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]},
                "self": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
            },
            "required": ["head", "next", "self"],
            "additionalProperties": false,
            "$defs": {"Node": {
                "type": "object",
                "properties": {
                    "value": {"type": ["number", "null"]},
                    "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]},
                },
                "required": ["value", "next"],
                "additionalProperties": false,
            }},
        }),
    );
    let mut filter = Filter::new(std::sync::Arc::new(converted.nulls.unwrap()));
    let arguments = concat!(
        r#"{"head":{"value":null,"next":{"value":1,"next":null}},"next":null,"#,
        r#""self":{"next":null,"self":null}}"#,
    );
    assert_eq!(
        filter.feed(arguments),
        r#"{"head":{"next":{"value":1}},"self":{"self":null}}"#
    );
}

#[test]
fn reference_at_root_is_followed() {
    let given = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$ref": "#/$defs/A",
        "$defs": {"A": {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}}},
    });
    let converted = strict(&given).unwrap();
    assert_eq!(
        converted.schema["properties"]["a"]["anyOf"][0],
        json!({"$ref": "#/$defs/A"})
    );
    assert_eq!(converted.schema["$defs"]["A"]["required"], json!(["a"]));
}

#[test]
fn schema_that_would_accept_less_is_rejected() {
    check_rejected(&json!({"type": "object"}));
    check_rejected(&json!({"type": "object", "properties": {}, "additionalProperties": true}));
    check_rejected(&json!({"type": "object", "additionalProperties": {"type": "string"}}));
    check_rejected(&json!({"type": "string"}));
    check_rejected(&json!(true));
    check_rejected(&json!({"anyOf": [{"type": "object", "properties": {}}]}));
    check_rejected(
        &json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["b"]}),
    );
    for free in [
        json!({"type": "object"}),
        json!({"type": "object", "properties": {}}),
        json!({}),
        json!(true),
        json!({"type": "array"}),
        json!({"type": "object", "additionalProperties": {"type": "string"}}),
        json!({"type": "object", "patternProperties": {"^x": {"type": "string"}}}),
        json!({"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "string"}}),
        json!({"type": "string", "not": {"const": "x"}}),
        json!({"allOf": [{"type": "string"}, {"pattern": "x"}]}),
        json!({
            "type": "object",
            "properties": {"a": {"type": "string"}},
            "anyOf": [{"required": ["a"]}],
        }),
        json!({"$ref": "https://example.org/other.json"}),
        json!({"$ref": "#/$defs/Missing"}),
        json!({"enum": [{"a": 1}]}),
    ] {
        check_rejected(&object(&free));
    }
}

#[test]
fn indistinguishable_alternatives_are_rejected() {
    let branch = |kind: Value, more: Value| {
        json!({
            "type": "object",
            "properties": {"kind": kind, "x": more},
            "required": ["kind"],
        })
    };
    let text = || json!({"type": "string"});
    check_rejected(&object(
        &json!({"anyOf": [branch(text(), text()), branch(text(), json!({"type": "number"}))]}),
    ));
    let both = |a: Value, b: Value| {
        object(
            &json!({"anyOf": [branch(json!({"const": "a"}), a), branch(json!({"const": "b"}), b)]}),
        )
    };
    assert!(strict(&both(text(), text())).is_some());
    // `x: null` would be a value in one alternative and mean an absent value in the other.
    check_rejected(&both(text(), json!({"type": ["string", "null"]})));
}

#[test]
fn schema_beyond_limits_is_rejected() {
    let nested = |levels: usize| {
        (1..levels).fold(
            json!({"type": "object", "properties": {"x": {"type": "string"}}}),
            |below, _| object(&below),
        )
    };
    assert!(strict(&nested(10)).is_some());
    check_rejected(&nested(11));
    check_rejected(&nested(100));
    let values = |count: usize| {
        object(&json!({"enum": (0..count).map(|n| n.to_string()).collect::<Vec<_>>()}))
    };
    assert!(strict(&values(1_000)).is_some());
    check_rejected(&values(1_001));
    let long = |count: usize| object(&json!({"enum": vec!["x".repeat(100); count]}));
    assert!(strict(&long(150)).is_some());
    check_rejected(&long(251));
    let many = |count: usize| {
        let all: Map<String, Value> = (0..count)
            .map(|n| (format!("p{n}"), json!({"type": "string"})))
            .collect();
        json!({"type": "object", "properties": all})
    };
    assert!(strict(&many(5_000)).is_some());
    check_rejected(&many(5_001));
}

#[test]
fn conversion_of_hostile_schemas_terminates() {
    let mut defs = Map::new();
    for n in 0..2_000 {
        let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
        defs.insert(format!("d{n}"), json!({"anyOf": [next, next, next]}));
    }
    defs.insert("d2000".to_owned(), json!({"$ref": "#/$defs/d0"}));
    let schema =
        json!({"type": "object", "properties": {"p": {"$ref": "#/$defs/d0"}}, "$defs": defs});
    check_rejected(&schema);
}
