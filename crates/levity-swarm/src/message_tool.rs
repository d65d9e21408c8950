//! Messages that workers leave for each other.
//!
//! The tool is a signal: a call is recorded and executes nothing. The machine posts the message
//! when the attempt ends, so a message never reaches a worker that already runs.

use std::sync::Arc;

use levity_core::{Hints, Signal, ToolSpec};
use serde_json::{Value, json};

use crate::bus::{MessageKind, NewMessage, Recipient};
use crate::names::{EVERYBODY, ROUTER};

/// The name of the tool that leaves a message.
pub(crate) const SEND: &str = "send_message";

/// The maximum number of colleague names in the tool's description.
const NAMED: usize = 50;

/// Returns the tool for a worker, with the names of the others.
pub(crate) fn spec(worker: &str, all: &[Arc<str>]) -> ToolSpec {
    let others: Vec<&str> = all
        .iter()
        .map(|name| &**name)
        .filter(|name| *name != worker)
        .take(NAMED)
        .collect();
    let to = format!(
        "Who it is for: one of `{}`, `{ROUTER}`, or `{EVERYBODY}` for everybody.",
        others.join("`, `")
    );
    ToolSpec::new(
        SEND,
        "Leaves a message for a colleague, who finds it with a later task. There is no answer: go \
            on with your work.",
    )
    .with_hints(Hints::new().parallel())
    .with_input(json!({
        "type": "object",
        "properties": {
            "to": {"type": "string", "description": to},
            "content": {"type": "string", "description": "What the colleague must know."},
        },
        "required": ["to", "content"],
        "additionalProperties": false,
    }))
}

/// Returns the messages among a worker's signals. A message to an unknown recipient goes to the
/// router.
pub(crate) fn drafts(worker: &Arc<str>, signals: &[Signal], all: &[Arc<str>]) -> Vec<NewMessage> {
    let sent = signals.iter().filter(|signal| &*signal.name == SEND);
    sent.filter_map(|signal| {
        let text = |key| signal.args.get(key).and_then(Value::as_str);
        let (to, content) = (text("to")?.trim(), text("content")?);
        let to = match all.binary_search_by(|name| (**name).cmp(to)) {
            Ok(at) => Recipient::One(all.get(at)?.clone()),
            Err(_) if to == EVERYBODY => Recipient::All,
            Err(_) => Recipient::One(ROUTER.into()),
        };
        Some(NewMessage::new(
            worker.clone(),
            to,
            MessageKind::Note,
            content,
        ))
    })
    .collect()
}
