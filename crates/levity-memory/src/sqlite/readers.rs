//! Reads, concurrent with the writer.
//!
//! Each read sees one snapshot of the file, however many queries it makes.

use std::sync::{Arc, Mutex, PoisonError};

use levity_core::{
    ConversationId, ConversationInfo, ConversationQuery, LoadedConversation, MemoryError, Message,
    Summary, Timestamp,
};
use rusqlite::types::Value;
use rusqlite::{Connection, Row, params, params_from_iter};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::database::Database;
use super::rows::{self, RowError, find, place, position, to_signed, to_unsigned};
use crate::query_words::QueryWords;

/// The maximum number of concurrent readers, each with a connection; others wait.
const MAX_READERS: usize = 4;

pub(super) struct Readers {
    database: Arc<Database>,
    idle: Mutex<Vec<Connection>>,
    permits: Arc<Semaphore>,
}

type PositionedMessages = Vec<(u64, Arc<Message>)>;

impl Readers {
    pub(super) fn new(database: Arc<Database>) -> Self {
        Self {
            database,
            idle: Mutex::new(Vec::new()),
            permits: Arc::new(Semaphore::new(MAX_READERS)),
        }
    }

    /// Waits for a free reader. No code closes the semaphore, so a permit always arrives.
    pub(super) async fn acquire_permit(&self) -> Option<OwnedSemaphorePermit> {
        self.permits.clone().acquire_owned().await.ok()
    }

    pub(super) fn return_connection(&self, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_READERS {
            idle.push(connection);
        }
    }

    /// Reads one snapshot of the file.
    fn read_snapshot<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, RowError>,
    ) -> Result<T, MemoryError> {
        let idle = self
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        let connection = idle.map_or_else(|| self.database.connect(), Ok)?;
        self.database.check_place()?;
        let failed = |error| self.database.failed("read", error);
        let snapshot = connection.unchecked_transaction().map_err(failed)?;
        let result = read(&snapshot);
        // The transaction has changed nothing.
        snapshot.finish().map_err(failed)?;
        self.return_connection(connection);
        result.map_err(|fault| match fault {
            RowError::Rejected(error) => error,
            RowError::Sqlite(error) => failed(error),
        })
    }

    pub(super) fn load(
        &self,
        id: &ConversationId,
        limit: usize,
    ) -> Result<LoadedConversation, MemoryError> {
        self.read_snapshot(|snapshot| {
            let Some(row) = find(snapshot, id)? else {
                return Ok(LoadedConversation::default());
            };
            let unsummarised = row.first.max(row.upto.unwrap_or_default()).min(row.next);
            let from = unsummarised.max(row.next.saturating_sub(limit as u64));
            let messages = rows::messages(snapshot, id, row.key, (from, row.next))?;
            let summary = row
                .upto
                .map(|upto| summary(snapshot, row.key, upto))
                .transpose()?;
            Ok(LoadedConversation::new(summary, messages, row.next)
                .with_first(row.first)
                .with_changed(Timestamp::from_millis(row.changed)))
        })
    }

    pub(super) fn read(
        &self,
        id: &ConversationId,
        from: u64,
        limit: usize,
    ) -> Result<PositionedMessages, MemoryError> {
        self.read_snapshot(|snapshot| {
            let Some(row) = find(snapshot, id)? else {
                return Ok(Vec::new());
            };
            let from = from.clamp(row.first, row.next);
            let to = row.next.min(from.saturating_add(limit as u64));
            Ok((from..)
                .zip(rows::messages(snapshot, id, row.key, (from, to))?)
                .collect())
        })
    }

    /// Returns `true` if all messages of a conversation are indexed.
    pub(super) fn is_indexed(&self, id: &ConversationId) -> Result<bool, MemoryError> {
        self.read_snapshot(|snapshot| Ok(find(snapshot, id)?.is_none_or(|row| row.is_indexed())))
    }

    /// Returns `true` if a removal would probably find the conversation old enough and not held. If
    /// not, its messages should stay indexed.
    pub(super) fn is_removable(
        &self,
        id: &ConversationId,
        unchanged_since: Option<Timestamp>,
    ) -> Result<bool, MemoryError> {
        self.read_snapshot(|snapshot| {
            let Some(row) = find(snapshot, id)? else {
                return Ok(false);
            };
            let held = snapshot
                .prepare_cached("SELECT 1 FROM holds WHERE id = ?1")?
                .exists([id.as_str()])?;
            Ok(!held && row.is_old(unchanged_since))
        })
    }

    pub(super) fn search(
        &self,
        id: &ConversationId,
        query: &str,
        limit: usize,
    ) -> Result<PositionedMessages, MemoryError> {
        let Some(query) = expression(query) else {
            return Ok(Vec::new());
        };
        self.read_snapshot(|snapshot| {
            let Some(row) = find(snapshot, id)? else {
                return Ok(Vec::new());
            };
            let sql = "SELECT rowid FROM words WHERE words MATCH ?1 AND rowid >= ?2 AND rowid < ?3 \
                       ORDER BY rank, rowid DESC LIMIT ?4";
            let mut select = snapshot.prepare_cached(sql)?;
            let (start, end) = (place(row.key, row.first), place(row.key, row.next));
            let found = select
                .query_map(params![query, start, end, to_signed(limit as u64)], |row| {
                    row.get(0)
                })?;
            let places = found.collect::<Result<Vec<i64>, _>>()?;
            places
                .into_iter()
                .map(|place| message_at(snapshot, id, row.key, position(place)))
                .collect()
        })
    }

    pub(super) fn list(
        &self,
        query: &ConversationQuery,
    ) -> Result<Vec<ConversationInfo>, MemoryError> {
        let (sql, values) = select(query);
        self.read_snapshot(|snapshot| {
            let mut select = snapshot.prepare_cached(&sql)?;
            let infos = select.query_map(params_from_iter(values), info)?;
            Ok(infos.collect::<Result<Vec<_>, _>>()?)
        })
    }
}

