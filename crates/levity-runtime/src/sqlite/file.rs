//! The SQLite file: its tables and its settings.
//!
//! The tables change only by adding: a file of an older version gets the missing column and table
//! when it is opened. A file with other tables is not a journal and is rejected.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use levity_core::{JournalError, JournalErrorKind, World};
use levity_sqlite::{Error, ErrorKind, Format, SharedFile};
use rusqlite::Connection;
use serde::Serialize;

use crate::Durability;
use crate::checksum::checksum;
use crate::files::{DEEP, depth};

/// `docs/journal.md` describes the columns. Keys and the numbers of posts are never reused.
macro_rules! tables {
    ($checksum:literal) => {
        concat!(
            "
CREATE TABLE runs (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    opened INTEGER NOT NULL DEFAULT 0,
    updated INTEGER NOT NULL DEFAULT 0,
    records INTEGER NOT NULL DEFAULT 0,
    state INTEGER NOT NULL DEFAULT 0,
    child INTEGER NOT NULL DEFAULT 0,
    paused INTEGER NOT NULL DEFAULT 0,
    wakes INTEGER,
    waiting TEXT,
    status TEXT,
    owner INTEGER,
    fence INTEGER NOT NULL DEFAULT 1
);
CREATE INDEX runs_opened ON runs (opened);
CREATE INDEX runs_state ON runs (state, opened);
CREATE INDEX runs_wakes ON runs (wakes) WHERE wakes IS NOT NULL;
CREATE TABLE records (run INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, entry TEXT \
NOT NULL",
            $checksum,
            ");
CREATE UNIQUE INDEX records_run ON records (run, seq);
CREATE TABLE inbox (id INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL, post TEXT NOT NULL);
CREATE INDEX inbox_run ON inbox (run, id);
CREATE TABLE owners (id INTEGER PRIMARY KEY, expires INTEGER NOT NULL);
"
        )
    };
}

/// The last snapshot of each run that has one.
macro_rules! snapshots {
    () => {
        "CREATE TABLE snapshots (run INTEGER PRIMARY KEY, seq INTEGER NOT NULL, state TEXT NOT \
            NULL, crc INTEGER NOT NULL);"
    };
}

const TABLES: &str = concat!(tables!(", crc INTEGER"), snapshots!());

/// The tables of earlier files, which [`migrate`] changes.
const WITHOUT_SNAPSHOTS: &str = tables!(", crc INTEGER");
const WITHOUT_CHECKSUMS: &str = tables!("");

static FORMAT: Format = Format {
    what: "journal",
    // `lvty`
    application: 0x6c76_7479,
    version: 1,
    tables: TABLES,
    earlier: &[WITHOUT_SNAPSHOTS, WITHOUT_CHECKSUMS],
    columns: &[
        "SELECT key, id, opened, updated, records, state, child, paused, wakes, waiting, status, \
            owner, fence FROM runs",
        "SELECT run, seq, at, entry FROM records",
        "SELECT id, run, post FROM inbox",
        "SELECT id, expires FROM owners",
    ],
    log_pages: 4_000,
    overwrites: false,
};

/// A file of runs, with its settings.
#[derive(Clone)]
pub(super) struct JournalFile {
    pub(super) file: SharedFile,
    pub(super) durability: Durability,
    /// The minimum number of bytes between two snapshots.
    pub(super) snapshots: usize,
    pub(super) lease: Duration,
    pub(super) world: Arc<dyn World>,
}

impl JournalFile {
    /// Creates the file if there is none, and checks that it is a journal.
    pub(super) fn make(
        path: &Path,
        lease: Duration,
        world: Arc<dyn World>,
    ) -> Result<(Self, Connection), JournalError> {
        let (file, connection) =
            SharedFile::open_or_create(path, &FORMAT).map_err(to_journal_error)?;
        migrate(&connection).map_err(|error| to_journal_error(file.failed("opened", error)))?;
        Ok((
            Self {
                file,
                durability: Durability::default(),
                snapshots: 1 << 20,
                lease,
                world,
            },
            connection,
        ))
    }

    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Returns the folder in which owners hold their locks.
    pub(super) fn owners(&self) -> PathBuf {
        self.file.beside("-owners")
    }

    /// Opens a connection to a file that is known to be a journal.
    pub(super) fn connect(&self) -> Result<Connection, JournalError> {
        self.file.connect().map_err(to_journal_error)
    }

    /// Checks that the file is still in its place. Writes to a removed file are lost, and no other
    /// process would know who drives its runs.
    pub(super) fn check_place(&self) -> Result<(), JournalError> {
        self.file.check_place().map_err(to_journal_error)
    }

    pub(super) fn failed(&self, what: &str, error: rusqlite::Error) -> JournalError {
        to_journal_error(self.file.failed(what, error))
    }

    pub(super) fn failed_io(&self, what: &str, error: io::Error) -> JournalError {
        to_journal_error(self.file.failed_io(what, error))
    }

    pub(super) fn damaged(&self, what: &str) -> JournalError {
        to_journal_error(self.file.damaged(what))
    }
}

/// Adds checksums and snapshots to a file of a version that had none.
fn migrate(connection: &Connection) -> rusqlite::Result<()> {
    let columns = |table: &str| {
        let count = "SELECT count(*) FROM pragma_table_info(?1) WHERE name = 'crc'";
        connection.query_row(count, [table], |row| row.get::<_, i64>(0))
    };
    let lacks = |table: &str| columns(table).map(|count| count == 0);
    if !lacks("records")? && !lacks("snapshots")? {
        return Ok(());
    }
    connection.execute_batch("BEGIN IMMEDIATE")?;
    // Another process may have been faster.
    let add = |table: &str, sql: &str| match lacks(table)? {
        true => connection.execute_batch(sql),
        false => Ok(()),
    };
    let added = add("records", "ALTER TABLE records ADD COLUMN crc INTEGER")
        .and_then(|()| add("snapshots", snapshots!()));
    connection.execute_batch(if added.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
    added
}

/// Returns the checksum of a row of `records`: of its columns in their order, with commas between.
///
/// A row that was copied to another run or another position does not match its checksum.
pub(super) fn row_checksum(run: i64, seq: i64, at: i64, entry: &str) -> i64 {
    i64::from(checksum(&[
        format!("{run},{seq},{at},").as_bytes(),
        entry.as_bytes(),
    ]))
}

/// Converts an error of SQLite to a journal error.
fn to_journal_error(error: Error) -> JournalError {
    let kind = match error.kind() {
        ErrorKind::Refused | ErrorKind::TooBig => JournalErrorKind::Refused,
        ErrorKind::Damaged => JournalErrorKind::Damaged,
        ErrorKind::Version => JournalErrorKind::Version,
        _ => JournalErrorKind::Io,
    };
    let converted = JournalError::new(kind, error.to_string());
    match error.into_source() {
        Some(source) => converted.with_source(source),
        None => converted,
    }
}

/// Returns a value as JSON that can be read again.
pub(super) fn json(value: &impl Serialize, what: &str) -> Result<String, JournalError> {
    let refused =
        |problem: &str| JournalError::new(JournalErrorKind::Refused, format!("{what} {problem}"));
    let text = serde_json::to_string(value);
    let text = text.map_err(|error| refused("cannot be written as JSON").with_source(error))?;
    if depth(text.as_bytes()) > DEEP {
        return Err(refused(&format!(
            "is nested deeper than the limit of {DEEP} levels"
        )));
    }
    Ok(text)
}
