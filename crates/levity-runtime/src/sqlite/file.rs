//! The file: where it is, what is in it, and whether it is one of ours.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use levity_core::{JournalError, JournalErrorKind, World};
use rusqlite::{Connection, ErrorCode, OpenFlags};
use serde::Serialize;

use crate::files::{DEEP, Durability, depth};

/// `lvty`, in the header of every file.
const APPLICATION: i32 = 0x6c76_7479;

/// The version of the format that is written. Older ones are read, newer ones are refused.
const FORMAT: i32 = 1;

/// How long to wait for another process that writes.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long to wait before trying again.
const PAUSE: Duration = Duration::from_millis(2);

/// How many pages the log beside the file may have before they are moved into it. The more there are, the more
/// often a page is written many times and moved once.
const LOG: i64 = 4_000;

/// `docs/journal.md` says what the columns mean. Keys and the numbers of posts are never used twice.
const TABLES: &str = "
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
CREATE TABLE records (run INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, entry TEXT NOT NULL);
CREATE UNIQUE INDEX records_run ON records (run, seq);
CREATE TABLE inbox (id INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL, post TEXT NOT NULL);
CREATE INDEX inbox_run ON inbox (run, id);
CREATE TABLE owners (id INTEGER PRIMARY KEY, expires INTEGER NOT NULL);
";

/// Fails unless every table has its columns.
const COLUMNS: [&str; 4] = [
    "SELECT key, id, opened, updated, records, state, child, paused, wakes, waiting, status, owner, fence FROM runs",
    "SELECT run, seq, at, entry FROM records",
    "SELECT id, run, post FROM inbox",
    "SELECT id, expires FROM owners",
];

/// A file of runs, and how it is used.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    /// Which file that is, whatever else may come to stand there; `None` where nobody can say.
    pub(super) file: Option<(u64, u64)>,
    pub(super) durability: Durability,
    pub(super) lease: Duration,
    pub(super) world: Arc<dyn World>,
}

impl Place {
    /// Where owners hold their locks.
    pub(super) fn owners(&self) -> PathBuf {
        let mut name = OsString::from(&self.path);
        name.push("-owners");
        name.into()
    }

    /// A connection to a file that is known to be ours.
    pub(super) fn connect(&self) -> Result<Connection, JournalError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = self.open(flags)?;
        self.check_place()?;
        Ok(connection)
    }

    /// Whether the file is still where it was. What is written to one that was taken away is lost, and nobody
    /// else would know who drives its runs.
    pub(super) fn check_place(&self) -> Result<(), JournalError> {
        if self.file.is_none() || self.file == identity(&self.path) {
            return Ok(());
        }
        let name = self.name();
        let message = format!("the journal `{name}` was removed or replaced by another file; open it anew");
        Err(JournalError::new(JournalErrorKind::Io, message))
    }

    fn open(&self, flags: OpenFlags) -> Result<Connection, JournalError> {
        let open = || {
            let mut connection = Connection::open_with_flags(&self.path, flags)?;
            connection.busy_handler(Some(try_again))?;
            connection.set_prepared_statement_cache_capacity(32);
            // What a savepoint may have to take back is kept in memory, and in no file of its own.
            connection.pragma_update(None, "temp_store", "memory")?;
            connection.pragma_update(None, "wal_autocheckpoint", LOG)?;
            connection.pragma_update(None, "journal_size_limit", LOG * 4096)?;
            Ok(connection)
        };
        open().map_err(|error| self.failed("opened", error))
    }

    /// Makes the file if there is none, and makes sure that it is one of ours.
    pub(super) fn make(&mut self) -> Result<Connection, JournalError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let found = self.check()?;
        let mut connection = self.open(flags)?;
        // Whoever made it may have been killed half-way, and SQLite has taken that back by now.
        let blank = || marks(&connection).map(|marks| marks == (0, 0));
        if found == Found::Nothing || blank().map_err(|error| self.failed("read", error))? {
            self.create(&mut connection).map_err(|error| self.failed("made", error))?;
        }
        let connection = self.verify(connection)?;
        if cfg!(unix) {
            // By whatever name somebody opens it, the locks of its owners are in one folder.
            self.path = fs::canonicalize(&self.path).map_err(|error| self.failed_io("opened", error))?;
        }
        self.file = identity(&self.path);
        Ok(connection)
    }

    /// What is there, found out in a way that changes nothing, whatever it is.
    fn check(&self) -> Result<Found, JournalError> {
        match fs::metadata(&self.path) {
            Ok(there) if !there.is_file() => {
                let message = format!("the journal `{}` is not a plain file", self.name());
                return Err(JournalError::new(JournalErrorKind::Refused, message));
            }
            Ok(there) if there.len() == 0 => return Ok(Found::Nothing),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
            Err(error) => return Err(self.failed_io("opened", error)),
        }
        match self.peek() {
            Ok(marks) => self.is_ours(marks).map(|()| Found::Ours),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) => {
                Err(self.damaged("it is not an SQLite file").with_source(error))
            }
            Err(error) => Err(self.failed("read", error)),
        }
    }

    /// The program and the format that the header names. It is read by SQLite, since closing a file takes
    /// this process's locks on it away, and immutably, since even a reader may change a file.
    fn peek(&self) -> rusqlite::Result<(i32, i32)> {
        let flags =
            OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(immutable(&self.path), flags)?;
        // Without this, a file that is just growing is taken for a broken one.
        connection.pragma_update(None, "writable_schema", true)?;
        marks(&connection)
    }

    fn is_ours(&self, marks: (i32, i32)) -> Result<(), JournalError> {
        match marks {
            (APPLICATION, FORMAT) => Ok(()),
            (APPLICATION, newer) if newer > FORMAT => {
                let name = self.name();
                let message = format!(
                    "the journal `{name}` has format {newer}, and this version reads up to {FORMAT}; use a newer one"
                );
                Err(JournalError::new(JournalErrorKind::Version, message))
            }
            _ => Err(self.damaged("it is another program's")),
        }
    }

    /// All of it in one transaction, so that a file has either everything or nothing. Only then does it get
    /// a log beside it: what the header says is in the file itself from the start.
    fn create(&self, connection: &mut Connection) -> rusqlite::Result<()> {
        let change = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        let there: i64 = change.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        if there == 0 {
            change.execute_batch(TABLES)?;
            change.pragma_update(None, "application_id", APPLICATION)?;
            change.pragma_update(None, "user_version", FORMAT)?;
        }
        change.commit()
    }

    fn verify(&self, connection: Connection) -> Result<Connection, JournalError> {
        let unread = |error| self.failed("read", error);
        self.is_ours(marks(&connection).map_err(unread)?)?;
        for columns in COLUMNS {
            if let Err(error) = connection.prepare(columns) {
                let missing = error.sqlite_error_code().is_none_or(|code| code == ErrorCode::Unknown);
                let damaged = || self.damaged("a table is not as it should be");
                return Err(if missing { damaged() } else { unread(error) });
            }
        }
        // A file is ours only when it is known to be whole, so this comes last.
        self.use_log(&connection).map_err(|error| self.failed("opened", error))?;
        Ok(connection)
    }

    /// Lets others read while somebody writes. SQLite does not wait for others by itself here.
    fn use_log(&self, connection: &Connection) -> rusqlite::Result<()> {
        let set =
            || connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get::<_, String>(0));
        for _ in 0..PATIENCE.as_millis() / 10 {
            match set() {
                Err(error) if is_busy(&error) => std::thread::sleep(Duration::from_millis(10)),
                other => return other.map(drop),
            }
        }
        set().map(drop)
    }

    pub(super) fn failed(&self, what: &str, error: rusqlite::Error) -> JournalError {
        let broken = [Some(ErrorCode::DatabaseCorrupt), Some(ErrorCode::NotADatabase)];
        if broken.contains(&error.sqlite_error_code()) {
            return self.damaged("SQLite finds flaws in it").with_source(error);
        }
        let message = match is_busy(&error) {
            true => {
                format!("the journal `{}` could not be {what}: another program keeps it busy", self.name())
            }
            false => format!("the journal `{}` could not be {what}", self.name()),
        };
        JournalError::new(JournalErrorKind::Io, message).with_source(error)
    }

    pub(super) fn failed_io(&self, what: &str, error: io::Error) -> JournalError {
        let message = format!("the journal `{}` could not be {what}", self.name());
        JournalError::new(JournalErrorKind::Io, message).with_source(error)
    }

    pub(super) fn damaged(&self, what: &str) -> JournalError {
        let message = format!("the journal `{}` cannot be read and is left as it is: {what}", self.name());
        JournalError::new(JournalErrorKind::Damaged, message)
    }

    fn name(&self) -> String {
        self.path.file_name().unwrap_or(self.path.as_os_str()).to_string_lossy().into_owned()
    }
}

