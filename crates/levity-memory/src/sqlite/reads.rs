//! Reading, beside whoever writes.

use std::sync::{Arc, Mutex, PoisonError};

use levity_core::{
    ConversationId, ConversationInfo, ConversationQuery, MemoryError, Message, Remembered, Summary,
    Timestamp,
};
use rusqlite::types::Value;
use rusqlite::{Connection, Row, params, params_from_iter};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::place::Place;
use super::rows::{self, Fault, find, natural, place, position, signed};
use crate::words::Words;

/// How many may look at the same time, each with a connection; others wait until they may.
const MOST: usize = 4;

pub(super) struct Readers {
    place: Arc<Place>,
    idle: Mutex<Vec<Connection>>,
    room: Arc<Semaphore>,
}

type Placed = Vec<(u64, Arc<Message>)>;

impl Readers {
    pub(super) fn new(place: Arc<Place>) -> Self {
        Self {
            place,
            idle: Mutex::new(Vec::new()),
            room: Arc::new(Semaphore::new(MOST)),
        }
    }

    /// Waits until one more may look. Nobody ever closes the door, so there always is an answer.
    pub(super) async fn room(&self) -> Option<OwnedSemaphorePermit> {
        self.room.clone().acquire_owned().await.ok()
    }

    pub(super) fn keep(&self, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MOST {
            idle.push(connection);
        }
    }

    /// Looks at one moment of the file.
    fn look<T>(
        &self,
        look: impl FnOnce(&Connection) -> Result<T, Fault>,
    ) -> Result<T, MemoryError> {
        let idle = self
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        let connection = idle.map_or_else(|| self.place.connect(), Ok)?;
        self.place.check_place()?;
        let failed = |error| self.place.failed("read", error);
        let moment = connection.unchecked_transaction().map_err(failed)?;
        let seen = look(&moment);
        // It has changed nothing.
        moment.finish().map_err(failed)?;
        self.keep(connection);
        seen.map_err(|fault| match fault {
            Fault::Own(error) => error,
            Fault::Sqlite(error) => failed(error),
        })
    }

    pub(super) fn load(
        &self,
        id: &ConversationId,
        limit: usize,
    ) -> Result<Remembered, MemoryError> {
        self.look(|moment| {
            let Some(row) = find(moment, id)? else {
                return Ok(Remembered::default());
            };
            let fresh = row.first.max(row.upto.unwrap_or_default()).min(row.next);
            let from = fresh.max(row.next.saturating_sub(limit as u64));
            let messages = rows::messages(moment, id, row.key, (from, row.next))?;
            let summary = row
                .upto
                .map(|upto| summary(moment, row.key, upto))
                .transpose()?;
            Ok(Remembered::new(summary, messages, row.next)
                .with_first(row.first)
                .with_changed(Timestamp::from_millis(row.changed)))
        })
    }

    pub(super) fn read(
        &self,
        id: &ConversationId,
        from: u64,
        limit: usize,
    ) -> Result<Placed, MemoryError> {
        self.look(|moment| {
            let Some(row) = find(moment, id)? else {
                return Ok(Vec::new());
            };
            let from = from.clamp(row.first, row.next);
            let to = row.next.min(from.saturating_add(limit as u64));
            Ok((from..)
                .zip(rows::messages(moment, id, row.key, (from, to))?)
                .collect())
        })
    }

    /// Whether the search knows all of a conversation.
    pub(super) fn is_indexed(&self, id: &ConversationId) -> Result<bool, MemoryError> {
        self.look(|moment| Ok(find(moment, id)?.is_none_or(|row| row.is_indexed())))
    }

    /// Whether a removal would find it old enough and held by nobody, as far as can be seen from
    /// here. If not, the search had better go on knowing it.
    pub(super) fn may_go(
        &self,
        id: &ConversationId,
        unchanged_since: Option<Timestamp>,
    ) -> Result<bool, MemoryError> {
        self.look(|moment| {
            let Some(row) = find(moment, id)? else {
                return Ok(false);
            };
            let held = moment
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
    ) -> Result<Placed, MemoryError> {
        let Some(query) = expression(query) else {
            return Ok(Vec::new());
        };
        self.look(|moment| {
            let Some(row) = find(moment, id)? else {
                return Ok(Vec::new());
            };
            let sql = "SELECT rowid FROM words WHERE words MATCH ?1 AND rowid >= ?2 AND rowid < ?3 \
                       ORDER BY rank, rowid DESC LIMIT ?4";
            let mut select = moment.prepare_cached(sql)?;
            let (start, end) = (place(row.key, row.first), place(row.key, row.next));
            let found = select
                .query_map(params![query, start, end, signed(limit as u64)], |row| {
                    row.get(0)
                })?;
            let places = found.collect::<Result<Vec<i64>, _>>()?;
            places
                .into_iter()
                .map(|place| message_at(moment, id, row.key, position(place)))
                .collect()
        })
    }

    pub(super) fn list(
        &self,
        query: &ConversationQuery,
    ) -> Result<Vec<ConversationInfo>, MemoryError> {
        let (sql, values) = select(query);
        self.look(|moment| {
            let mut select = moment.prepare_cached(&sql)?;
            let infos = select.query_map(params_from_iter(values), info)?;
            Ok(infos.collect::<Result<Vec<_>, _>>()?)
        })
    }
}

fn summary(moment: &Connection, key: i64, upto: u64) -> rusqlite::Result<Summary> {
    let mut select = moment.prepare_cached("SELECT summary FROM conversations WHERE key = ?1")?;
    let text: Option<String> = select.query_row([key], |row| row.get(0))?;
    Ok(Summary::new(text.unwrap_or_default(), upto))
}

fn message_at(
    moment: &Connection,
    id: &ConversationId,
    key: i64,
    at: u64,
) -> Result<(u64, Arc<Message>), Fault> {
    let found = rows::messages(moment, id, key, (at, at + 1))?;
    let missing = || MemoryError::damaged(id, &format!("message {at} is not there"));
    Ok((at, found.into_iter().next().ok_or_else(missing)?))
}

/// What SQLite is asked for: any of the words. They have neither quotes nor anything else that
/// means something.
fn expression(query: &str) -> Option<String> {
    let words: Vec<_> = Words::of(query)
        .iter()
        .map(|word| format!("\"{word}\""))
        .collect();
    (!words.is_empty()).then(|| words.join(" OR "))
}

/// The question, and the values that belong in it.
fn select(query: &ConversationQuery) -> (String, Vec<Value>) {
    let mut sql = String::from("SELECT id, changed, first, next FROM conversations WHERE true");
    let mut values: Vec<Value> = Vec::new();
    if let Some(moment) = query.unchanged_since {
        sql.push_str(" AND changed < ?");
        values.push(signed(moment.as_millis()).into());
    }
    if let Some((changed, id)) = &query.after {
        sql.push_str(" AND (changed, id) > (?, ?)");
        values.extend([signed(changed.as_millis()).into(), id.to_string().into()]);
    }
    sql.push_str(" ORDER BY changed, id LIMIT ?");
    values.push(signed(query.limit.unwrap_or(usize::MAX) as u64).into());
    (sql, values)
}

fn info(row: &Row<'_>) -> rusqlite::Result<ConversationInfo> {
    let number = |column| row.get(column).map(natural);
    let (id, changed): (String, _) = (row.get(0)?, Timestamp::from_millis(number(1)?));
    Ok(ConversationInfo::new(
        id.into(),
        changed,
        number(2)?,
        number(3)?,
    ))
}
