//! The rows of the tables and their changes. All functions run within a transaction.
//!
//! Numbers from the file are checked before they are used: another program may have changed them,
//! and a wrong position would mix two conversations.

use std::sync::Arc;

use levity_core::{
    ConversationChange, ConversationId, MemoryError, MemoryErrorKind, Message, Timestamp,
};
use rusqlite::{Connection, OptionalExtension, params};

use super::index;
use crate::json;
use crate::stored::{SaveAction, classify};

/// The maximum length of an id; the index of ids must stay small.
const MAX_ID_BYTES: usize = 1_000;

/// The maximum size of a message; SQLite may reject longer ones.
const MAX_TEXT_BYTES: usize = 500_000_000;

/// The number of positions of a conversation: its key and a position form the row id of a message.
pub(super) const POSITIONS: u64 = 1 << 32;

/// The maximum key of a conversation in a file.
const MAX_KEY: i64 = (1 << 31) - 1;

/// The reason why a change was not made.
pub(super) enum RowError {
    /// The change is not allowed; nothing was changed.
    Rejected(MemoryError),
    /// SQLite itself failed with this error.
    Sqlite(rusqlite::Error),
}

impl From<MemoryError> for RowError {
    fn from(error: MemoryError) -> Self {
        Self::Rejected(error)
    }
}

impl From<rusqlite::Error> for RowError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

/// The row of a conversation.
///
/// It has everything about a conversation except its messages and the text of its summary.
pub(super) struct Row {
    pub(super) key: i64,
    pub(super) changed: u64,
    pub(super) first: u64,
    pub(super) next: u64,
    /// The first indexed position.
    pub(super) words_from: u64,
    /// The end of the indexed positions, exclusive.
    pub(super) words_to: u64,
    pub(super) upto: Option<u64>,
}

impl Row {
    /// Returns `true` if all messages are indexed.
    pub(super) fn is_indexed(&self) -> bool {
        self.words_from <= self.first && self.words_to == self.next
    }

    /// Returns the number of indexed messages before a position.
    pub(super) fn indexed_before(&self, before: u64) -> u64 {
        self.words_to.min(before).saturating_sub(self.words_from)
    }

    /// Returns `true` if the conversation has not changed since `unchanged_since`, if given.
    pub(super) fn is_old(&self, unchanged_since: Option<Timestamp>) -> bool {
        unchanged_since.is_none_or(|moment| self.changed < moment.as_millis())
    }

    fn is_valid(&self) -> bool {
        let indexed = self.words_from <= self.words_to && self.words_to <= self.next;
        indexed
            && self.first <= self.words_to
            && self.next < POSITIONS
            && (1..=MAX_KEY).contains(&self.key)
    }
}

pub(super) fn find(connection: &Connection, id: &ConversationId) -> Result<Option<Row>, RowError> {
    let sql = "SELECT key, changed, first, next, words_from, words_to, upto FROM conversations \
        WHERE id = ?1";
    let mut select = connection.prepare_cached(sql)?;
    let row = |row: &rusqlite::Row<'_>| {
        // A negative number becomes too large, and is rejected below.
        let to_unsigned = |number: i64| u64::try_from(number).unwrap_or(u64::MAX);
        let number = |column| row.get(column).map(to_unsigned);
        Ok(Row {
            key: row.get(0)?,
            changed: number(1)?,
            first: number(2)?,
            next: number(3)?,
            words_from: number(4)?,
            words_to: number(5)?,
            upto: row.get::<_, Option<i64>>(6)?.map(to_unsigned),
        })
    };
    let found = select.query_row([id.as_str()], row).optional()?;
    match found.as_ref().is_none_or(Row::is_valid) {
        true => Ok(found),
        false => Err(MemoryError::damaged(id, "its positions contradict each other").into()),
    }
}

/// Converts a number that is negative only if another program wrote it.
pub(super) fn to_unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