fn summary(snapshot: &Connection, key: i64, upto: u64) -> rusqlite::Result<Summary> {
    let mut select = snapshot.prepare_cached("SELECT summary FROM conversations WHERE key = ?1")?;
    let text: Option<String> = select.query_row([key], |row| row.get(0))?;
    Ok(Summary::new(text.unwrap_or_default(), upto))
}

fn message_at(
    snapshot: &Connection,
    id: &ConversationId,
    key: i64,
    at: u64,
) -> Result<(u64, Arc<Message>), RowError> {
    let found = rows::messages(snapshot, id, key, (at, at + 1))?;
    let missing = || MemoryError::damaged(id, &format!("message {at} is missing"));
    Ok((at, found.into_iter().next().ok_or_else(missing)?))
}

/// Returns an FTS query for any of the words. They contain neither quotes nor other syntax.
///
/// An empty query finds nothing, and needs no database.
fn expression(query: &str) -> Option<String> {
    let words: Vec<_> = QueryWords::of(query)
        .iter()
        .map(|word| format!("\"{word}\""))
        .collect();
    (!words.is_empty()).then(|| words.join(" OR "))
}

/// Returns the SQL of a list query and its values.
fn select(query: &ConversationQuery) -> (String, Vec<Value>) {
    let mut sql = String::from("SELECT id, changed, first, next FROM conversations WHERE true");
    let mut values: Vec<Value> = Vec::new();
    if let Some(snapshot) = query.unchanged_since {
        sql.push_str(" AND changed < ?");
        values.push(to_signed(snapshot.as_millis()).into());
    }
    if let Some((changed, id)) = &query.after {
        sql.push_str(" AND (changed, id) > (?, ?)");
        values.extend([to_signed(changed.as_millis()).into(), id.to_string().into()]);
    }
    sql.push_str(" ORDER BY changed, id LIMIT ?");
    values.push(to_signed(query.limit.unwrap_or(usize::MAX) as u64).into());
    (sql, values)
}

fn info(row: &Row<'_>) -> rusqlite::Result<ConversationInfo> {
    let number = |column| row.get(column).map(to_unsigned);
    let (id, changed): (String, _) = (row.get(0)?, Timestamp::from_millis(number(1)?));
    Ok(ConversationInfo::new(
        id.into(),
        changed,
        number(2)?,
        number(3)?,
    ))
}
