//! Checks of the requests to providers against their documented schemas.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;

use levity_core::{Message, Model, Request, ToolSpec};
use levity_llm::{Endpoint, GeminiModel, OpenAiModel};
use serde_json::Value;

/// Checks the requests to Gemini and OpenAI, and returns how many tools use OpenAI's strict mode.
pub(super) fn check(specs: &Arc<[Arc<ToolSpec>]>) -> usize {
    gemini(
        &sent_body(specs, |url| {
            Box::new(
                GeminiModel::new("key", "gemini-2.5-flash").with_endpoint(|_| Endpoint::new(&url)),
            )
        }),
        specs,
    );
    openai(
        &sent_body(specs, |url| {
            Box::new(OpenAiModel::new("key", "gpt-5").with_endpoint(|_| Endpoint::new(&url)))
        }),
        specs,
    )
}

/// Returns the body of a request with these tools.
fn sent_body(specs: &Arc<[Arc<ToolSpec>]>, model: impl Fn(String) -> Box<dyn Model>) -> Value {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let model = model(format!("http://{}", listener.local_addr().unwrap()));
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut bytes, mut piece) = (Vec::new(), [0; 65_536]);
        let body = loop {
            let count = stream.read(&mut piece).unwrap();
            bytes.extend_from_slice(&piece[..count]);
            assert!(count > 0, "the request is incomplete");
            if let Some(body) = body(&bytes) {
                break body;
            }
        };
        stream
            .write_all(b"HTTP/1.1 400 Bad\r\ncontent-length: 2\r\n\r\n{}")
            .unwrap();
        body
    });
    let request = Request::new()
        .with_message(Message::user("Hi"))
        .with_tools(specs.clone());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    assert!(runtime.block_on(model.complete(request)).is_err());
    server.join().unwrap()
}

fn body(bytes: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let length = head.lines().find_map(|line| {
        line.to_ascii_lowercase()
            .strip_prefix("content-length: ")?
            .parse::<usize>()
            .ok()
    });
    let length = length.expect("the request has a content length");
    (body.len() >= length).then(|| serde_json::from_str(&body[..length]).unwrap())
}

/// The keywords that Gemini documents for JSON Schemas.
const GEMINI: [&str; 17] = [
    "type",
    "format",
    "title",
    "description",
    "enum",
    "items",
    "prefixItems",
    "minItems",
    "maxItems",
    "minimum",
    "maximum",
    "anyOf",
    "properties",
    "additionalProperties",
    "required",
    "propertyOrdering",
    "nullable",
];

fn gemini(body: &Value, specs: &[Arc<ToolSpec>]) {
    let functions: Vec<&Value> = body["tools"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|tool| tool["functionDeclarations"].as_array().unwrap())
        .collect();
    assert_eq!(functions.len(), specs.len());
    for (function, spec) in functions.iter().zip(specs) {
        assert_eq!(function["name"], spec.name);
        if let Some(schema) = function.get("parametersJsonSchema") {
            walk(schema, &mut |schema| {
                let known = schema
                    .keys()
                    .all(|keyword| GEMINI.contains(&keyword.as_str()));
                assert!(
                    known && schema.get("type").is_none_or(is_type),
                    "{}: {schema:?}",
                    spec.name
                );
                let formats = [
                    "date-time",
                    "date",
                    "time",
                    "enum",
                    "int32",
                    "int64",
                    "float",
                    "double",
                ];
                assert!(
                    schema
                        .get("format")
                        .is_none_or(|format| formats.iter().any(|known| format == known))
                );
                let required = schema
                    .get("required")
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten();
                let has = |name: &Value| schema["properties"].get(name.as_str().unwrap()).is_some();
                assert!(required.into_iter().all(has), "{}: {schema:?}", spec.name);
            });
        }
    }
}

/// Returns `true` for a type, or a type that may be null.
fn is_type(kind: &Value) -> bool {
    match kind {
        Value::Array(types) => matches!(&**types, [one, null] if one.is_string() && null == "null"),
        kind => kind.is_string(),
    }
}

/// The keywords that OpenAI documents for schemas in strict mode.
const STRICT: [&str; 20] = [
    "type",
    "description",
    "title",
    "enum",
    "const",
    "items",
    "minItems",
    "maxItems",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "pattern",
    "format",
    "anyOf",
    "properties",
    "additionalProperties",
    "required",
    "$ref",
];

fn openai(body: &Value, specs: &[Arc<ToolSpec>]) -> usize {
    let tools = body["tools"].as_array().unwrap();
    assert_eq!(tools.len(), specs.len());
    let mut strict_count = 0;
    for (tool, spec) in tools.iter().zip(specs) {
        assert_eq!(tool["name"], spec.name);
        let schema = &tool["parameters"];
        assert_eq!(schema["type"], "object", "{}", spec.name);
        assert!(schema["properties"].is_object(), "{}", spec.name);
        let forbidden_at_top = ["anyOf", "oneOf", "allOf", "not", "enum", "const", "$ref"];
        assert!(
            forbidden_at_top
                .iter()
                .all(|keyword| schema.get(*keyword).is_none()),
            "{}: {schema}",
            spec.name
        );
        if tool["strict"] != true {
            println!("{} is offered without strict mode: {schema}", spec.name);
            continue;
        }
        strict_count += 1;
        walk(schema, &mut |schema| strict(&spec.name, schema));
    }
    strict_count
}

fn strict(tool: &str, schema: &serde_json::Map<String, Value>) {
    let known = schema
        .keys()
        .all(|keyword| STRICT.contains(&keyword.as_str()) || keyword == "$defs");
    assert!(known, "{tool}: {schema:?}");
    if schema.get("type").is_some_and(|kind| {
        kind == "object"
            || kind
                .as_array()
                .is_some_and(|all| all.contains(&"object".into()))
    }) {
        assert_eq!(
            schema.get("additionalProperties"),
            Some(&Value::Bool(false)),
            "{tool}: {schema:?}"
        );
        let names: BTreeSet<&str> = schema["properties"]
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        let required: BTreeSet<&str> = schema["required"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(Value::as_str)
            .collect();
        assert_eq!(names, required, "{tool}");
    }
}

/// Visits each schema within a schema.
fn walk(schema: &Value, visit: &mut impl FnMut(&serde_json::Map<String, Value>)) {
    let Value::Object(map) = schema else { return };
    visit(map);
    for keyword in ["properties", "$defs"] {
        map.get(keyword)
            .and_then(Value::as_object)
            .into_iter()
            .flat_map(|all| all.values())
            .for_each(|inner| walk(inner, visit));
    }
    for keyword in ["anyOf", "prefixItems"] {
        map.get(keyword)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .for_each(|inner| walk(inner, visit));
    }
    for keyword in ["items", "additionalProperties"] {
        map.get(keyword)
            .into_iter()
            .for_each(|inner| walk(inner, visit));
    }
}