pub(super) fn to_signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns the row id of a message; the messages of one conversation are adjacent.
pub(super) fn place(key: i64, position: u64) -> i64 {
    (key << 32) | to_signed(position.min(POSITIONS - 1))
}

pub(super) fn position(place: i64) -> u64 {
    to_unsigned(place) & (POSITIONS - 1)
}

pub(super) fn save(
    connection: &Connection,
    id: &ConversationId,
    change: &ConversationChange,
) -> Result<(), RowError> {
    let row = find(connection, id)?;
    let (end, upto) = row.as_ref().map_or((0, None), |row| (row.next, row.upto));
    match classify(id, end, upto, change)? {
        SaveAction::Nothing => return Ok(()),
        SaveAction::Compare if is_saved(connection, id, row.as_ref(), change)? => return Ok(()),
        SaveAction::Compare => return Err(MemoryError::moved(id, change.at, end).into()),
        SaveAction::Write => {}
    }
    check(id, change)?;
    let texts: Vec<_> = (change.at..)
        .zip(&change.messages)
        .map(|(at, message)| text(id, at, message))
        .collect::<Result<_, _>>()?;
    let key = write_row(connection, id, row.as_ref(), change)?;
    let mut insert =
        connection.prepare_cached("INSERT INTO messages (place, message) VALUES (?1, ?2)")?;
    for (at, text) in (change.at..).zip(&texts) {
        insert.execute(params![place(key, at), text])?;
    }
    Ok(())
}

fn check(id: &ConversationId, change: &ConversationChange) -> Result<(), MemoryError> {
    check_id(id)?;
    let long = change
        .summary
        .as_ref()
        .is_some_and(|summary| summary.text.len() > MAX_TEXT_BYTES);
    if long || change.end() >= POSITIONS {
        let problem = if long {
            "has too long a summary"
        } else {
            "has too many messages"
        };
        let message = format!("cannot save conversation `{id}`: it {problem} for an SQLite file");
        return Err(MemoryError::new(MemoryErrorKind::Refused, message));
    }
    Ok(())
}

pub(super) fn check_id(id: &ConversationId) -> Result<(), MemoryError> {
    if id.as_str().len() <= MAX_ID_BYTES {
        return Ok(());
    }
    let message = format!("the conversation id is too long: the limit is {MAX_ID_BYTES} bytes");
    Err(MemoryError::new(MemoryErrorKind::Refused, message))
}

fn text(id: &ConversationId, at: u64, message: &Message) -> Result<String, MemoryError> {
    let text = json::write(id, at, message)?;
    if text.len() <= MAX_TEXT_BYTES {
        return Ok(text);
    }
    let message = format!(
        "message {at} of conversation `{id}` is too long for an SQLite file; the \
        limit is {MAX_TEXT_BYTES} bytes"
    );
    Err(MemoryError::new(MemoryErrorKind::Refused, message))
}

/// Writes the row without the messages, and returns its key.
///
/// The date never goes backwards, even if the clock does.
fn write_row(
    connection: &Connection,
    id: &ConversationId,
    row: Option<&Row>,
    change: &ConversationChange,
) -> Result<i64, RowError> {
    let (next, when) = (to_signed(change.end()), to_signed(change.when.as_millis()));
    let summary = change
        .summary
        .as_ref()
        .map(|summary| (to_signed(summary.upto), &*summary.text));
    let (upto, text) = summary.unzip();
    let Some(row) = row else {
        let sql = "INSERT INTO conversations (id, changed, next, upto, summary) VALUES (?1, ?2, \
            ?3, ?4, ?5)";
        connection
            .prepare_cached(sql)?
            .execute(params![id.as_str(), when, next, upto, text])?;
        let key = connection.last_insert_rowid();
        return if key <= MAX_KEY {
            Ok(key)
        } else {
            Err(rusqlite::Error::InvalidQuery.into())
        };
    };
    let changed = when.max(to_signed(row.changed));
    if summary.is_some() {
        let sql = "UPDATE conversations SET next = ?2, changed = ?3, upto = ?4, summary = ?5 WHERE \
            key = ?1";
        connection
            .prepare_cached(sql)?
            .execute(params![row.key, next, changed, upto, text])?;
    } else {
        let sql = "UPDATE conversations SET next = ?2, changed = ?3 WHERE key = ?1";
        connection
            .prepare_cached(sql)?
            .execute(params![row.key, next, changed])?;
    }
    Ok(row.key)
}

