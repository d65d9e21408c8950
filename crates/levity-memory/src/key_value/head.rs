//! The head of a conversation: the one value by which every change becomes visible.
//!
//! It is written with the version that was read, so a change either replaces exactly the state that
//! it was computed from, or fails and is computed again.

use levity_core::{
    ConversationChange, ConversationId, MemoryError, MemoryErrorKind, Summary, Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::file::name;

const FORMAT: u32 = 1;

/// The maximum number of messages or saves: counting from there never overflows.
const MAX_COUNT: u64 = 1 << 53;

/// The key prefix of the heads, one for each conversation.
pub(super) const HEADS: &str = "conversations/";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) levity_memory: u32,
    /// Random, and new after each removal: a chunk of another generation is orphaned.
    pub(super) generation: u64,
    /// Counts the writes, so that no two heads have the same bytes. A hash of the value can serve
    /// as its version.
    pub(super) revision: u64,
    /// The number of the last save that had messages. The next save writes its chunks under the
    /// next number.
    pub(super) save: u64,
    /// The position at which the first chunk begins.
    pub(super) start: u64,
    /// The position of the first message that was not trimmed, which may be inside the first chunk.
    pub(super) first: u64,
    pub(super) end: u64,
    /// `false` while there is no conversation: it is only held, being saved for the first time, or
    /// removed.
    pub(super) exists: bool,
    pub(super) changed: Timestamp,
    pub(super) summary: Option<Summary>,
    pub(super) holder: Option<Holder>,
}

/// The holder of a conversation and the end of its lease.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Holder {
    /// The store instance that holds the conversation.
    pub(super) owner: u64,
    /// The random number that identifies this hold.
    pub(super) token: u64,
    pub(super) until: Timestamp,
}

impl Head {
    pub(super) fn new(generation: u64) -> Self {
        Self {
            levity_memory: FORMAT,
            generation,
            revision: 0,
            save: 0,
            start: 0,
            first: 0,
            end: 0,
            exists: false,
            changed: Timestamp::default(),
            summary: None,
            holder: None,
        }
    }

    /// Returns the head after a change at the end of the conversation.
    pub(super) fn after(&self, change: &ConversationChange) -> Self {
        let mut head = self.clone();
        head.end = change.end();
        head.save += u64::from(!change.messages.is_empty());
        head.summary = change.summary.clone().or(head.summary);
        head.changed = head.changed.max(change.when);
        head.exists = true;
        head
    }

    pub(super) fn upto(&self) -> Option<u64> {
        self.summary.as_ref().map(|summary| summary.upto)
    }

    pub(super) fn is_held_by(&self, token: u64) -> bool {
        self.holder
            .as_ref()
            .is_some_and(|holder| holder.token == token)
    }

    /// Returns `true` if the head can be removed.
    ///
    /// Such a head only marks that a conversation was held or removed.
    pub(super) fn is_idle(&self, now: Timestamp) -> bool {
        !self.exists
            && self
                .holder
                .as_ref()
                .is_none_or(|holder| holder.until <= now)
    }

    /// Serializes the next revision.
    pub(super) fn write(
        &self,
        id: &ConversationId,
        max_bytes: usize,
    ) -> Result<Vec<u8>, MemoryError> {
        let rejected = |reason: &str| {
            MemoryError::new(
                MemoryErrorKind::Refused,
                format!("the summary of conversation `{id}` {reason}"),
            )
        };
        let bytes = serde_json::to_vec(&Self {
            revision: self.revision + 1,
            ..self.clone()
        })
        .map_err(|error| rejected("cannot be serialized as JSON").with_source(error))?;
        if bytes.len() > max_bytes {
            return Err(rejected(&format!(
                "does not fit into a value of {max_bytes} bytes; raise `with_max_value_bytes`"
            )));
        }
        Ok(bytes)
    }

    pub(super) fn read(id: &ConversationId, key: &str, bytes: &[u8]) -> Result<Self, MemoryError> {
        #[derive(Deserialize)]
        struct Format {
            levity_memory: u32,
        }
        let format =
            serde_json::from_slice::<Format>(bytes).map_or(FORMAT, |head| head.levity_memory);
        if format > FORMAT {
            let message = format!(
                "conversation `{id}` has format {format} at key `{key}`, written by a newer \
                    version \
                    of levity; it was not changed; update levity"
            );
            return Err(MemoryError::new(MemoryErrorKind::Version, message));
        }
        let head: Self = serde_json::from_slice(bytes)
            .map_err(|error| damaged(id, key, &format!("byte {} is invalid", error.column())))?;
        let ordered = head.start <= head.first && head.first <= head.end;
        if !ordered
            || head.end.max(head.save).max(head.revision) > MAX_COUNT
            || head.upto().is_some_and(|upto| upto > head.end)
        {
            return Err(damaged(id, key, "its positions contradict each other"));
        }
        Ok(head)
    }
}

pub(super) fn damaged(id: &ConversationId, key: &str, detail: &str) -> MemoryError {
    MemoryError::damaged(id, &format!("key `{key}`: {detail}"))
}

/// Returns the id as part of a key: unique for each id, and without a `/`.
pub(super) fn name(id: &ConversationId) -> Result<String, MemoryError> {
    name::escape(id.as_str()).ok_or_else(|| {
        let message = format!(
            "the conversation id `{id}` is too long for a key; use at most 200 \
            bytes"
        );
        MemoryError::new(MemoryErrorKind::Refused, message)
    })
}

pub(super) fn key(id: &ConversationId) -> Result<String, MemoryError> {
    Ok(format!("{HEADS}{}", name(id)?))
}
