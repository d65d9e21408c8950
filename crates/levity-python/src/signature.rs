//! Python signatures of tools, for the author of the code.
//!
//! A signature costs far fewer tokens than a JSON schema, and models know its form. Hints go three
//! levels deep; deeper parts become `Any`.

use levity_core::ToolSpec;
use serde_json::{Map, Value};

use crate::function::Function;

/// The maximum size of a description next to a signature, in bytes.
const MAX_DOC: usize = 200;

/// Returns a line of Python with the signature and purpose of a tool, such as
/// `read_file(path: str, start: int = 1) -> str`.
pub(crate) fn signature(spec: &ToolSpec, function: &Function) -> String {
    let empty = Map::new();
    let properties = spec
        .input
        .get("properties")
        .and_then(Value::as_object)
        .unwrap_or(&empty);
    let required = spec.input.get("required").and_then(Value::as_array);
    let is_required =
        |name: &str| required.is_some_and(|names| names.iter().any(|other| other == name));
    let param = |name: &String| {
        let schema = properties.get(name).unwrap_or(&Value::Null);
        let hint = hint(schema, 3);
        match (is_required(name), schema.get("default")) {
            (true, _) => format!("{name}: {hint}"),
            (false, Some(default)) => format!("{name}: {hint} = {}", literal(default)),
            (false, None) => format!("{name}: {hint} = ..."),
        }
    };
    let params: Vec<String> = function.params.iter().map(param).collect();
    let returns = spec
        .output
        .as_ref()
        .map_or_else(|| "str".to_owned(), |schema| hint(schema, 3));
    let doc = spec
        .description
        .lines()
        .find(|line| !line.trim().is_empty())
        .unwrap_or_default()
        .trim();
    let doc = &doc[..crate::output::floor(doc, MAX_DOC)];
    format!(
        "{}({}) -> {returns}  # {doc}",
        function.name,
        params.join(", ")
    )
}

/// Formats a schema as a type hint.
fn hint(schema: &Value, depth: usize) -> String {
    let Some(depth) = depth.checked_sub(1) else {
        return "Any".to_owned();
    };
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        let values: Vec<String> = values.iter().map(literal).collect();
        return format!("Literal[{}]", values.join(", "));
    }
    let any_of = schema
        .get("anyOf")
        .or_else(|| schema.get("oneOf"))
        .and_then(Value::as_array);
    if let Some(schemas) = any_of {
        let hints: Vec<String> = schemas.iter().map(|schema| hint(schema, depth)).collect();
        return hints.join(" | ");
    }
    match schema.get("type") {
        Some(Value::String(name)) => named(name, schema, depth),
        Some(Value::Array(names)) => {
            let hints: Vec<String> = names
                .iter()
                .filter_map(Value::as_str)
                .map(|name| named(name, schema, depth))
                .collect();
            hints.join(" | ")
        }
        _ => "Any".to_owned(),
    }
}

fn named(name: &str, schema: &Value, depth: usize) -> String {
    match name {
        "string" => "str".to_owned(),
        "integer" => "int".to_owned(),
        "number" => "float".to_owned(),
        "boolean" => "bool".to_owned(),
        "null" => "None".to_owned(),
        "array" => match schema.get("items") {
            Some(items) => format!("list[{}]", hint(items, depth)),
            None => "list".to_owned(),
        },
        "object" => fields(schema, depth),
        _ => "Any".to_owned(),
    }
}

/// Formats an object with its keys, because code reads them.
fn fields(schema: &Value, depth: usize) -> String {
    match schema.get("properties").and_then(Value::as_object) {
        Some(properties) if !properties.is_empty() => {
            let field =
                |(name, schema): (&String, &Value)| format!("'{name}': {}", hint(schema, depth));
            let fields: Vec<String> = properties.iter().map(field).collect();
            format!("{{{}}}", fields.join(", "))
        }
        _ => "dict".to_owned(),
    }
}

/// Formats a value as Python source.
fn literal(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(spec: &ToolSpec, expected: &str) {
        assert_eq!(signature(spec, &Function::of(spec)), expected);
    }

    #[test]
    fn signature_has_type_hints_from_schema() {
        check(
            &ToolSpec::new("now", "Tells the time."),
            "now() -> str  # Tells the time.",
        );
        let input = json!({
            "type": "object",
            "properties": {
                "mode": {"enum": ["a", 1, null], "default": "a"},
                "path": {"type": "string"},
                "lines": {"type": "array", "items": {"type": ["integer", "null"]}},
            },
            "required": ["path"],
        });
        let output = json!({
            "type": "object",
            "properties": {"text": {"type": "string"}, "more": {"type": "boolean"}},
        });
        check(
            &ToolSpec::new("read-file", "Reads.\n\nMuch.")
                .with_input(input)
                .with_output(output),
            "read_file(path: str, mode: Literal[\"a\", 1, None] = \"a\", lines: list[int | None] = \
                ...) -> \
             {'text': str, 'more': bool}  # Reads.",
        );
    }
}
