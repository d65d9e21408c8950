use levity_core::EffectClass;
use serde_json::{Value, json};

use super::*;

fn convert(tool: Value, trust: Trust) -> (ToolSpec, ToolInfo) {
    let tool: Tool = serde_json::from_value(tool).unwrap();
    spec(&tool, "mcp_s_t".into(), trust, Duration::from_secs(300)).unwrap()
}

#[test]
fn spec_keeps_description_title_and_schemas() {
    let tool = json!({
        "name": "t", "title": "The Tool", "description": " Does it. ",
        "inputSchema": {"type": "object"},
        "outputSchema": {"type": "object", "required": ["a"]},
    });
    let (spec, info) = convert(tool, Trust::Cautious);
    assert_eq!((&*spec.name, &*spec.description), ("mcp_s_t", "Does it."));
    assert_eq!(
        spec.output,
        Some(json!({"type": "object", "required": ["a"]}))
    );
    assert_eq!(spec.hints.timeout, Some(Duration::from_secs(305)));
    assert_eq!(
        (&*info.name, info.title.as_deref()),
        ("t", Some("The Tool"))
    );
    assert!(info.problems.is_empty());
}

#[test]
fn spec_without_description_uses_title() {
    let description = |tool: Value| convert(tool, Trust::Cautious).0.description;
    assert_eq!(
        description(json!({"name": "t", "title": "Sums", "inputSchema": {}})),
        "Sums"
    );
    let annotated = json!({
        "name": "t",
        "description": " ",
        "inputSchema": {},
        "annotations": {"title": "Adds"},
    });
    assert_eq!(description(annotated), "Adds");
    assert_eq!(description(json!({"name": "t", "inputSchema": {}})), "t");
}

#[track_caller]
fn check(annotations: &Value, trust: Trust, class: EffectClass, destructive: bool) {
    let tool = json!({"name": "t", "inputSchema": {}, "annotations": annotations});
    let hints = convert(tool, trust).0.hints;
    assert_eq!(
        (hints.class, hints.destructive),
        (class, destructive),
        "{annotations} {trust:?}"
    );
}

#[test]
fn cautious_trust_uses_only_destructive_hints() {
    use EffectClass::AtMostOnce;
    check(&json!({}), Trust::Cautious, AtMostOnce, false);
    check(
        &json!({"readOnlyHint": true, "idempotentHint": true}),
        Trust::Cautious,
        AtMostOnce,
        false,
    );
    check(
        &json!({"destructiveHint": true}),
        Trust::Cautious,
        AtMostOnce,
        true,
    );
    check(
        &json!({"readOnlyHint": true, "destructiveHint": true}),
        Trust::Cautious,
        AtMostOnce,
        true,
    );
    check(
        &json!({"readOnlyHint": false}),
        Trust::Cautious,
        AtMostOnce,
        true,
    );
    check(
        &json!({"readOnlyHint": false, "destructiveHint": false}),
        Trust::Cautious,
        AtMostOnce,
        false,
    );
}

#[test]
fn full_trust_uses_all_hints() {
    use EffectClass::{AtMostOnce, Idempotent, ReadOnly};
    check(&json!({}), Trust::Full, AtMostOnce, false);
    check(
        &json!({"readOnlyHint": true, "destructiveHint": true}),
        Trust::Full,
        ReadOnly,
        false,
    );
    check(
        &json!({"idempotentHint": true, "destructiveHint": true}),
        Trust::Full,
        Idempotent,
        true,
    );
    check(
        &json!({"readOnlyHint": false, "idempotentHint": true}),
        Trust::Full,
        Idempotent,
        true,
    );
    check(
        &json!({"idempotentHint": true, "destructiveHint": false}),
        Trust::Full,
        Idempotent,
        false,
    );
}

#[test]
fn spec_problems_name_the_tool() {
    let bad: Tool =
        serde_json::from_value(json!({"name": "t", "inputSchema": {"type": "array"}})).unwrap();
    let problem = spec(&bad, "x".into(), Trust::Cautious, Duration::ZERO).unwrap_err();
    assert_eq!(
        problem,
        "the tool `t` is omitted: its input schema does not describe an object"
    );
    let deep = (0..80).fold(json!({}), |inner, _| json!({"items": inner}));
    let long = "é".repeat(20_000);
    let (spec, info) = convert(
        json!({"name": "t", "description": long, "inputSchema": {}, "outputSchema": deep}),
        Trust::Cautious,
    );
    assert_eq!((spec.output, spec.description.len()), (None, 32 << 10));
    assert_eq!(
        info.problems,
        [
            "the tool `t` is not checked against its output schema, which is nested deeper than 64 \
                levels",
            "the tool `t` has a description of 40000 bytes, of which only the first 32768 are \
                shown",
        ]
    );
}
