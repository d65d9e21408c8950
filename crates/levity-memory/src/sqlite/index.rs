//! What the search knows. All of it happens within a transaction.

use levity_core::ConversationId;
use rusqlite::{Connection, params};

use super::rows::{Fault, POSITIONS, Row, find, messages, place, signed};
use crate::words::searchable;

/// So many messages, and about so many bytes of them, are made known to the search in one go.
const PORTION: i64 = 500;
const PORTION_BYTES: usize = 4 << 20;

/// So many messages are taken away from the search in one go.
const FEW: u64 = 100;

/// Takes what the search knows of messages up to before a position away from it: all of that or,
/// when a message is damaged, nothing. It takes far longer than removing the messages, since the
/// index is cleaned word by word.
pub(super) fn unknow(
    connection: &Connection,
    id: &ConversationId,
    row: &Row,
    to: u64,
) -> Result<(), Fault> {
    if row.words_from >= to {
        return Ok(());
    }
    connection.execute_batch("SAVEPOINT known")?;
    let done = take_away(connection, id, row, to);
    let end = if done.is_ok() {
        "RELEASE known"
    } else {
        "ROLLBACK TO known; RELEASE known"
    };
    let ended = connection.execute_batch(end);
    done?;
    Ok(ended?)
}

fn take_away(
    connection: &Connection,
    id: &ConversationId,
    row: &Row,
    to: u64,
) -> Result<(), Fault> {
    let sql = "INSERT INTO words (words, rowid, text) VALUES ('delete', ?1, ?2)";
    let mut forget = connection.prepare_cached(sql)?;
    let mut from = row.words_from;
    while from < to {
        let end = to.min(from + portion(connection, row.key, from)?);
        // The index has to be told what it knew of each.
        for (at, message) in (from..).zip(messages(connection, id, row.key, (from, end))?) {
            forget.execute(params![place(row.key, at), searchable(&message)])?;
        }
        from = end;
    }
    Ok(())
}

/// Takes some of what the search knows of messages before a position away from it, and says how
/// many are left; few count as none.
pub(super) fn unindex(
    connection: &Connection,
    id: &ConversationId,
    before: u64,
) -> Result<u64, Fault> {
    let many = |row: &Row| Some(row.indexed_before(before)).filter(|known| *known > FEW);
    let Some(row) = find(connection, id)?.filter(|row| many(row).is_some()) else {
        return Ok(0);
    };
    let to = row.words_from + FEW;
    unknow(connection, id, &row, to)?;
    let sql = "UPDATE conversations SET words_from = ?2 WHERE key = ?1";
    connection
        .prepare_cached(sql)?
        .execute(params![row.key, signed(to)])?;
    Ok(many(&Row {
        words_from: to,
        ..row
    })
    .unwrap_or_default())
}

/// Makes some messages known to the search, and says whether all are.
pub(super) fn index(connection: &Connection, id: &ConversationId) -> Result<bool, Fault> {
    let Some(mut row) = find(connection, id)?.filter(|row| !row.is_indexed()) else {
        return Ok(true);
    };
    let (from, to) = if row.words_from > row.first {
        // A removal was given up half-way.
        let from = row.first.max(row.words_from.saturating_sub(FEW));
        (from, std::mem::replace(&mut row.words_from, from))
    } else {
        let to = row
            .next
            .min(row.words_to + portion(connection, row.key, row.words_to)?);
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
        signed(row.words_from),
        signed(row.words_to)
    ])?;
    Ok(row.is_indexed())
}

/// How many messages from a position on are not too many for one go; one at least.
fn portion(connection: &Connection, key: i64, from: u64) -> rusqlite::Result<u64> {
    let sql = "SELECT octet_length(message) FROM messages WHERE place >= ?1 AND place < ?2 ORDER \
        BY place LIMIT ?3";
    let mut select = connection.prepare_cached(sql)?;
    let mut rows = select.query([place(key, from), place(key, POSITIONS), PORTION])?;
    let (mut count, mut bytes) = (0, 0);
    while let Some(row) = rows.next()? {
        bytes += usize::try_from(row.get::<_, i64>(0)?).unwrap_or_default();
        count += 1;
        if bytes > PORTION_BYTES {
            break;
        }
    }
    Ok(count.max(1))
}
