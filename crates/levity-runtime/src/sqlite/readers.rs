//! Reads on separate connections, which no writer blocks.
//!
//! At most four connections read at the same time, and at most three of them read whole runs. A
//! list is answered from the rows of `runs`; a long one is read in parallel, in ranges of keys.

use std::num::NonZero;
use std::sync::{Arc, Mutex, PoisonError};

use levity_core::{
    EffectId, JournalError, Record, RunId, RunQuery, RunSummary, Snapshot, Status, Timestamp,
    Waiting,
};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, params_from_iter};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::file::{JournalFile, row_checksum};
use super::log::{LastRow, state};

/// The maximum number of concurrent readers, each with a connection; further ones wait.
const MAX_READERS: usize = 4;

/// The maximum number of concurrent readers of whole runs, which take long: a list never waits for
/// all of these.
const MAX_WHOLE_READERS: usize = MAX_READERS - 1;

/// A run from its last snapshot on.
pub(super) struct AfterSnapshot {
    pub(super) snapshot: Snapshot,
    /// The length of the snapshot in bytes.
    pub(super) len: usize,
    pub(super) records: Vec<Record>,
    pub(super) last: LastRow,
    pub(super) summary: RunSummary,
}

/// The size of a table below which threads do not pay off.
const SMALL: i64 = 5_000;

/// Connections are kept for reuse; a reader that finds none opens one.
pub(super) struct Readers {
    place: Arc<JournalFile>,
    idle: Mutex<Vec<Connection>>,
    room: Arc<Semaphore>,
    whole: Arc<Semaphore>,
}

impl Readers {
    pub(super) fn new(place: Arc<JournalFile>) -> Self {
        let (room, whole) = (
            Semaphore::new(MAX_READERS).into(),
            Semaphore::new(MAX_WHOLE_READERS).into(),
        );
        Self {
            place,
            idle: Mutex::new(Vec::new()),
            room,
            whole,
        }
    }

    /// Waits for a read permit. The semaphore is never closed, so there always is one.
    pub(super) async fn room(&self) -> Option<OwnedSemaphorePermit> {
        self.room.clone().acquire_owned().await.ok()
    }

    /// Waits for a permit to read a whole run, and then for [`room`](Self::room).
    pub(super) async fn whole_run_permits(&self) -> [Option<OwnedSemaphorePermit>; 2] {
        let whole = self.whole.clone().acquire_owned().await.ok();
        [whole, self.room().await]
    }

    pub(super) fn return_connection(&self, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_READERS {
            idle.push(connection);
        }
    }

