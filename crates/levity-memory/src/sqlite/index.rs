//! The word index. All functions run within a transaction.
//!
//! A conversation is indexed between `words_from` and `words_to`. Both move in steps, so that
//! indexing and removing never hold the writer for long.

use levity_core::ConversationId;
use rusqlite::{Connection, params};

use super::rows::{POSITIONS, Row, RowError, find, messages, place, to_signed};
use crate::query_words::searchable;

/// The maximum number of messages, and about the maximum number of bytes, indexed in one step.
const BATCH: i64 = 500;
const BATCH_BYTES: usize = 4 << 20;

/// The number of messages removed from the index in one step.
const REMOVE_BATCH: u64 = 100;

/// Removes all indexed messages before a position from the index, or none if a message is damaged.
/// It takes far longer than removing the messages, because the index is cleaned word by word.
pub(super) fn remove_from_index(
    connection: &Connection,
    id: &ConversationId,
    row: &Row,
    to: u64,
) -> Result<(), RowError> {
    if row.words_from >= to {
        return Ok(());
    }
    connection.execute_batch("SAVEPOINT known")?;
    let deleted = delete_words(connection, id, row, to);
    let end = if deleted.is_ok() {
        "RELEASE known"
    } else {
        "ROLLBACK TO known; RELEASE known"
    };
    let ended = connection.execute_batch(end);
    deleted?;
    Ok(ended?)
}

fn delete_words(
    connection: &Connection,
    id: &ConversationId,
    row: &Row,
    to: u64,
) -> Result<(), RowError> {
    let sql = "INSERT INTO words (words, rowid, text) VALUES ('delete', ?1, ?2)";
    let mut forget = connection.prepare_cached(sql)?;
    let mut from = row.words_from;
    while from < to {
        let end = to.min(from + batch_size(connection, row.key, from)?);
        // The index needs the original text of each removed row.
        for (at, message) in (from..).zip(messages(connection, id, row.key, (from, end))?) {
            forget.execute(params![place(row.key, at), searchable(&message)])?;
        }
        from = end;
    }
    Ok(())
}

/// Removes some messages before a position from the index, and returns how many remain; a small
/// remainder counts as 0.
pub(super) fn unindex(
    connection: &Connection,
    id: &ConversationId,
    before: u64,
) -> Result<u64, RowError> {
    let remaining =
        |row: &Row| Some(row.indexed_before(before)).filter(|indexed| *indexed > REMOVE_BATCH);
    let Some(row) = find(connection, id)?.filter(|row| remaining(row).is_some()) else {
        return Ok(0);
    };
    let to = row.words_from + REMOVE_BATCH;
    remove_from_index(connection, id, &row, to)?;
    let sql = "UPDATE conversations SET words_from = ?2 WHERE key = ?1";
    connection
        .prepare_cached(sql)?
        .execute(params![row.key, to_signed(to)])?;
    Ok(remaining(&Row {
        words_from: to,
        ..row
    })
    .unwrap_or_default())
}

/// Adds some messages to the index, and returns `true` if all are indexed.
pub(super) fn index(connection: &Connection, id: &ConversationId) -> Result<bool, RowError> {
    let Some(mut row) = find(connection, id)?.filter(|row| !row.is_indexed()) else {
        return Ok(true);
    };
    let (from, to) = if row.words_from > row.first {
        // A removal was interrupted half-way.
        let from = row.first.max(row.words_from.saturating_sub(REMOVE_BATCH));
        (from, std::mem::replace(&mut row.words_from, from))
    } else {
        let to = row
            .next
            .min(row.words_to + batch_size(connection, row.key, row.words_to)?);
        (std::mem::replace(&mut row.words_to, to), to)
    };
    let mut insert =
        connection.prepare_cached("INSERT INTO words (rowid, text) VALUES (?1, ?2)")?;
    for (at, message) in (from..).zip(messages(connection, id, row.key, (from, to))?) {
        insert.execute(params![place(row.key, at), searchable(&message)])?;
    }
    let sql = "UPDATE conversations SET words_from = ?2, words_to = ?3 WHERE key = ?1";
    connection.prepare_cached(sql)?.execute(params![
        row.key,
        to_signed(row.words_from),
        to_signed(row.words_to)
    ])?;
    Ok(row.is_indexed())
}

/// Returns how many messages from a position are indexed in one step, at least one.
fn batch_size(connection: &Connection, key: i64, from: u64) -> rusqlite::Result<u64> {
    let sql = "SELECT octet_length(message) FROM messages WHERE place >= ?1 AND place < ?2 ORDER \
        BY place LIMIT ?3";
    let mut select = connection.prepare_cached(sql)?;
    let mut rows = select.query([place(key, from), place(key, POSITIONS), BATCH])?;
    let (mut count, mut bytes) = (0, 0);
    while let Some(row) = rows.next()? {
        bytes += usize::try_from(row.get::<_, i64>(0)?).unwrap_or_default();
        count += 1;
        if bytes > BATCH_BYTES {
            break;
        }
    }
    Ok(count.max(1))
}
