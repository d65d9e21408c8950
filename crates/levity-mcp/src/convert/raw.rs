//! Tools that rmcp's types have no place for.

use levity_rpc::mcp::{Icon, Tool, ToolAnnotations};
use serde_json::{Map, Value, json};

use super::spec::EXECUTION;
use super::text::short;

/// An entry of a list of tools, mended where it is not what the protocol has: without a schema of
/// arguments it takes any, and what else is wrong with it is left out as long as it has a name.
///
/// # Errors
/// A clause that names the entry, when no tool can be made of it.
pub(crate) fn tool(entry: Value) -> Result<Tool, String> {
    let Value::Object(mut entry) = entry else {
        return Err("an entry of the list of tools is no object".to_owned());
    };
    let Some(name) = entry.get("name").and_then(Value::as_str).map(str::to_owned) else {
        return Err("an entry of the list of tools has no name".to_owned());
    };
    let named = |text: &str| {
        format!(
            "the tool `{}` is left out: its input schema {text}",
            short(&name)
        )
    };
    match entry.get("inputSchema") {
        Some(Value::Object(_)) => {}
        None | Some(Value::Null | Value::Bool(true)) => {
            entry.insert("inputSchema".to_owned(), json!({"type": "object"}));
        }
        Some(Value::Bool(false)) => return Err(named("accepts nothing")),
        Some(_) => return Err(named("is no schema")),
    }
    keep_execution(&mut entry);
    for (field, is_right) in FIELDS {
        if entry.get(*field).is_some_and(|value| !is_right(value)) {
            entry.shift_remove(*field);
        }
    }
    serde_json::from_value(Value::Object(entry)).map_err(|_| {
        format!(
            "the tool `{}` is left out: it is no tool as the protocol has it",
            short(&name)
        )
    })
}

type Check = fn(&Value) -> bool;

/// What a tool may have, and when it can be read.
const FIELDS: &[(&str, Check)] = &[
    ("title", Value::is_string),
    ("description", Value::is_string),
    ("outputSchema", Value::is_object),
    ("annotations", |value| {
        serde_json::from_value::<ToolAnnotations>(value.clone()).is_ok()
    }),
    ("icons", |value| {
        serde_json::from_value::<Vec<Icon>>(value.clone()).is_ok()
    }),
    ("_meta", Value::is_object),
];

/// Moves what rmcp's type has no field for to where it has one.
fn keep_execution(entry: &mut Map<String, Value>) {
    let Some(execution) = entry.shift_remove("execution") else {
        return;
    };
    let meta = entry.entry("_meta").or_insert_with(|| json!({}));
    if !meta.is_object() {
        *meta = json!({});
    }
    if let Some(meta) = meta.as_object_mut() {
        meta.insert(EXECUTION.to_owned(), execution);
    }
}

#[cfg(test)]
mod tests;