    fn with_connection<T>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, Flaw>,
    ) -> Result<T, JournalError> {
        let idle = self
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        let connection = idle.map_or_else(|| self.place.connect(), Ok)?;
        self.place.check_place()?;
        let seen = work(&connection);
        self.return_connection(connection);
        seen.map_err(|flaw| match flaw {
            Flaw::Sqlite(error) => self.place.failed("read", error),
            Flaw::Run(run, what) => self.place.damaged(&format!("run `{run}`: {what}")),
        })
    }

    /// Returns the records of a run, and its last row; none if there is no such run.
    pub(super) fn records(&self, run: &RunId) -> Result<(Vec<Record>, LastRow), JournalError> {
        self.with_connection(|connection| {
            // Both reads see the same moment.
            let moment = connection.unchecked_transaction()?;
            let mut find = moment.prepare_cached("SELECT key, records FROM runs WHERE id = ?1")?;
            let found = find
                .query_row([run.as_str()], |row| Ok((row.get(0)?, unsigned(row, 1)?)))
                .optional()?;
            found.map_or(Ok(Default::default()), |(key, count)| {
                records(&moment, run, key, 0, count)
            })
        })
    }

    /// Returns the last snapshot of a run and the records behind it, with its row; `None` if there
    /// is no valid one.
    pub(super) fn after_snapshot(
        &self,
        run: &RunId,
    ) -> Result<Option<AfterSnapshot>, JournalError> {
        self.with_connection(|connection| {
            // All reads see the same moment.
            let moment = connection.unchecked_transaction()?;
            let select = "SELECT key, snapshots.seq, snapshots.state, crc FROM snapshots JOIN runs \
                ON run = key WHERE id = ?1";
            let mut find = moment.prepare_cached(select)?;
            let found = find.query_row([run.as_str()], |row| {
                Ok((
                    row.get::<_, i64>(0)?,
                    row.get::<_, i64>(1)?,
                    row.get::<_, String>(2)?,
                    row.get::<_, i64>(3)?,
                ))
            });
            let Some((key, seq, state, crc)) = found.optional()? else {
                return Ok(None);
            };
            let mut before = moment.prepare_cached(
                "SELECT at, entry FROM records WHERE run = ?1 \
                AND seq = ?2",
            )?;
            let before = before.query_row([key, seq.saturating_sub(1)], |row| {
                let (at, entry) = (row.get::<_, i64>(0)?, row.get::<_, String>(1)?);
                Ok(row_checksum(key, seq.saturating_sub(1), at, &entry))
            });
            let Some(before_crc) = before.optional()? else {
                return Ok(None);
            };
            let is_good = row_checksum(key, seq, before_crc, &state) == crc;
            let len = state.len();
            let state = is_good.then(|| serde_json::from_str(&state).ok());
            let mut row = moment.prepare_cached(&format!("{COLUMNS} WHERE id = ?1"))?;
            let summary = row.query_row([run.as_str()], |row| Ok(summary(row)))?;
            let (Some(state), Some(summary), Ok(from)) =
                (state.flatten(), summary, u64::try_from(seq))
            else {
                return Ok(None);
            };
            let (records, mut last) = records(&moment, run, key, from, summary.records)?;
            if records.is_empty() {
                // Then the last record is the one before the snapshot.
                last.crc = before_crc;
            }
            Ok(Some(AfterSnapshot {
                snapshot: Snapshot::new(from, state),
                len,
                records,
                last,
                summary,
            }))
        })
    }

    /// Returns the runs that match a query.
    pub(super) fn list(&self, query: &RunQuery) -> Result<Vec<RunSummary>, JournalError> {
        if query.limit.is_some() {
            return self.part(query, None);
        }
        let parts = if is_scan(query) {
            self.parts()?
        } else {
            Vec::new()
        };
        let mut runs = match parts.split_first() {
            None => self.part(query, None)?,
            Some((first, rest)) => self.list_in_parallel(query, *first, rest)?,
        };
        sort(&mut runs, query.newest_first);
        Ok(runs)
    }

    /// Reads parts of the table concurrently.
    fn list_in_parallel(
        &self,
        query: &RunQuery,
        first: (i64, i64),
        rest: &[(i64, i64)],
    ) -> Result<Vec<RunSummary>, JournalError> {
        std::thread::scope(|scope| {
            let read = |part| move || self.part(query, Some(part));
            let others: Vec<_> = rest.iter().map(|part| scope.spawn(read(*part))).collect();
            let mut runs = self.part(query, Some(first))?;
            for other in others {
                let part = other
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                runs.extend(part?);
            }
            Ok(runs)
        })
    }

    /// Returns the ranges of keys to divide the table into; none if it is small.
    fn parts(&self) -> Result<Vec<(i64, i64)>, JournalError> {
        let (first, last) = self.with_connection(|connection| {
            let ends = "SELECT coalesce(min(key), 0), coalesce(max(key), 0) FROM runs";
            let mut select = connection.prepare_cached(ends)?;
            Ok(select.query_row([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))?)
        })?;
        let cores = std::thread::available_parallelism()
            .map_or(1, NonZero::get)
            .min(MAX_READERS) as i64;
        Ok(ranges(first, last, cores))
    }

    /// Returns the runs of a range of keys, in any order unless there is a limit.
    fn part(
        &self,
        query: &RunQuery,
        keys: Option<(i64, i64)>,
    ) -> Result<Vec<RunSummary>, JournalError> {
        let (sql, values) = select(query, keys);
        self.with_connection(|connection| {
            let mut select = connection.prepare_cached(&sql)?;
            let mut rows = select.query(params_from_iter(values))?;
            let mut runs = Vec::new();
            while let Some(row) = rows.next()? {
                // A row that cannot be read does not hide the others.
                runs.extend(summary(row).filter(|run| query.matches(run)));
            }
            Ok(runs)
        })
    }
}

