//! What is in the tables, and how it is changed. All of it happens within a transaction.

use std::sync::Arc;

use levity_core::{
    ConversationChange, ConversationId, MemoryError, MemoryErrorKind, Message, Timestamp,
};
use rusqlite::{Connection, OptionalExtension, params};

use super::index;
use crate::json;
use crate::kept::{Verdict, judge};

/// An index of ids has to stay small.
const LONGEST_ID: usize = 1_000;

/// A message longer than this may be more than SQLite takes.
const LONGEST: usize = 500_000_000;

/// So many positions a conversation has: its key and a position make up the place of a message.
pub(super) const POSITIONS: u64 = 1 << 32;

/// And so many conversations a file has.
const KEYS: i64 = (1 << 31) - 1;

/// Why something was not written.
pub(super) enum Fault {
    /// It may not be; nothing was changed.
    Own(MemoryError),
    /// It could not be.
    Sqlite(rusqlite::Error),
}

impl From<MemoryError> for Fault {
    fn from(error: MemoryError) -> Self {
        Self::Own(error)
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

/// A conversation, as its row says.
pub(super) struct Row {
    pub(super) key: i64,
    pub(super) changed: u64,
    pub(super) first: u64,
    pub(super) next: u64,
    /// The search knows the messages from this position on..
    pub(super) words_from: u64,
    /// .. to before this one.
    pub(super) words_to: u64,
    pub(super) upto: Option<u64>,
}

impl Row {
    /// Whether the search knows all messages.
    pub(super) fn is_indexed(&self) -> bool {
        self.words_from <= self.first && self.words_to == self.next
    }

    /// How many of the messages before a position the search knows.
    pub(super) fn indexed_before(&self, before: u64) -> u64 {
        self.words_to.min(before).saturating_sub(self.words_from)
    }

    /// Whether it was not changed since a moment, if one is given.
    pub(super) fn is_old(&self, unchanged_since: Option<Timestamp>) -> bool {
        unchanged_since.is_none_or(|moment| self.changed < moment.as_millis())
    }

    fn is_sound(&self) -> bool {
        let known = self.words_from <= self.words_to && self.words_to <= self.next;
        known
            && self.first <= self.words_to
            && self.next < POSITIONS
            && (1..=KEYS).contains(&self.key)
    }
}

pub(super) fn find(connection: &Connection, id: &ConversationId) -> Result<Option<Row>, Fault> {
    let sql = "SELECT key, changed, first, next, words_from, words_to, upto FROM conversations \
        WHERE id = ?1";
    let mut select = connection.prepare_cached(sql)?;
    let row = |row: &rusqlite::Row<'_>| {
        // What is negative is too large, and so refused below.
        let natural = |number: i64| u64::try_from(number).unwrap_or(u64::MAX);
        let number = |column| row.get(column).map(natural);
        Ok(Row {
            key: row.get(0)?,
            changed: number(1)?,
            first: number(2)?,
            next: number(3)?,
            words_from: number(4)?,
            words_to: number(5)?,
            upto: row.get::<_, Option<i64>>(6)?.map(natural),
        })
    };
    let found = select.query_row([id.as_str()], row).optional()?;
    match found.as_ref().is_none_or(Row::is_sound) {
        true => Ok(found),
        false => Err(MemoryError::damaged(id, "its positions are not as they should be").into()),
    }
}

/// A number that is never negative, unless somebody else wrote it.
pub(super) fn natural(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Where a message is: those of one conversation stand side by side.
pub(super) fn place(key: i64, position: u64) -> i64 {
    (key << 32) | signed(position.min(POSITIONS - 1))
}

pub(super) fn position(place: i64) -> u64 {
    natural(place) & (POSITIONS - 1)
}

pub(super) fn save(
    connection: &Connection,
    id: &ConversationId,
    change: &ConversationChange,
) -> Result<(), Fault> {
    let row = find(connection, id)?;
    let (end, upto) = row.as_ref().map_or((0, None), |row| (row.next, row.upto));
    match judge(id, end, upto, change)? {
        Verdict::Nothing => return Ok(()),
        Verdict::Compare if has(connection, id, row.as_ref(), change)? => return Ok(()),
        Verdict::Compare => return Err(MemoryError::moved(id, change.at, end).into()),
        Verdict::Write => {}
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
        .is_some_and(|summary| summary.text.len() > LONGEST);
    if long || change.end() >= POSITIONS {
        let what = if long {
            "is too long"
        } else {
            "has too many messages"
        };
        let message = format!("conversation `{id}` {what} for an SQLite file");
        return Err(MemoryError::new(MemoryErrorKind::Refused, message));
    }
    Ok(())
}

pub(super) fn check_id(id: &ConversationId) -> Result<(), MemoryError> {
    if id.as_str().len() <= LONGEST_ID {
        return Ok(());
    }
    let message = format!("the id of a conversation has at most {LONGEST_ID} bytes here");
    Err(MemoryError::new(MemoryErrorKind::Refused, message))
}

fn text(id: &ConversationId, at: u64, message: &Message) -> Result<String, MemoryError> {
    let text = json::write(id, at, message)?;
    if text.len() <= LONGEST {
        return Ok(text);
    }
    let message = format!("message {at} of conversation `{id}` is too long for an SQLite file");
    Err(MemoryError::new(MemoryErrorKind::Refused, message))
}

/// Writes all but the messages, and says which key they belong to.
fn write_row(
    connection: &Connection,
    id: &ConversationId,
    row: Option<&Row>,
    change: &ConversationChange,
) -> Result<i64, Fault> {
    let (next, when) = (signed(change.end()), signed(change.when.as_millis()));
    let summary = change
        .summary
        .as_ref()
        .map(|summary| (signed(summary.upto), &*summary.text));
    let (upto, text) = summary.unzip();
    let Some(row) = row else {
        let sql = "INSERT INTO conversations (id, changed, next, upto, summary) VALUES (?1, ?2, \
            ?3, ?4, ?5)";
        connection
            .prepare_cached(sql)?
            .execute(params![id.as_str(), when, next, upto, text])?;
        let key = connection.last_insert_rowid();
        return if key <= KEYS {
            Ok(key)
        } else {
            Err(rusqlite::Error::InvalidQuery.into())
        };
    };
    let changed = when.max(signed(row.changed));
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

/// Whether the messages of a change stand in their places, as far as they were not trimmed.
fn has(
    connection: &Connection,
    id: &ConversationId,
    row: Option<&Row>,
    change: &ConversationChange,
) -> Result<bool, Fault> {
    let Some(row) = row else { return Ok(false) };
    let start = change.at.max(row.first);
    let skipped = usize::try_from(start - change.at).unwrap_or(usize::MAX);
    let rest = change.messages.get(skipped..).unwrap_or_default();
    let there = messages(connection, id, row.key, (start, start + rest.len() as u64))?;
    Ok(!rest.is_empty() && there == rest)
}

/// The messages from a position to before another; all of them have to be there.
pub(super) fn messages(
    connection: &Connection,
    id: &ConversationId,
    key: i64,
    (from, to): (u64, u64),
) -> Result<Vec<Arc<Message>>, Fault> {
    let sql = "SELECT place, message FROM messages WHERE place >= ?1 AND place < ?2 ORDER BY place";
    let mut select = connection.prepare_cached(sql)?;
    let mut rows = select.query([place(key, from), place(key, to)])?;
    let mut messages = Vec::new();
    let mut next = from;
    while let Some(row) = rows.next()? {
        let (there, text) = (position(row.get(0)?), row.get_ref(1)?.as_str());
        let text = text.ok().filter(|_| there == next);
        messages.push(Arc::new(json::read(id, next, text.unwrap_or_default())?));
        next += 1;
    }
    if next < to {
        return Err(MemoryError::damaged(id, &format!("message {next} is not there")).into());
    }
    Ok(messages)
}

/// Trims, and says whether that changed anything.
pub(super) fn trim(
    connection: &Connection,
    id: &ConversationId,
    before: u64,
) -> Result<bool, Fault> {
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
        .execute(params![row.key, signed(before)])?;
    Ok(true)
}

/// Removes a conversation, and says whether there was one to remove.
pub(super) fn remove(
    connection: &Connection,
    id: &ConversationId,
    unchanged_since: Option<Timestamp>,
) -> Result<bool, Fault> {
    let Some(row) = find(connection, id)?.filter(|row| row.is_old(unchanged_since)) else {
        return Ok(false);
    };
    erase(connection, id, &row, row.next)?;
    connection
        .prepare_cached("DELETE FROM conversations WHERE key = ?1")?
        .execute([row.key])?;
    Ok(true)
}

/// Removes messages up to before a position, and what the search knows of them.
fn erase(
    connection: &Connection,
    id: &ConversationId,
    row: &Row,
    before: u64,
) -> Result<(), Fault> {
    index::unknow(
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
