//! The holders of conversations. All functions run within a transaction.
//!
//! A hold is a row with the number of its owner. It counts as long as the owner's lock file is
//! locked, so the end of a process releases all of its holds without a timeout.

use std::path::Path;

use levity_core::ConversationId;
use rusqlite::{Connection, OptionalExtension, params};

use super::rows::{RowError, check_id};
use levity_system::Owner;

/// Returns the holder of a conversation, if that owner is alive.
pub(super) fn holder(
    connection: &Connection,
    id: &ConversationId,
    mine: Option<i64>,
    owners: &Path,
) -> Result<Option<i64>, RowError> {
    let mut select = connection.prepare_cached("SELECT owner FROM holds WHERE id = ?1")?;
    let holder: Option<i64> = select
        .query_row([id.as_str()], |row| row.get(0))
        .optional()?;
    Ok(holder.filter(|holder| Some(*holder) == mine || Owner::is_alive(owners, *holder)))
}

pub(super) fn hold(
    connection: &Connection,
    id: &ConversationId,
    mine: i64,
) -> Result<(), RowError> {
    check_id(id)?;
    let sql = "INSERT OR REPLACE INTO holds (id, owner) VALUES (?1, ?2)";
    connection
        .prepare_cached(sql)?
        .execute(params![id.as_str(), mine])?;
    Ok(())
}

pub(super) fn release(
    connection: &Connection,
    id: &ConversationId,
    mine: i64,
) -> rusqlite::Result<()> {
    let sql = "DELETE FROM holds WHERE id = ?1 AND owner = ?2";
    connection
        .prepare_cached(sql)?
        .execute(params![id.as_str(), mine])
        .map(drop)
}

/// Removes the holds of owners that no longer run.
pub(super) fn remove_dead_owners(connection: &Connection, owners: &Path) -> rusqlite::Result<()> {
    let mut select = connection.prepare("SELECT DISTINCT owner FROM holds")?;
    let all = select
        .query_map([], |row| row.get::<_, i64>(0))?
        .collect::<Result<Vec<_>, _>>()?;
    for dead in all
        .into_iter()
        .filter(|owner| !Owner::is_alive(owners, *owner))
    {
        connection.execute("DELETE FROM holds WHERE owner = ?1", [dead])?;
    }
    Ok(())
}

/// Removes a stale hold on a conversation.
pub(super) fn clear(connection: &Connection, id: &ConversationId) -> rusqlite::Result<bool> {
    let sql = "DELETE FROM holds WHERE id = ?1";
    Ok(connection.prepare_cached(sql)?.execute([id.as_str()])? > 0)
}
