//! Request fields that cost more than tokens: tools that the provider runs, and service tiers.

use serde_json::{Map, Value};

/// A tool that the provider runs itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HostedTool {
    pub(super) kind: Kind,
    /// The maximum number of uses, if the request sets it.
    pub(super) most_uses: Option<u64>,
    /// `true` if the tool costs only the tokens that it reads and writes.
    pub(super) is_free: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Search,
    Session,
    Other,
}

/// Tools that the caller runs although the provider describes them: they add no fee and no tokens
/// beyond those sent.
const CALLER_TOOLS: [&str; 12] = [
    "function",
    "custom",
    "bash",
    "text_editor",
    "computer",
    "memory",
    "local_shell",
    "apply_patch",
    "tool_search",
    "functiondeclarations",
    "function_declarations",
    "computeruse",
];

/// Tools that cost nothing but tokens.
const FREE_TOOLS: [&str; 4] = ["web_fetch", "url_context", "urlcontext", "codeexecution"];

/// Fields beside `tools` that make the provider search.
const SEARCH_FIELDS: [&str; 5] = [
    "web_search_options",
    "plugins",
    "search_parameters",
    "enable_search",
    "web_search",
];

/// Returns the tools in these fields that the provider runs itself.
pub(super) fn tools(fields: &Map<String, Value>) -> Vec<HostedTool> {
    let limit = fields.get("max_tool_calls").and_then(Value::as_u64);
    let list = fields
        .get("tools")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    let mut found: Vec<HostedTool> = list
        .iter()
        .flat_map(|tool| tools_of_entry(tool, limit))
        .collect();
    let asks = |name: &&str| {
        fields
            .get(*name)
            .is_some_and(|value| !matches!(value, Value::Null | Value::Bool(false)))
    };
    let searches = SEARCH_FIELDS.iter().filter(|name| asks(name));
    found.extend(searches.map(|_| HostedTool {
        kind: Kind::Search,
        most_uses: limit,
        is_free: false,
    }));
    found
}

/// Returns the tools of one entry, by its `type` or, without one, by the names of its fields.
fn tools_of_entry(tool: &Value, limit: Option<u64>) -> Vec<HostedTool> {
    let Some(map) = tool.as_object() else {
        return Vec::new();
    };
    let most_uses = map.get("max_uses").and_then(Value::as_u64).or(limit);
    let names: Vec<&str> = match map.get("type").and_then(Value::as_str) {
        Some(name) => vec![name],
        None => map.keys().map(String::as_str).collect(),
    };
    names
        .into_iter()
        .filter_map(|name| hosted_tool(name, most_uses))
        .collect()
}

fn hosted_tool(name: &str, most_uses: Option<u64>) -> Option<HostedTool> {
    let name = name.to_ascii_lowercase();
    if CALLER_TOOLS.iter().any(|ours| name.starts_with(ours)) {
        return None;
    }
    let is_free = FREE_TOOLS.iter().any(|free| name.starts_with(free));
    let kind = match &*name {
        name if name.starts_with("web_search") || name.starts_with("x_search") => Kind::Search,
        name if name.starts_with("google") => Kind::Search,
        name if name.starts_with("code_") || name.starts_with("shell") => Kind::Session,
        _ => Kind::Other,
    };
    Some(HostedTool {
        kind,
        most_uses,
        is_free,
    })
}

/// Returns `true` if these fields request a service tier above the usual rates. Cheaper tiers do
/// not count.
pub(super) fn is_prioritised(fields: &Map<String, Value>) -> bool {
    let other = |name: &str, usual: &[&str]| {
        let value = fields.get(name).filter(|value| !value.is_null());
        value.is_some_and(|value| {
            !value
                .as_str()
                .is_some_and(|word| usual.contains(&word.to_ascii_lowercase().as_str()))
        })
    };
    let usual = [
        "auto",
        "default",
        "standard",
        "standard_only",
        "on_demand",
        "flex",
        "batch",
    ];
    other("service_tier", &usual)
        || other("serviceTier", &usual)
        || other("speed", &["standard", "normal"])
        || other("inference_geo", &["global", "not_available"])
}
