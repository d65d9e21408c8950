//! Converts opaque provider state into the form that each provider's messages use.

use levity::core::{Options, Part, ProviderState, ThinkingMode};
use serde_json::{Value, json};

/// Returns the state of a part of this kind (`text`, `thinking`, `tool_call`) for this protocol.
pub(crate) fn opaque(wire: &str, kind: &str, part: &Value) -> Option<ProviderState> {
    let state = part.get("opaque").filter(|state| !state.is_null());
    match (wire, kind, state) {
        ("gemini", "thinking", None) => {
            Some(ProviderState::new("gemini", json!({"thought": true})))
        }
        ("gemini", _, Some(state)) => Some(ProviderState::new(
            "gemini",
            json!({"thoughtSignature": state}),
        )),
        ("openai_responses", "thinking", Some(state)) => Some(ProviderState::new(
            wire,
            reasoning(state, &part["thinking"]),
        )),
        ("anthropic", "thinking", Some(state)) => {
            Some(ProviderState::new(wire, json!({ "signature": state })))
        }
        _ => None,
    }
}

/// Builds a reasoning item, identified by its id or encrypted.
fn reasoning(state: &Value, summary: &Value) -> Value {
    let summary = summary.as_str().filter(|text| !text.is_empty());
    let summary: Vec<Value> = summary
        .iter()
        .map(|text| json!({"type": "summary_text", "text": text}))
        .collect();
    let is_id = state.as_str().is_some_and(|state| state.len() < 100);
    let field = if is_id { "id" } else { "encrypted_content" };
    json!({"type": "reasoning", "summary": summary, field: state})
}

/// Adds provider-specific settings of the recorded request: hosted tools and thinking.
pub(crate) fn settings(wire: &str, recorded: &Value, options: &mut Options) {
    if wire != "anthropic" {
        return;
    }
    let tools = recorded["tools"].as_array().into_iter().flatten();
    let hosted: Vec<_> = tools
        .filter(|tool| tool.get("input_schema").is_none())
        .cloned()
        .collect();
    if !hosted.is_empty() {
        options.extra.insert("tools".to_owned(), hosted.into());
    }
    for name in ["container", "mcp_servers"] {
        if let Some(value) = recorded.get(name) {
            options.extra.insert(name.to_owned(), value.clone());
        }
    }
    options.thinking = match recorded["thinking"]["type"].as_str() {
        Some("enabled") => recorded["thinking"]["budget_tokens"]
            .as_u64()
            .map(ThinkingMode::Budget),
        Some("adaptive") => Some(ThinkingMode::Auto),
        Some("disabled") => Some(ThinkingMode::Off),
        _ => None,
    };
}

/// Returns the provider-specific blocks of a recorded request, in order.
pub(crate) fn blocks(wire: &str, recorded: &Value) -> Vec<ProviderState> {
    let known = [
        "text",
        "image",
        "document",
        "thinking",
        "redacted_thinking",
        "tool_use",
        "tool_result",
    ];
    let contents = recorded["messages"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|_| wire == "anthropic");
    let blocks = contents
        .filter_map(|message| message["content"].as_array())
        .flatten();
    let foreign = blocks.filter(|block| {
        block["type"]
            .as_str()
            .is_some_and(|kind| !known.contains(&kind))
    });
    foreign
        .map(|block| ProviderState::new(wire, block.clone()))
        .collect()
}

/// Returns the reasoning of an OpenAI-compatible server as in the recorded request: with its field
/// name and its details.
pub(crate) fn chat_reasoning(text: &str, recorded: &Value) -> Vec<Part> {
    let messages = recorded["messages"].as_array().into_iter().flatten();
    let field_of = |message: &Value| {
        let mut fields = ["reasoning_content", "reasoning"].into_iter();
        fields.find(|name| message[name].as_str().is_some_and(|text| !text.is_empty()))
    };
    let has_text = |message: &&Value| {
        field_of(message).map_or("", |name| message[name].as_str().unwrap_or("")) == text
    };
    let Some(message) = messages
        .filter(|message| message["role"] == "assistant")
        .find(has_text)
    else {
        return vec![Part::thinking(text)];
    };
    let mut parts = Vec::new();
    if !text.is_empty() {
        let mut thought = Part::thinking(text);
        let field = field_of(message).unwrap_or("reasoning_content");
        thought.set_opaque(ProviderState::new("openai_chat", json!({ "field": field })));
        parts.push(thought);
    }
    if let Some(details) = message.get("reasoning_details") {
        parts.push(Part::Opaque(ProviderState::new(
            "openai_chat",
            json!({ "reasoning_details": details }),
        )));
    }
    parts
}

/// Returns a protocol-specific part of the recorded request by its type.
pub(crate) fn protocol_part(wire: &str, kind: &str, recorded: &Value) -> Option<Part> {
    let messages = recorded["messages"].as_array()?.iter();
    let mut parts = messages
        .filter_map(|message| message["content"].as_array())
        .flatten();
    let part = parts.find(|part| part["type"] == kind)?;
    Some(Part::Opaque(ProviderState::new(wire, part.clone())))
}
