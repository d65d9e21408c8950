//! Repair of tool definitions that rmcp's types cannot represent.
//!
//! rmcp parses a list of tools as a whole: one invalid field of one tool would lose all tools. So
//! levity parses each entry alone, removes optional fields of a wrong type, and moves `execution`,
//! which rmcp's type lacks, into `_meta`. A tool without a name, or with an input schema that
//! accepts nothing, is left out with a reason.

use levity_rpc::mcp::{Icon, Tool, ToolAnnotations};
use serde_json::{Map, Value, json};

use super::spec::EXECUTION;
use super::text::short;

/// Converts an entry of a list of tools and repairs violations of the protocol. Without an input
/// schema, the tool accepts any arguments. Other invalid fields are removed as long as the tool has
/// a name.
///
/// # Errors
/// Returns a clause that names the entry, if it cannot become a tool.
pub(crate) fn tool(entry: Value) -> Result<Tool, String> {
    let Value::Object(mut entry) = entry else {
        return Err("an entry of the list of tools is not an object".to_owned());
    };
    let Some(name) = entry.get("name").and_then(Value::as_str).map(str::to_owned) else {
        return Err("an entry of the list of tools has no name".to_owned());
    };
    let named = |text: &str| {
        format!(
            "the tool `{}` is omitted: its input schema {text}",
            short(&name)
        )
    };
    match entry.get("inputSchema") {
        Some(Value::Object(_)) => {}
        None | Some(Value::Null | Value::Bool(true)) => {
            entry.insert("inputSchema".to_owned(), json!({"type": "object"}));
        }
        Some(Value::Bool(false)) => return Err(named("accepts nothing")),
        Some(_) => return Err(named("is not a schema")),
    }
    keep_execution(&mut entry);
    for (field, is_valid) in FIELDS {
        if entry.get(*field).is_some_and(|value| !is_valid(value)) {
            entry.shift_remove(*field);
        }
    }
    serde_json::from_value(Value::Object(entry)).map_err(|_| {
        format!(
            "the tool `{}` is omitted: its definition violates the protocol",
            short(&name)
        )
    })
}

/// A check of one field; `false` removes the field.
type Check = fn(&Value) -> bool;

/// The fields of a tool, and their checks.
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

/// Moves a field that rmcp's type lacks into `_meta`.
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
