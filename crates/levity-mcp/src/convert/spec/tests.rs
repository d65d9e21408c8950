use levity_core::EffectClass;
use serde_json::{Value, json};

use super::*;

fn made(tool: Value, trust: Trust) -> (ToolSpec, Kept) {
    let tool: Tool = serde_json::from_value(tool).unwrap();
    spec(&tool, "mcp_s_t".into(), trust, Duration::from_secs(300)).unwrap()
}

#[test]
fn a_tool_keeps_its_words() {
    let tool = json!({
        "name": "t", "title": "The Tool", "description": " Does it. ", "inputSchema": {"type": "object"},
        "outputSchema": {"type": "object", "required": ["a"]},
    });
    let (spec, kept) = made(tool, Trust::Wary);
    assert_eq!((&*spec.name, &*spec.description), ("mcp_s_t", "Does it."));
    assert_eq!(
        spec.output,
        Some(json!({"type": "object", "required": ["a"]}))
    );
    assert_eq!(spec.hints.timeout, Some(Duration::from_secs(305)));
    assert_eq!(
        (&*kept.name, kept.title.as_deref()),
        ("t", Some("The Tool"))
    );
    assert!(kept.problems.is_empty());
}

#[test]
fn a_tool_without_a_description_is_told_by_its_title() {
    let described = |tool: Value| made(tool, Trust::Wary).0.description;
    assert_eq!(
        described(json!({"name": "t", "title": "Sums", "inputSchema": {}})),
        "Sums"
    );
    let noted = json!({"name": "t", "description": " ", "inputSchema": {}, "annotations": {"title": "Adds"}});
    assert_eq!(described(noted), "Adds");
    assert_eq!(described(json!({"name": "t", "inputSchema": {}})), "t");
}

#[track_caller]
fn check(annotations: &Value, trust: Trust, class: EffectClass, destructive: bool) {
    let tool = json!({"name": "t", "inputSchema": {}, "annotations": annotations});
    let hints = made(tool, trust).0.hints;
    assert_eq!(
        (hints.class, hints.destructive),
        (class, destructive),
        "{annotations} {trust:?}"
    );
}

#[test]
fn a_wary_host_believes_only_in_danger() {
    use EffectClass::AtMostOnce;
    check(&json!({}), Trust::Wary, AtMostOnce, false);
    check(
        &json!({"readOnlyHint": true, "idempotentHint": true}),
        Trust::Wary,
        AtMostOnce,
        false,
    );
    check(
        &json!({"destructiveHint": true}),
        Trust::Wary,
        AtMostOnce,
        true,
    );
    check(
        &json!({"readOnlyHint": true, "destructiveHint": true}),
        Trust::Wary,
        AtMostOnce,
        true,
    );
    check(
        &json!({"readOnlyHint": false}),
        Trust::Wary,
        AtMostOnce,
        true,
    );
    check(
        &json!({"readOnlyHint": false, "destructiveHint": false}),
        Trust::Wary,
        AtMostOnce,
        false,
    );
}

#[test]
fn full_trust_believes_all_of_it() {
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
fn what_is_wrong_with_a_tool_names_it() {
    let bad: Tool =
        serde_json::from_value(json!({"name": "t", "inputSchema": {"type": "array"}})).unwrap();
    let flaw = spec(&bad, "x".into(), Trust::Wary, Duration::ZERO).unwrap_err();
    assert_eq!(
        flaw,
        "the tool `t` is left out: its input schema is not one of an object"
    );
    let deep = (0..80).fold(json!({}), |inner, _| json!({"items": inner}));
    let long = "é".repeat(20_000);
    let (spec, kept) = made(
        json!({"name": "t", "description": long, "inputSchema": {}, "outputSchema": deep}),
        Trust::Wary,
    );
    assert_eq!((spec.output, spec.description.len()), (None, 32 << 10));
    assert_eq!(
        kept.problems,
        [
            "the tool `t` is not held to its output schema, which is nested deeper than 64 levels",
            "the tool `t` is described in 40000 bytes, of which the first 32768 are shown",
        ]
    );
}