#[derive(PartialEq)]
enum Found {
    Nothing,
    Ours,
}

/// The path from the root: so no name means something special to SQLite, and the program may change its
/// folder.
pub(super) fn whole(path: &Path) -> Result<PathBuf, JournalError> {
    std::path::absolute(path).map_err(|error| {
        let message = format!("`{}` is no path of a journal", path.display());
        JournalError::new(JournalErrorKind::Refused, message).with_source(error)
    })
}

/// What tells a file from others.
#[cfg(unix)]
fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).ok().map(|there| (there.dev(), there.ino()))
}

#[cfg(not(unix))]
fn identity(_: &Path) -> Option<(u64, u64)> {
    None
}

/// The program and the format that a file names.
fn marks(connection: &Connection) -> rusqlite::Result<(i32, i32)> {
    let value = |name| connection.pragma_query_value(None, name, |row| row.get(0));
    Ok((value("application_id")?, value("user_version")?))
}

/// The name by which SQLite opens a file that nobody changes.
fn immutable(path: &Path) -> String {
    let mut name = String::from(if cfg!(windows) { "file:///" } else { "file://" });
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'\\' if cfg!(windows) => name.push('/'),
            b'/' | b'.' | b'-' | b'_' => name.push(char::from(*byte)),
            byte if byte.is_ascii_alphanumeric() => name.push(char::from(*byte)),
            byte => name.push_str(&format!("%{byte:02x}")),
        }
    }
    name.push_str("?immutable=1");
    name
}

/// Whether to try again after so many times. SQLite's own waits become so long that whoever waits misses, for
/// seconds, the moments between the transactions of others who write without a pause.
fn try_again(times: i32) -> bool {
    std::thread::sleep(PAUSE);
    u128::try_from(times).is_ok_and(|times| times * PAUSE.as_millis() < PATIENCE.as_millis())
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// A value as JSON that can be read again.
pub(super) fn json(value: &impl Serialize, what: &str) -> Result<String, JournalError> {
    let refused = |why: &str| JournalError::new(JournalErrorKind::Refused, format!("{what} {why}"));
    let text = serde_json::to_string(value);
    let text = text.map_err(|error| refused("cannot be written as JSON").with_source(error))?;
    if depth(text.as_bytes()) > DEEP {
        return Err(refused(&format!("is nested deeper than {DEEP} levels, and could not be read again")));
    }
    Ok(text)
}
