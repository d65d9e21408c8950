//! Fields of a request that ask for what costs more than tokens: tools that the provider runs
//! itself, and tiers.

use serde_json::{Map, Value};

/// A tool that the provider runs itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hosted {
    pub(super) kind: Kind,
    /// How often it may be used, where the request says so.
    pub(super) most_uses: Option<u64>,
    /// Whether only the tokens cost that it reads and writes.
    pub(super) is_free: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Search,
    Session,
    Other,
}

/// Tools that we run, although the provider describes them: no fee, and no tokens that we do not
/// send.
const OURS: [&str; 12] = [
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
const FREE: [&str; 4] = ["web_fetch", "url_context", "urlcontext", "codeexecution"];

/// Fields beside `tools` that make the provider search.
const FIELDS: [&str; 5] = [
    "web_search_options",
    "plugins",
    "search_parameters",
    "enable_search",
    "web_search",
];

/// The tools in these fields that the provider runs itself.
pub(super) fn tools(fields: &Map<String, Value>) -> Vec<Hosted> {
    let limit = fields.get("max_tool_calls").and_then(Value::as_u64);
    let list = fields
        .get("tools")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    let mut found: Vec<Hosted> = list.iter().flat_map(|tool| named(tool, limit)).collect();
    let asks = |name: &&str| {
        fields
            .get(*name)
            .is_some_and(|value| !matches!(value, Value::Null | Value::Bool(false)))
    };
    let searches = FIELDS.iter().filter(|name| asks(name));
    found.extend(searches.map(|_| Hosted {
        kind: Kind::Search,
        most_uses: limit,
        is_free: false,
    }));
    found
}

/// The tools of one entry: by its `type`, or by the names of its fields where it has none.
fn named(tool: &Value, limit: Option<u64>) -> Vec<Hosted> {
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
        .filter_map(|name| hosted(name, most_uses))
        .collect()
}

fn hosted(name: &str, most_uses: Option<u64>) -> Option<Hosted> {
    let name = name.to_ascii_lowercase();
    if OURS.iter().any(|ours| name.starts_with(ours)) {
        return None;
    }
    let is_free = FREE.iter().any(|free| name.starts_with(free));
    let kind = match &*name {
        name if name.starts_with("web_search") || name.starts_with("x_search") => Kind::Search,
        name if name.starts_with("google") => Kind::Search,
        name if name.starts_with("code_") || name.starts_with("shell") => Kind::Session,
        _ => Kind::Other,
    };
    Some(Hosted {
        kind,
        most_uses,
        is_free,
    })
}

/// Whether these fields ask to be served at other rates than the usual ones. Tiers that cost less
/// do not count.
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
