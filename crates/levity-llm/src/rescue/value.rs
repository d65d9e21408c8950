//! Calls in JSON, in the shapes that models write.

use std::sync::Arc;

use levity_core::ToolSpec;
use serde_json::{Map, Value};

use super::{Call, named};
use crate::names;

/// Keys of a tool's name.
pub(super) const NAMES: [&str; 8] = [
    "name",
    "function",
    "tool",
    "tool_name",
    "function_name",
    "action",
    "call_tool",
    "function_call",
];
/// Keys of the arguments.
pub(super) const ARGUMENTS: [&str; 11] = [
    "arguments",
    "parameters",
    "args",
    "input",
    "params",
    "action_input",
    "tool_input",
    "tool_args",
    "tool_arguments",
    "kwargs",
    "properties",
];
/// Keys of an object or a list that holds calls.
pub(super) const WRAPPERS: [&str; 8] = [
    "tool_calls",
    "tool_call",
    "tool",
    "function",
    "function_call",
    "function_calls",
    "call_tool",
    "calls",
];
/// Keys that calls have beside those.
pub(super) const BESIDE: [&str; 12] = [
    "type",
    "id",
    "index",
    "call_id",
    "tool_call_id",
    "thought",
    "thoughts",
    "thinking",
    "reasoning",
    "reason",
    "content",
    "role",
];

/// The deepest nesting of calls in wrappers.
const DEEPEST: usize = 6;

/// The calls that a value is. `None` if any part of it is something else.
pub(super) fn calls(value: &Value, tools: &[Arc<ToolSpec>]) -> Option<Vec<Call>> {
    within(value, tools, DEEPEST)
}

fn within(value: &Value, tools: &[Arc<ToolSpec>], depth: usize) -> Option<Vec<Call>> {
    let depth = depth.checked_sub(1)?;
    match value {
        Value::Array(items) if !items.is_empty() => {
            let each: Option<Vec<_>> = items
                .iter()
                .map(|item| within(item, tools, depth))
                .collect();
            Some(each?.concat())
        }
        Value::Object(map) => match plain(map, tools) {
            Some(call) => Some(vec![call]),
            None => {
                let key = WRAPPERS.into_iter().find(|key| map.contains_key(*key))?;
                let known = |other: &String| other == key || is_beside(other, &map[other]);
                map.keys()
                    .all(known)
                    .then(|| within(&map[key], tools, depth))?
            }
        },
        _ => None,
    }
}

/// Returns whether a field may stand beside a call without making it something else.
fn is_beside(key: &str, value: &Value) -> bool {
    BESIDE.contains(&key)
        && match key {
            "type" => {
                value == "function"
                    || value == "tool_call"
                    || value == "function_call"
                    || value == "tool_use"
            }
            "role" => value == "assistant",
            "content" => value.is_null() || value == "",
            _ => true,
        }
}

/// An object that is a call: a name, arguments, and nothing that calls do not have.
fn plain(map: &Map<String, Value>, tools: &[Arc<ToolSpec>]) -> Option<Call> {
    let (key, name) = NAMES
        .into_iter()
        .find_map(|key| Some((key, map.get(key)?.as_str()?)))?;
    let tool = offered(name, tools)?;
    let given = ARGUMENTS.into_iter().find(|key| map.contains_key(*key));
    let known =
        |other: &String| other == key || given == Some(other) || is_beside(other, &map[other]);
    if !map.keys().all(known) {
        return None;
    }
    match given {
        Some(given) => call(tool, map[given].clone()),
        None => call(tool, Value::Object(Map::new())),
    }
}

/// The offered tool of this name, also as models spell it: `functions.name`, `name:0`.
pub(super) fn offered<'t>(name: &str, tools: &'t [Arc<ToolSpec>]) -> Option<&'t ToolSpec> {
    let name = name.trim();
    let bare = name.strip_prefix("functions.").unwrap_or(name);
    let unnumbered = match bare.rsplit_once(':') {
        Some((bare, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => bare,
        _ => bare,
    };
    // Some write `math_gcd` for `math.gcd`, as most providers would have it.
    let cleaned = || {
        tools
            .iter()
            .map(|tool| &**tool)
            .find(|tool| names::tool(&tool.name, "") == name)
    };
    named(tools, name)
        .or_else(|| named(tools, bare))
        .or_else(|| named(tools, unnumbered))
        .or_else(cleaned)
}

/// A call with these arguments, if they can be meant for the tool.
pub(super) fn call(tool: &ToolSpec, args: Value) -> Option<Call> {
    let args = match args {
        Value::Null => Value::Object(Map::new()),
        // Some models write the arguments as JSON in a string.
        Value::String(text) => crate::json::parse(&text).ok()?,
        other => other,
    };
    let map = args.as_object()?;
    fits(tool, map).then(|| Call {
        name: tool.name.clone(),
        args: args.to_string(),
    })
}

/// Returns whether arguments may be meant for a tool. Wrong values are told to the model later;
/// here only an object that has nothing to do with the tool is turned down.
fn fits(tool: &ToolSpec, args: &Map<String, Value>) -> bool {
    let properties = tool.input.get("properties").and_then(Value::as_object);
    let required = tool
        .input
        .get("required")
        .and_then(Value::as_array)
        .map_or(0, Vec::len);
    let Some(properties) = properties.filter(|properties| !properties.is_empty()) else {
        return true;
    };
    let known = || args.keys().any(|key| properties.contains_key(key));
    match args.is_empty() {
        true => required == 0,
        false => known() && !args.values().all(is_placeholder),
    }
}

/// Returns whether a value is a placeholder: a part of a schema, the name of a type, dots.
fn is_placeholder(value: &Value) -> bool {
    const TYPES: [&str; 9] = [
        "string", "number", "integer", "boolean", "array", "object", "float", "int", "bool",
    ];
    match value {
        Value::Object(map) => {
            map.contains_key("type") && (map.len() == 1 || map.contains_key("description"))
        }
        Value::String(text) => {
            let first = text.split([' ', '(']).next().unwrap_or_default();
            let is_marked = text.len() > 2 && text.starts_with('<') && text.ends_with('>');
            TYPES.contains(&first) || is_marked || matches!(text.as_str(), "..." | "…")
        }
        _ => false,
    }
}

/// A text as the value that the tool's schema wants: a string stays as it is, anything else is read
/// as JSON.
pub(super) fn typed(tool: &ToolSpec, key: &str, text: &str) -> Value {
    let wanted = tool
        .input
        .pointer("/properties")
        .and_then(|all| all.get(key))
        .and_then(|one| one.get("type"));
    let text = text.strip_prefix('\n').unwrap_or(text);
    let text = text.strip_suffix('\n').unwrap_or(text);
    match wanted.and_then(Value::as_str) {
        Some("string") => Value::String(text.to_owned()),
        _ => serde_json::from_str(text.trim()).unwrap_or_else(|_| Value::String(text.to_owned())),
    }
}
