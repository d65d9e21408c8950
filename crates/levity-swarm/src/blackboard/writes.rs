//! The writes that the workers of a round request.
//!
//! A worker that writes a key twice in a round counts once, with its last content. A refused write
//! is named in the prompts of the next round, so that its author can shorten it.

use std::sync::Arc;

use levity_core::text::clipped;
use levity_core::{MachineOutput, Signal};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::WRITE;
use super::machine::BlackboardMachine;
use crate::board::clean_key;
use crate::bus::{MessageKind, NewMessage, Recipient};
use crate::notice::SwarmNotice;
use crate::round_work::AttemptResult;
use crate::shared_state::SharedState;

/// A write to the board that a worker requested.
#[derive(Serialize, Deserialize)]
pub(super) struct Write {
    by: Arc<str>,
    key: String,
    content: String,
}

/// The maximum size of an entry's content in a bus message, in bytes.
const MAX_TEXT_BYTES: usize = 4_000;
/// The maximum number of refused writes that are named.
const MAX_REFUSED: usize = 50;

/// Adds the writes of one attempt of a worker.
pub(super) fn take(writes: &mut Vec<Write>, attempt: &AttemptResult, shared: &SharedState) {
    let requested = attempt
        .signals
        .iter()
        .filter(|signal| &*signal.name == WRITE);
    let mut new: Vec<Write> = requested.map(|signal| read(&attempt.by, signal)).collect();
    let is_swarm = shared
        .rules
        .cards
        .get(&attempt.by)
        .is_some_and(|card| card.is_swarm);
    if attempt.is_done() && is_swarm && !attempt.text.trim().is_empty() {
        new.push(Write {
            by: attempt.by.clone(),
            key: clean_key(&attempt.by),
            content: attempt.text.to_string(),
        });
    }
    for write in new {
        // The last write of a key counts.
        writes.retain(|earlier| (&earlier.by, &earlier.key) != (&write.by, &write.key));
        writes.push(write);
    }
}

fn read(by: &Arc<str>, signal: &Signal) -> Write {
    let words = |key| match signal.args.get(key) {
        Some(Value::String(text)) => text.clone(),
        None | Some(Value::Null) => String::new(),
        Some(other) => other.to_string(),
    };
    Write {
        by: by.clone(),
        key: clean_key(&words("key")),
        content: words("content"),
    }
}

impl BlackboardMachine {
    /// Applies the writes to the board in the order of the workers. Returns `true` if there were
    /// any.
    pub(super) fn apply_writes(
        &mut self,
        shared: &mut SharedState,
        out: &mut MachineOutput,
    ) -> bool {
        self.refused.clear();
        let mut any = false;
        for write in std::mem::take(&mut self.writes).into_iter().flatten() {
            any |= self.apply_write(write, shared, out);
        }
        any
    }

    fn apply_write(
        &mut self,
        write: Write,
        shared: &mut SharedState,
        out: &mut MachineOutput,
    ) -> bool {
        let Write { by, key, content } = write;
        let entry = match self.board.write(&key, &content, &by, self.round) {
            Ok(Some(entry)) => entry.clone(),
            Ok(None) => return false,
            Err(refusal) => {
                let why = refusal.to_string();
                if self.refused.len() < MAX_REFUSED {
                    self.refused.push(format!("`{key}` by {by}: {why}"));
                }
                shared.notify(out, || SwarmNotice::Refused {
                    key: key.into(),
                    by,
                    reason: why,
                });
                return true;
            }
        };
        let said = format!("{key}: {}", clipped(&entry.content, MAX_TEXT_BYTES));
        shared.post(
            NewMessage::new(by.clone(), Recipient::All, MessageKind::Entry, said),
            out,
        );
        shared.notify(out, || SwarmNotice::Written {
            key: entry.key,
            by,
            version: entry.version,
        });
        true
    }
}
