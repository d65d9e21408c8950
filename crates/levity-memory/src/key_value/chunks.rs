//! Message chunks, each written once.
//!
//! A chunk has the key `messages/<id>/<generation>/<position>/<save>/<part>`. A save claims the
//! number after that of the head by creating the first key with it. Then it writes all of its
//! chunks, and then the head.
//!
//! A writer that finds the number taken raises that of the head, so that the other save can no
//! longer finish. While the conversation ends at one position, the number of the head only grows,
//! and the save that finishes there has the highest. So of all chunks at a position, the one with
//! the highest number is valid. Keys contain the number subtracted from the greatest, which sorts
//! the highest first.
//!
//! No chunk crosses a multiple of [`BLOCK`] positions. So a chunk begins at each multiple, and
//! reading can begin there.

use std::ops::Range;
use std::sync::Arc;

use levity_core::{ConversationChange, ConversationId, MemoryError, Message};

use super::head::{Head, damaged};
use crate::json;

/// The maximum number of messages in a chunk.
pub(super) const BLOCK: u64 = 16;

/// The key prefix of the chunks of all conversations.
pub(super) const CHUNKS: &str = "messages/";

/// The key of a chunk, or of a part of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ChunkKey {
    pub(super) generation: u64,
    pub(super) position: u64,
    pub(super) save: u64,
    pub(super) part: u32,
}

impl ChunkKey {
    /// Formats the key below `prefix`, which names the conversation.
    pub(super) fn key(self, prefix: &str) -> String {
        let Self {
            generation,
            position,
            save,
            part,
        } = self;
        format!(
            "{prefix}{generation:016x}/{position:020}/{:020}/{part:06}",
            u64::MAX - save
        )
    }

    pub(super) fn parse(prefix: &str, key: &str) -> Option<Self> {
        let mut fields = key.strip_prefix(prefix)?.split('/');
        let generation = u64::from_str_radix(fields.next()?, 16).ok()?;
        let position = fields.next()?.parse().ok()?;
        let save = u64::MAX - fields.next()?.parse::<u64>().ok()?;
        let chunk_key = Self {
            generation,
            position,
            save,
            part: fields.next()?.parse().ok()?,
        };
        (chunk_key.key(prefix) == key).then_some(chunk_key)
    }
}

/// Returns the keys and values of a change at the end of the conversation.
///
/// `max_bytes` limits each value; a chunk that is longer is split into parts.
pub(super) fn write(
    id: &ConversationId,
    prefix: &str,
    head: &Head,
    change: &ConversationChange,
    max_bytes: usize,
) -> Result<Vec<(String, Vec<u8>)>, MemoryError> {
    let mut values = Vec::new();
    let mut chunk = String::new();
    let mut begin = change.at;
    for (position, message) in (change.at..).zip(&change.messages) {
        let text = json::write(id, position, message)?;
        let full = position.is_multiple_of(BLOCK) || chunk.len() + text.len() + 16 > max_bytes;
        if full && !chunk.is_empty() {
            split_chunk(prefix, head, begin, &chunk, max_bytes, &mut values);
            (chunk, begin) = (String::new(), position);
        }
        chunk.push(if chunk.is_empty() { '[' } else { ',' });
        chunk.push_str(&text);
    }
    if !chunk.is_empty() {
        split_chunk(prefix, head, begin, &chunk, max_bytes, &mut values);
    }
    Ok(values)
}

/// Splits a chunk into values. The first one begins with their total number of bytes.
fn split_chunk(
    prefix: &str,
    head: &Head,
    position: u64,
    chunk: &str,
    max_bytes: usize,
    values: &mut Vec<(String, Vec<u8>)>,
) {
    let chunk = format!("{chunk}]");
    let parts: Vec<_> = chunk.as_bytes().chunks(max_bytes - 16).collect();
    for (part, bytes) in (0..).zip(&parts) {
        let chunk_key = ChunkKey {
            generation: head.generation,
            position,
            save: head.save + 1,
            part,
        };
        let count = if part == 0 {
            format!("{}\n", chunk.len())
        } else {
            String::new()
        };
        values.push((chunk_key.key(prefix), [count.as_bytes(), bytes].concat()));
    }
}

