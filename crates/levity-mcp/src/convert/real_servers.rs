//! Tests with the tools of real servers, as models see them.
//!
//! The servers run if `LEVITY_TEST_MCP_NODE` names a folder with `node_modules`,
//! `LEVITY_TEST_MCP_PYTHON` a Python installation with the servers, and `LEVITY_TEST_MCP_PYTHON1`
//! one with the older library.

use std::sync::Arc;
use std::time::Duration;

use levity_core::ToolSpec;
use levity_tools::{Registry, Schema};
use serde_json::{Value, json};

use super::{spec, tool};
use crate::Trust;

mod dialects;
mod live;

/// Returns the number of bytes of JSON that a model sees of a tool, in the format of the protocol.
fn shown_bytes(spec: &ToolSpec) -> usize {
    json!({"name": spec.name, "description": spec.description, "inputSchema": spec.input})
        .to_string()
        .len()
}

/// Returns the specs of a server's tools; none may be omitted.
fn specs(server: &str, entries: &[Value]) -> Vec<Arc<ToolSpec>> {
    let converted = entries.iter().map(|entry| {
        let tool = tool(entry.clone()).unwrap();
        let name = format!("mcp_{server}_{}", tool.name);
        let (spec, info) = spec(&tool, name, Trust::Full, Duration::from_secs(60)).unwrap();
        assert!(info.problems.is_empty(), "{:?}", info.problems);
        Arc::new(spec)
    });
    converted.collect()
}

/// Checks that no data which a model needs was lost.
fn check_unchanged(entry: &Value, spec: &ToolSpec) {
    assert_eq!(
        entry["description"].as_str().unwrap_or_default().trim(),
        spec.description,
        "{}",
        spec.name
    );
    let names = |schema: &Value| {
        let properties = schema["properties"].as_object();
        properties
            .map(|all| all.keys().cloned().collect::<Vec<_>>())
            .unwrap_or_default()
    };
    assert_eq!(names(&entry["inputSchema"]), names(&spec.input));
    assert_eq!(
        entry["inputSchema"].get("required"),
        spec.input.get("required")
    );
    Schema::new(&spec.input).unwrap();
    assert_eq!(entry.get("outputSchema"), spec.output.as_ref());
}

#[test]
fn tools_of_real_servers_are_compact_and_valid_for_providers() {
    let (mut tools, mut before, mut after) = (Vec::new(), 0, 0);
    for (server, entries) in live::lists() {
        let specs = specs(server, &entries);
        let raw = Value::Array(entries.clone()).to_string().len();
        let shown: usize = specs.iter().map(|spec| shown_bytes(spec) + 1).sum();
        println!(
            "{server}: {} tools, {raw} bytes, {shown} shown",
            specs.len()
        );
        entries
            .iter()
            .zip(&specs)
            .for_each(|(entry, spec)| check_unchanged(entry, spec));
        (before, after) = (before + raw, after + shown);
        tools.extend(specs);
    }
    if tools.is_empty() {
        return;
    }
    println!("all: {} tools, {before} bytes, {after} shown", tools.len());
    if live::has_all() {
        assert!(tools.len() >= 59, "{}", tools.len());
        assert!(after * 10 <= before * 6, "{after} of {before} bytes");
    }
    let registry = registry(&tools);
    assert_eq!(registry.problems(), []);
    let strict = dialects::check(&registry.specs());
    println!(
        "{strict} of {} use strict mode with OpenAI's models",
        tools.len()
    );
}

/// Returns a registry with the tools, which compiles their schemas.
fn registry(specs: &[Arc<ToolSpec>]) -> Registry {
    let source = live::Fixed(specs.to_vec());
    Registry::builder().source(source).build().unwrap()
}

#[test]
fn hostile_tools_are_valid_for_providers_or_omitted() {
    let hostile = [
        json!({}),
        json!({"type": "object", "additionalProperties": true}),
        json!({
            "anyOf": [
                {"properties": {"a": {"type": "string"}}},
                {"properties": {"b": {"type": "number"}}},
            ],
        }),
        json!({
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/a"}},
            "$defs": {"a": {"items": {"$ref": "#/$defs/a"}, "type": "array"}},
        }),
        json!({
            "type": "object",
            "properties": {
                "a": {"const": 5},
                "b": {"type": ["string", "null", "number"]},
                "c": {"enum": [1, "x", null]},
            },
        }),
        json!({
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "properties": {"a": {"items": [{"type": "string"}], "type": "array"}},
        }),
        json!({
            "type": "object",
            "properties": {
                "a": {"format": "uri", "type": "string"},
                "b": {"format": "double", "type": "number"},
            },
        }),
        json!({
            "type": "object",
            "properties": {
                "a": {"allOf": [{"type": "string"}, {"maxLength": 3}]},
                "b": {"not": {"type": "null"}},
            },
        }),
        json!({
            "type": "object",
            "properties": {
                "a": {"if": {"type": "string"}, "then": {"pattern": "^x"}},
                "b": true,
                "c": false,
            },
        }),
        json!({
            "type": "object",
            "patternProperties": {"^x-": {"type": "string"}},
            "propertyNames": {"maxLength": 9},
        }),
        json!({
            "type": "object",
            "properties": {
                "a b": {},
                "$c": {"type": "object"},
                "": {"type": "array"},
                "名": {"type": "string"},
            },
        }),
        json!({"type": "object", "properties": {"a": {"$ref": "https://example.com/x"}}}),
        json!({"type": "object", "properties": {"a": {"type": "nonsense"}}}),
        json!({
            "type": "object",
            "properties": {"a": {"exclusiveMinimum": true, "minimum": 1}},
            "$schema": "http://json-schema.org/draft-04/schema#",
        }),
    ];
    let entries = hostile
        .iter()
        .enumerate()
        .map(|(n, schema)| json!({"name": format!("t{n}"), "inputSchema": schema}));
    let entries: Vec<Value> = entries.collect();
    let registry = registry(&specs("odd", &entries));
    // Schemas with external references and invalid schemas are omitted and reported.
    let problems: Vec<_> = registry
        .problems()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(
        problems[0].contains("`mcp_odd_t11`") && problems[1].contains("`mcp_odd_t12`"),
        "{problems:?}"
    );
    assert_eq!(registry.specs().len(), hostile.len() - 2);
    dialects::check(&registry.specs());
}
