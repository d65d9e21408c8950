//! The tool that passes the conversation on.
//!
//! The schema lists the names of the recipients if there are at most 50. The machine checks the
//! name in any case, because a model may invent one.

use std::fmt::Write as _;
use std::sync::Arc;

use levity_core::text::{clipped, one_line};
use levity_core::{Signal, ToolSpec};
use serde_json::{Value, json};

use super::Handoff;
use crate::rules::Rules;

pub(super) const TRANSFER: &str = "transfer_to";

/// The maximum number of colleagues in the tool's description.
const NAMED: usize = 50;
/// The maximum size of a colleague's description, in bytes.
const MAX_DESCRIPTION_BYTES: usize = 300;
/// The maximum size of a note, in bytes.
const MAX_NOTE_BYTES: usize = 16 << 10;

/// Returns the tool of a worker, or `None` if it has no allowed recipients.
pub(super) fn spec(handoff: &Handoff, worker: &str, rules: &Rules) -> Option<ToolSpec> {
    let allowed: Vec<&Arc<str>> = rules
        .order
        .iter()
        .filter(|name| handoff.allows(worker, name))
        .collect();
    if allowed.is_empty() {
        return None;
    }
    let mut to = json!({"type": "string", "description": "The name of the colleague."});
    // A longer list would cost more than it helps: an unknown name is refused later.
    if allowed.len() <= NAMED {
        to["enum"] = allowed.iter().map(|name| Value::from(&***name)).collect();
    }
    let note =
        "What the colleague must know: what the user wants, what is done, what is left to do.";
    Some(
        ToolSpec::new(TRANSFER, description(&allowed, rules)).with_input(json!({
            "type": "object",
            "properties": {"to": to, "note": {"type": "string", "description": note}},
            "required": ["to"],
            "additionalProperties": false,
        })),
    )
}

fn description(allowed: &[&Arc<str>], rules: &Rules) -> String {
    let mut text =
        "Passes this conversation on to a colleague, who goes on with it in your place. \
        Call it alone, and only when \
                    the colleague can do what you cannot. Who there is:"
            .to_owned();
    for name in allowed.iter().take(NAMED) {
        let about = rules
            .cards
            .get(*name)
            .map(|card| one_line(&card.description, MAX_DESCRIPTION_BYTES));
        let _ = write!(text, "\n- `{name}`: {}", about.unwrap_or_default());
    }
    if allowed.len() > NAMED {
        let _ = write!(text, "\n- and {} more", allowed.len() - NAMED);
    }
    text
}

/// A request to pass the conversation on, with a note.
#[derive(Debug)]
pub(super) struct TransferRequest {
    pub(super) to: Arc<str>,
    pub(super) note: Arc<str>,
}

impl TransferRequest {
    /// Returns the last request among the signals.
    pub(super) fn of(signals: &[Signal]) -> Option<Self> {
        let signal = signals
            .iter()
            .rev()
            .find(|signal| &*signal.name == TRANSFER)?;
        let text = |key| signal.args.get(key).and_then(Value::as_str).map(str::trim);
        let note = clipped(text("note").unwrap_or_default(), MAX_NOTE_BYTES);
        Some(Self {
            to: text("to")?.into(),
            note: note.into(),
        })
    }
}