/// Returns `true` if the change's messages, except trimmed ones, are already at their positions.
fn is_saved(
    connection: &Connection,
    id: &ConversationId,
    row: Option<&Row>,
    change: &ConversationChange,
) -> Result<bool, RowError> {
    let Some(row) = row else { return Ok(false) };
    let start = change.at.max(row.first);
    let skipped = usize::try_from(start - change.at).unwrap_or(usize::MAX);
    let rest = change.messages.get(skipped..).unwrap_or_default();
    let existing = messages(connection, id, row.key, (start, start + rest.len() as u64))?;
    Ok(!rest.is_empty() && existing == rest)
}

/// Returns the messages of a range; all of them must exist.
pub(super) fn messages(
    connection: &Connection,
    id: &ConversationId,
    key: i64,
    (from, to): (u64, u64),
) -> Result<Vec<Arc<Message>>, RowError> {
    let sql = "SELECT place, message FROM messages WHERE place >= ?1 AND place < ?2 ORDER BY place";
    let mut select = connection.prepare_cached(sql)?;
    let mut rows = select.query([place(key, from), place(key, to)])?;
    let mut messages = Vec::new();
    let mut next = from;
    while let Some(row) = rows.next()? {
        let (existing, text) = (position(row.get(0)?), row.get_ref(1)?.as_str());
        let text = text.ok().filter(|_| existing == next);
        messages.push(Arc::new(json::read(id, next, text.unwrap_or_default())?));
        next += 1;
    }
    if next < to {
        return Err(MemoryError::damaged(id, &format!("message {next} is missing")).into());
    }
    Ok(messages)
}

/// Removes messages before a position, and returns `true` if that changed anything.
pub(super) fn trim(
    connection: &Connection,
    id: &ConversationId,
    before: u64,
) -> Result<bool, RowError> {
    let Some(row) = find(connection, id)?.filter(|row| before > row.first && row.next > row.first)
    else {
        return Ok(false);
    };
    let before = before.min(row.next);
    erase(connection, id, &row, before)?;
    let sql = "UPDATE conversations SET first = ?2, words_from = max(words_from, ?2), words_to = \
        max(words_to, ?2) \
               WHERE key = ?1";
    connection
        .prepare_cached(sql)?
        .execute(params![row.key, to_signed(before)])?;
    Ok(true)
}

/// Removes a conversation, and returns `true` if there was one to remove.
pub(super) fn remove(
    connection: &Connection,
    id: &ConversationId,
    unchanged_since: Option<Timestamp>,
) -> Result<bool, RowError> {
    let Some(row) = find(connection, id)?.filter(|row| row.is_old(unchanged_since)) else {
        return Ok(false);
    };
    erase(connection, id, &row, row.next)?;
    connection
        .prepare_cached("DELETE FROM conversations WHERE key = ?1")?
        .execute([row.key])?;
    Ok(true)
}

/// Removes messages before a position, and their entries in the index.
fn erase(
    connection: &Connection,
    id: &ConversationId,
    row: &Row,
    before: u64,
) -> Result<(), RowError> {
    index::remove_from_index(
        connection,
        id,
        row,
        row.words_from + row.indexed_before(before),
    )?;
    let sql = "DELETE FROM messages WHERE place >= ?1 AND place < ?2";
    connection
        .prepare_cached(sql)?
        .execute([place(row.key, row.first), place(row.key, before)])?;
    Ok(())
}
