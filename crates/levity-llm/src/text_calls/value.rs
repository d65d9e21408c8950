//! Calls in JSON, in the forms that models write.
//!
//! Models imitate the formats of several providers, so names and arguments appear under many keys,
//! and calls may be wrapped: `{"tool_calls": [{"function": {"name": .., "arguments": ".."}}]}`. An
//! object counts as a call only if all its keys are known. One unknown key shows that the object is
//! data.

use std::sync::Arc;

use levity_core::ToolSpec;
use serde_json::{Map, Value};

use super::{Call, tool_named};
use crate::names;

/// Keys for the name of a tool.
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
/// Keys for the arguments of a call.
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
/// Keys of an object or a list that contains calls.
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
/// Further keys that calls may have.
pub(super) const EXTRA_KEYS: [&str; 12] = [
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

/// The maximum nesting of calls in wrappers.
const MAX_DEPTH: usize = 6;

/// Returns the calls that a value consists of. Returns `None` if any part of it is something else.
pub(super) fn calls(value: &Value, tools: &[Arc<ToolSpec>]) -> Option<Vec<Call>> {
    nested_calls(value, tools, MAX_DEPTH)
}

/// Unwraps lists and wrappers, at most [`MAX_DEPTH`] deep.
fn nested_calls(value: &Value, tools: &[Arc<ToolSpec>], depth: usize) -> Option<Vec<Call>> {
    let depth = depth.checked_sub(1)?;
    match value {
        Value::Array(items) if !items.is_empty() => {
            let each: Option<Vec<_>> = items
                .iter()
                .map(|item| nested_calls(item, tools, depth))
                .collect();
            Some(each?.concat())
        }
        Value::Object(map) => match single_call(map, tools) {
            Some(call) => Some(vec![call]),
            None => {
                let key = WRAPPERS.into_iter().find(|key| map.contains_key(*key))?;
                let known = |other: &String| other == key || is_extra_field(other, &map[other]);
                map.keys()
                    .all(known)
                    .then(|| nested_calls(&map[key], tools, depth))?
            }
        },
        _ => None,
    }
}

/// Returns `true` if a field may accompany a call without changing its meaning.
///
/// The value matters as well: a `content` with text means that the object is a message, not a call.
fn is_extra_field(key: &str, value: &Value) -> bool {
    EXTRA_KEYS.contains(&key)
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

/// Parses an object that is a call: a name, arguments, and no unrelated keys.
///
/// A name without arguments is a call with an empty object.
fn single_call(map: &Map<String, Value>, tools: &[Arc<ToolSpec>]) -> Option<Call> {
    let (key, name) = NAMES
        .into_iter()
        .find_map(|key| Some((key, map.get(key)?.as_str()?)))?;
    let tool = offered_tool(name, tools)?;
    let given = ARGUMENTS.into_iter().find(|key| map.contains_key(*key));
    let known =
        |other: &String| other == key || given == Some(other) || is_extra_field(other, &map[other]);
    if !map.keys().all(known) {
        return None;
    }
    match given {
        Some(given) => call(tool, map[given].clone()),
        None => call(tool, Value::Object(Map::new())),
    }
}

/// Returns the offered tool of this name, including spellings such as `functions.name` or `name:0`.
///
/// The exact name is tried first, so that a tool named `functions.x` is found as such.
pub(super) fn offered_tool<'t>(name: &str, tools: &'t [Arc<ToolSpec>]) -> Option<&'t ToolSpec> {
    let name = name.trim();
    let bare = name.strip_prefix("functions.").unwrap_or(name);
    let unnumbered = match bare.rsplit_once(':') {
        Some((bare, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => bare,
        _ => bare,
    };
    // Some models write `math_gcd` for `math.gcd`, because most providers require that form.
    let cleaned = || {
        tools
            .iter()
            .map(|tool| &**tool)
            .find(|tool| names::tool(&tool.name, "") == name)
    };
    tool_named(tools, name)
        .or_else(|| tool_named(tools, bare))
        .or_else(|| tool_named(tools, unnumbered))
        .or_else(cleaned)
}

/// Returns a call with these arguments, if they may be meant for the tool.
///
/// The result is `None` if the arguments are no object, or are unrelated to the tool.
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

/// Returns `true` if arguments may be meant for a tool. The model is informed of wrong values
/// later; this check rejects only an object that is unrelated to the tool.
///
/// An object is unrelated if it has none of the tool's parameters, or only placeholders as values,
/// as in a description of the tool. A call without arguments must not lack required ones.
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

/// Returns `true` if a value is a placeholder: a part of a schema, the name of a type, or dots.
///
/// Examples: `"string"`, `"<city>"`, `"..."` and `{"type": "string"}`.
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

/// Converts a text to the type that the tool's schema requires: a string stays unchanged, anything
/// else is parsed as JSON.
///
/// One line break at each end belongs to the layout of the tag. A number for a string parameter
/// stays a string, so that a postal code keeps its zeros.
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