/// Assembles chunks from keys in their order.
///
/// It checks that positions follow each other without a gap. Chunks of interrupted saves sort
/// behind the valid one of the same position and are skipped.
pub(super) struct Reader<'a> {
    pub(super) id: &'a ConversationId,
    pub(super) prefix: &'a str,
    /// The range of positions that was requested.
    pub(super) range: Range<u64>,
    /// The position at which the next chunk begins.
    pub(super) next: u64,
    /// The position at which the chunk with the first requested message begins.
    pub(super) begin: u64,
    pub(super) messages: Vec<(u64, Arc<Message>)>,
    /// The key of the last part of an incomplete chunk, the total number of bytes, and the bytes
    /// read.
    partial: Option<(ChunkKey, usize, Vec<u8>)>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        id: &'a ConversationId,
        prefix: &'a str,
        head: &Head,
        range: Range<u64>,
    ) -> Self {
        let next = head.start.max(range.start - range.start % BLOCK);
        Self {
            id,
            prefix,
            next,
            begin: range.start,
            range,
            messages: Vec::new(),
            partial: None,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.next >= self.range.end
    }

    pub(super) fn push(&mut self, key: &str, value: &[u8]) -> Result<(), MemoryError> {
        let damaged_at = |detail: &str| damaged(self.id, key, detail);
        let chunk_key = ChunkKey::parse(self.prefix, key).ok_or_else(|| {
            damaged_at(
                "the key is not the key of \
                a chunk",
            )
        })?;
        if self.is_done() || chunk_key.position < self.next {
            // An interrupted save left it behind.
            return Ok(());
        }
        let (length, bytes) = match self.partial.take() {
            Some((last, length, mut bytes))
                if (ChunkKey {
                    part: last.part.saturating_add(1),
                    ..last
                }) == chunk_key =>
            {
                bytes.extend_from_slice(value);
                (length, bytes)
            }
            None if chunk_key.part == 0 && chunk_key.position == self.next => {
                first_part(value).ok_or_else(|| damaged_at("it has no length of its chunk"))?
            }
            _ => {
                return Err(damaged_at(&format!(
                    "the messages from {} are missing before it",
                    self.next
                )));
            }
        };
        if bytes.len() < length {
            self.partial = Some((chunk_key, length, bytes));
            return Ok(());
        }
        if bytes.len() > length {
            return Err(damaged_at("its chunk is longer than its stated length"));
        }
        let chunk: Vec<Arc<Message>> = serde_json::from_slice::<Vec<Message>>(&bytes)
            // The text of the JSON error may quote the message.
            .map_err(|error| {
                damaged_at(&format!(
                    "byte {} of its chunk is not valid JSON for messages",
                    error.column()
                ))
            })?
            .into_iter()
            .map(Arc::new)
            .collect();
        if chunk.is_empty() || chunk_key.position % BLOCK + chunk.len() as u64 > BLOCK {
            return Err(damaged_at("its chunk has no messages, or too many"));
        }
        self.next += chunk.len() as u64;
        if (chunk_key.position..self.next).contains(&self.range.start) {
            self.begin = chunk_key.position;
        }
        let placed = (chunk_key.position..).zip(chunk);
        self.messages
            .extend(placed.filter(|(position, _)| self.range.contains(position)));
        Ok(())
    }
}

/// Returns the length of a chunk, and the bytes of its first part.
fn first_part(value: &[u8]) -> Option<(usize, Vec<u8>)> {
    let newline = value.iter().take(16).position(|byte| *byte == b'\n')?;
    let length = std::str::from_utf8(&value[..newline]).ok()?.parse().ok()?;
    Some((length, value[newline + 1..].to_vec()))
}
