//! The writes that the workers of a round request.

use std::sync::Arc;

use levity_core::text::clipped;
use levity_core::{MachineOutput, Signal};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::WRITE;
use super::machine::Boarding;
use crate::board::clean_key;
use crate::bus::{MessageKind, NewMessage, Recipient};
use crate::crew::Heard;
use crate::desk::Desk;
use crate::notice::SwarmNotice;

/// A requested write.
#[derive(Serialize, Deserialize)]
pub(super) struct Write {
    by: Arc<str>,
    key: String,
    content: String,
}

/// The maximum size of an entry's content in a bus message, in bytes.
const MOST_SAID: usize = 4_000;
/// The maximum number of refused writes that are named.
const MOST_REFUSED: usize = 50;

/// Adds the writes of one attempt of a worker.
pub(super) fn take(writes: &mut Vec<Write>, heard: &Heard, desk: &Desk) {
    let requested = heard.signals.iter().filter(|signal| &*signal.name == WRITE);
    let mut new: Vec<Write> = requested.map(|signal| read(&heard.by, signal)).collect();
    let is_swarm = desk
        .rules
        .cards
        .get(&heard.by)
        .is_some_and(|card| card.is_swarm);
    if heard.is_done() && is_swarm && !heard.text.trim().is_empty() {
        new.push(Write {
            by: heard.by.clone(),
            key: clean_key(&heard.by),
            content: heard.text.to_string(),
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

impl Boarding {
    /// Applies the writes to the board in the order of the workers. Returns `true` if there were
    /// any.
    pub(super) fn put_up(&mut self, desk: &mut Desk, wants: &mut MachineOutput) -> bool {
        self.refused.clear();
        let mut any = false;
        for write in std::mem::take(&mut self.writes).into_iter().flatten() {
            any |= self.put(write, desk, wants);
        }
        any
    }

    fn put(&mut self, write: Write, desk: &mut Desk, wants: &mut MachineOutput) -> bool {
        let Write { by, key, content } = write;
        let entry = match self.board.write(&key, &content, &by, self.round) {
            Ok(Some(entry)) => entry.clone(),
            Ok(None) => return false,
            Err(refusal) => {
                let why = refusal.to_string();
                if self.refused.len() < MOST_REFUSED {
                    self.refused.push(format!("`{key}` by {by}: {why}"));
                }
                desk.tell(wants, || SwarmNotice::Refused {
                    key: key.into(),
                    by,
                    why,
                });
                return true;
            }
        };
        let said = format!("{key}: {}", clipped(&entry.content, MOST_SAID));
        desk.post(
            NewMessage::new(by.clone(), Recipient::Everybody, MessageKind::Entry, said),
            wants,
        );
        desk.tell(wants, || SwarmNotice::Written {
            key: entry.key,
            by,
            version: entry.version,
        });
        true
    }
}
