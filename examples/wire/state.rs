//! State that a provider handed out, as each provider's messages carry it.

use levity::core::Opaque;
use serde_json::{Value, json};

/// The state beside a part of this kind (`text`, `thinking`, `tool_call`), for a part of this protocol.
pub(crate) fn opaque(wire: &str, kind: &str, part: &Value) -> Option<Opaque> {
    let state = part.get("opaque").filter(|state| !state.is_null());
    match (wire, kind, state) {
        ("gemini", "thinking", None) => Some(Opaque::new("gemini", json!({"thought": true}))),
        ("gemini", _, Some(state)) => Some(Opaque::new("gemini", json!({"thoughtSignature": state}))),
        ("openai_responses", "thinking", Some(state)) => {
            Some(Opaque::new(wire, reasoning(state, &part["thinking"])))
        }
        _ => None,
    }
}

/// A reasoning item: known by its id, or encrypted.
fn reasoning(state: &Value, summary: &Value) -> Value {
    let summary = summary.as_str().filter(|text| !text.is_empty());
    let summary: Vec<Value> =
        summary.iter().map(|text| json!({"type": "summary_text", "text": text})).collect();
    let is_id = state.as_str().is_some_and(|state| state.len() < 100);
    let field = if is_id { "id" } else { "encrypted_content" };
    json!({"type": "reasoning", "summary": summary, field: state})
}
