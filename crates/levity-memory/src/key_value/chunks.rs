//! Messages in chunks that are written once.
//!
//! A chunk has the key `messages/<id>/<generation>/<position>/<save>/<part>`. A save takes the
//! number after that of the head by creating the first key with it. Then it writes all of its
//! chunks, and then the head. A writer that finds the number taken raises that of the head, so that
//! the other save can no longer finish. While the conversation ends at one position, the number of
//! the head only grows, and the save that finishes there has the highest. So of all chunks at a
//! position, the one with the highest number is valid. Keys have the number subtracted from the
//! greatest, which sorts the highest first.
//!
//! No chunk crosses a multiple of [`BLOCK`] positions. So a chunk begins at each of them, and
//! reading can begin there.

use std::ops::Range;
use std::sync::Arc;

use levity_core::{ConversationChange, ConversationId, MemoryError, Message};

use super::head::{Head, damaged};
use crate::json;

/// A chunk has at most so many messages.
pub(super) const BLOCK: u64 = 16;

/// Below this prefix are the chunks of all conversations.
pub(super) const CHUNKS: &str = "messages/";

/// The place of a chunk, or of a part of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Place {
    pub(super) generation: u64,
    pub(super) position: u64,
    pub(super) save: u64,
    pub(super) part: u32,
}

impl Place {
    /// The key below `prefix`, which names the conversation.
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
        let place = Self {
            generation,
            position,
            save,
            part: fields.next()?.parse().ok()?,
        };
        (place.key(prefix) == key).then_some(place)
    }
}

/// The keys and values of a change at the end of the conversation.
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
            cut(prefix, head, begin, &chunk, max_bytes, &mut values);
            (chunk, begin) = (String::new(), position);
        }
        chunk.push(if chunk.is_empty() { '[' } else { ',' });
        chunk.push_str(&text);
    }
    if !chunk.is_empty() {
        cut(prefix, head, begin, &chunk, max_bytes, &mut values);
    }
    Ok(values)
}

/// Cuts a chunk into values. The first one says how many bytes they have together.
fn cut(
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
        let place = Place {
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
        values.push((place.key(prefix), [count.as_bytes(), bytes].concat()));
    }
}

/// Puts chunks together from keys in their order.
pub(super) struct Reader<'a> {
    pub(super) id: &'a ConversationId,
    pub(super) prefix: &'a str,
    /// The positions that are wanted.
    pub(super) wanted: Range<u64>,
    /// The position at which the next chunk begins.
    pub(super) next: u64,
    /// The position at which the chunk begins that has the first wanted message.
    pub(super) begin: u64,
    pub(super) messages: Vec<(u64, Arc<Message>)>,
    /// The last part of a chunk that has more, how many bytes it has in all, and those that were
    /// read.
    open: Option<(Place, usize, Vec<u8>)>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        id: &'a ConversationId,
        prefix: &'a str,
        head: &Head,
        wanted: Range<u64>,
    ) -> Self {
        let next = head.start.max(wanted.start - wanted.start % BLOCK);
        Self {
            id,
            prefix,
            next,
            begin: wanted.start,
            wanted,
            messages: Vec::new(),
            open: None,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.next >= self.wanted.end
    }

    pub(super) fn push(&mut self, key: &str, value: &[u8]) -> Result<(), MemoryError> {
        let wrong = |what: &str| damaged(self.id, key, what);
        let place =
            Place::parse(self.prefix, key).ok_or_else(|| wrong("no chunk has such a key"))?;
        if self.is_done() || place.position < self.next {
            // A save that was cut off left it.
            return Ok(());
        }
        let (length, bytes) = match self.open.take() {
            Some((last, length, mut bytes))
                if (Place {
                    part: last.part.saturating_add(1),
                    ..last
                }) == place =>
            {
                bytes.extend_from_slice(value);
                (length, bytes)
            }
            None if place.part == 0 && place.position == self.next => {
                first_part(value).ok_or_else(|| wrong("it does not say how long its chunk is"))?
            }
            _ => {
                return Err(wrong(&format!(
                    "the messages from {} on are missing before it",
                    self.next
                )));
            }
        };
        if bytes.len() < length {
            self.open = Some((place, length, bytes));
            return Ok(());
        }
        if bytes.len() > length {
            return Err(wrong("its chunk is longer than it should be"));
        }
        let chunk: Vec<Arc<Message>> = serde_json::from_slice::<Vec<Message>>(&bytes)
            // The error may quote the message.
            .map_err(|error| {
                wrong(&format!(
                    "byte {} of its chunk is not as it should be",
                    error.column()
                ))
            })?
            .into_iter()
            .map(Arc::new)
            .collect();
        if chunk.is_empty() || place.position % BLOCK + chunk.len() as u64 > BLOCK {
            return Err(wrong("its chunk has no messages, or too many"));
        }
        self.next += chunk.len() as u64;
        if (place.position..self.next).contains(&self.wanted.start) {
            self.begin = place.position;
        }
        let placed = (place.position..).zip(chunk);
        self.messages
            .extend(placed.filter(|(position, _)| self.wanted.contains(position)));
        Ok(())
    }
}

/// The length of a chunk, and the bytes of its first part.
fn first_part(value: &[u8]) -> Option<(usize, Vec<u8>)> {
    let at = value.iter().take(16).position(|byte| *byte == b'\n')?;
    let length = std::str::from_utf8(&value[..at]).ok()?.parse().ok()?;
    Some((length, value[at + 1..].to_vec()))
}
