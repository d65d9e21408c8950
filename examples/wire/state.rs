//! State that a provider handed out, as each provider's messages carry it.

use levity::core::Opaque;
use serde_json::{Value, json};

/// The state beside a part of this kind (`text`, `thinking`, `tool_call`), for a part of this protocol.
pub(crate) fn opaque(wire: &str, kind: &str, part: &Value) -> Option<Opaque> {
    let state = part.get("opaque").filter(|state| !state.is_null())?;
    match (wire, kind) {
        ("anthropic", "thinking") => Some(Opaque::new(wire, json!({ "signature": state }))),
        _ => None,
    }
}