/// Returns the ranges of keys from `first` to `last` for this many cores; none if there are few
/// keys. Another program may have written any keys.
fn ranges(first: i64, last: i64, cores: i64) -> Vec<(i64, i64)> {
    let length = (last.saturating_sub(first) / cores).saturating_add(1);
    if length < SMALL || cores == 1 {
        return Vec::new();
    }
    let start = |part: i64| first.saturating_add(part.saturating_mul(length));
    let end = |part: i64| {
        if part + 1 == cores {
            last
        } else {
            start(part + 1) - 1
        }
    };
    (0..cores).map(|part| (start(part), end(part))).collect()
}

/// Returns `true` if no index helps to answer the query.
///
/// Only such a query is worth several threads.
fn is_scan(query: &RunQuery) -> bool {
    let RunQuery {
        state,
        below,
        since,
        before,
        due,
        ..
    } = query;
    state.is_none() && below.is_none() && since.is_none() && before.is_none() && due.is_none()
}

/// The name of the file is added where the flaw becomes an error.
enum Flaw {
    Sqlite(rusqlite::Error),
    Run(RunId, String),
}

impl From<rusqlite::Error> for Flaw {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

fn records(
    connection: &Connection,
    run: &RunId,
    key: i64,
    from: u64,
    count: u64,
) -> Result<(Vec<Record>, LastRow), Flaw> {
    let select =
        "SELECT seq, at, entry, crc FROM records WHERE run = ?1 AND seq >= ?2 ORDER BY seq";
    let mut select = connection.prepare_cached(select)?;
    let mut rows = select.query([key, from.cast_signed()])?;
    let (mut records, mut last) = (Vec::new(), LastRow::default());
    while let Some(row) = rows.next()? {
        let next = from + records.len() as u64;
        let flaw = |what: &str| Flaw::Run(run.clone(), format!("record {next} {what}"));
        if row.get_ref(0)? != ValueRef::Integer(next.cast_signed()) {
            return Err(flaw("is missing"));
        }
        let (Ok(at), Ok(entry)) = (row.get::<_, i64>(1), row.get_ref(2)?.as_str()) else {
            return Err(flaw("is damaged"));
        };
        // Rows of older versions have no checksum.
        let crc = row.get_ref(3)?;
        last = LastRow {
            crc: row_checksum(key, next.cast_signed(), at, entry),
            bytes: last.bytes + entry.len(),
        };
        if crc != ValueRef::Null && crc != ValueRef::Integer(last.crc) {
            return Err(flaw(
                "is damaged: its checksum does not match; restore the file from a copy, or \
                    remove the run",
            ));
        }
        let at = u64::try_from(at).unwrap_or_default();
        let entry = serde_json::from_str(entry).map_err(|_| flaw("is damaged"))?;
        records.push(Record::new(next, Timestamp::from_millis(at), entry));
    }
    let found = from + records.len() as u64;
    if found != count {
        let what = format!("it has {found} records but should have {count}");
        return Err(Flaw::Run(run.clone(), what));
    }
    Ok((records, last))
}

/// The columns that a summary is made of.
const COLUMNS: &str =
    "SELECT id, opened, updated, records, child, paused, waiting, status FROM runs";

/// Returns the SQL query, and its parameters.
fn select(query: &RunQuery, keys: Option<(i64, i64)>) -> (String, Vec<Value>) {
    let mut sql = format!("{COLUMNS} WHERE records > 0");
    let mut values: Vec<Value> = Vec::new();
    let time =
        |time: Timestamp| Value::Integer(i64::try_from(time.as_millis()).unwrap_or(i64::MAX));
    if let Some((first, last)) = keys {
        sql.push_str(" AND key BETWEEN ? AND ?");
        values.extend([first.into(), last.into()]);
    }
    if let Some(wanted) = query.state {
        sql.push_str(" AND state = ?");
        values.push(state(wanted).into());
    }
    if query.roots {
        sql.push_str(" AND child = 0");
    }
    if let Some(above) = &query.below {
        sql.push_str(" AND (id = ? OR (id >= ? AND id < ?))");
        values.extend(within(above).map(Value::from));
    }
    for (part, bound) in [
        (" AND opened >= ?", query.since),
        (" AND opened < ?", query.before),
        (" AND wakes <= ?", query.due),
    ] {
        if let Some(bound) = bound {
            sql.push_str(part);
            values.push(time(bound));
        }
    }
    if let Some(limit) = query.limit {
        let order = if query.newest_first { "DESC" } else { "ASC" };
        sql.push_str(&format!(" ORDER BY opened {order}, id {order} LIMIT ?"));
        values.push(Value::Integer(i64::try_from(limit).unwrap_or(i64::MAX)));
    }
    (sql, values)
}

/// Returns the id of a run, and the bounds of its children's ids: they begin with `id.`, and `/` is
/// the character after the dot.
pub(super) fn within(run: &RunId) -> [String; 3] {
    [run.to_string(), format!("{run}."), format!("{run}/")]
}

/// Returns the summary in a row, as far as it can be read: a newer version may have endings that
/// this one does not know.
fn summary(row: &Row<'_>) -> Option<RunSummary> {
    let number = |column| unsigned(row, column).ok();
    let run = RunId::new(row.get_ref(0).ok()?.as_str().ok()?);
    let mut summary = RunSummary::new(run, Timestamp::from_millis(number(1)?));
    summary.updated = Timestamp::from_millis(number(2)?);
    (summary.records, summary.child, summary.paused) =
        (number(3)?, number(4)? != 0, number(5)? != 0);
    if let ValueRef::Text(waiting) = row.get_ref(6).ok()? {
        summary.waiting = match one_waiting(waiting) {
            Some(one) => vec![one],
            None => serde_json::from_slice(waiting).unwrap_or_default(),
        };
    }
    summary.status = match row.get_ref(7).ok()? {
        ValueRef::Text(b"\"complete\"") => Some(Status::Complete),
        ValueRef::Text(status) => serde_json::from_slice(status).ok(),
        _ => None,
    };
    Some(summary)
}

/// Parses the usual case, `[{"effect":1,"until":2}]`, without a JSON parser: a list has many of
/// them.
fn one_waiting(text: &[u8]) -> Option<Waiting> {
    let text = std::str::from_utf8(text).ok()?;
    let inside = text.strip_prefix("[{\"effect\":")?.strip_suffix("}]")?;
    let (effect, until) = match inside.split_once(",\"until\":") {
        Some((effect, until)) => (effect, Some(Timestamp::from_millis(until.parse().ok()?))),
        None => (inside, None),
    };
    Some(Waiting::new(EffectId::new(effect.parse().ok()?), until))
}

/// Returns a number that is never negative, unless another program wrote it.
fn unsigned(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    Ok(u64::try_from(row.get::<_, i64>(column)?).unwrap_or_default())
}

/// Sorts the runs in memory, which is faster than reading them in order.
fn sort(runs: &mut [RunSummary], newest_first: bool) {
    runs.sort_by(|a, b| (a.opened, &a.run).cmp(&(b.opened, &b.run)));
    if newest_first {
        runs.reverse();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use levity_core::{Journal as _, RunId, RunQuery};

    use super::super::SqliteJournal;
    use super::*;

    #[test]
    fn ranges_of_extreme_keys_cover_all_keys() {
        for (first, last) in [(0, i64::MAX), (i64::MIN, i64::MAX), (i64::MIN, 0)] {
            assert_eq!(ranges(first, last, 1), []);
            let ranges = ranges(first, last, 4);
            assert_eq!((ranges[0].0, ranges[3].1), (first, last));
            assert!(ranges.windows(2).all(|two| two[0].1 + 1 == two[1].0));
        }
        assert_eq!(ranges(i64::MAX, i64::MAX, 4), []);
    }

    #[tokio::test]
    async fn list_does_not_wait_for_whole_run_reads() {
        let folder =
            std::env::temp_dir().join(format!("levity-whole-reads-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let journal = SqliteJournal::new(folder.join("runs.db")).unwrap();
        let mut held = Vec::new();
        for _ in 0..MAX_WHOLE_READERS {
            held.push(journal.store.readers.whole_run_permits().await);
        }
        let run = RunId::new("r");
        let mut read = pin!(journal.read(&run));
        assert!(
            read.as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_pending()
        );
        assert!(journal.list(&RunQuery::new()).await.unwrap().is_empty());
        drop(held);
        assert!(read.await.unwrap().is_empty());
        let _ = std::fs::remove_dir_all(folder);
    }
}
