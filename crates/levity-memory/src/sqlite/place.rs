//! The file: where it is, what is in it, and whether it is one of ours.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use levity_core::{MemoryError, MemoryErrorKind};
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use crate::durability::Durability;

/// `lvmy`, in the header of every file.
const APPLICATION: i32 = 0x6c76_6d79;

/// The version of the format that is written. Older ones are read, newer ones are refused.
const FORMAT: i32 = 1;

/// How long to wait for another process that writes.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long to wait before trying again.
const PAUSE: Duration = Duration::from_millis(1);

/// How many pages the log beside the file may have before they are moved into it.
const LOG: i64 = 2_000;

/// `docs/memory.md` says what the columns mean. Keys are never used twice.
const TABLES: &str = "
CREATE TABLE conversations (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    changed INTEGER NOT NULL,
    first INTEGER NOT NULL DEFAULT 0,
    next INTEGER NOT NULL DEFAULT 0,
    words_from INTEGER NOT NULL DEFAULT 0,
    words_to INTEGER NOT NULL DEFAULT 0,
    upto INTEGER,
    summary TEXT
);
CREATE INDEX conversations_changed ON conversations (changed, id);
CREATE TABLE messages (place INTEGER PRIMARY KEY, message TEXT NOT NULL);
CREATE TABLE holds (id TEXT PRIMARY KEY, owner INTEGER NOT NULL) WITHOUT ROWID;
CREATE VIRTUAL TABLE words USING fts5 (text, content = '', tokenize = 'unicode61 remove_diacritics 2');
INSERT INTO words (words, rank) VALUES ('secure-delete', 1);
";

/// Fails unless every table has its columns.
const COLUMNS: [&str; 4] = [
    "SELECT key, id, changed, first, next, words_from, words_to, upto, summary FROM conversations",
    "SELECT place, message FROM messages",
    "SELECT id, owner FROM holds",
    "SELECT rowid FROM words WHERE words MATCH 'a'",
];

/// A file of conversations, and how it is used.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    /// Which file that is, whatever else may come to stand there; `None` where nobody can say.
    pub(super) file: Option<(u64, u64)>,
    pub(super) durability: Durability,
}

impl Place {
    /// Makes the file if there is none, and makes sure that it is one of ours.
    pub(super) fn make(path: &Path) -> Result<(Self, Connection), MemoryError> {
        let mut place = Self { path: whole(path)?, file: None, durability: Durability::default() };
        let found = place.check()?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = place.open(flags)?;
        // Whoever made it may have been killed half-way, and SQLite has taken that back by now.
        let blank = || marks(&connection).map(|marks| marks == (0, 0));
        if found == Found::Nothing || blank().map_err(|error| place.failed("read", error))? {
            create(&mut connection).map_err(|error| place.failed("made", error))?;
        }
        place.verify(&connection)?;
        if cfg!(unix) {
            // By whatever name somebody opens it, the locks of its owners are in one folder.
            place.path = fs::canonicalize(&place.path).map_err(|error| place.failed_io("opened", error))?;
        }
        place.file = identity(&place.path);
        Ok((place, connection))
    }

    /// Where owners hold their locks.
    pub(super) fn owners(&self) -> PathBuf {
        let mut name = OsString::from(&self.path);
        name.push("-owners");
        name.into()
    }

    /// Whether there is anything in the log beside the file.
    pub(super) fn has_log(&self) -> bool {
        let mut name = OsString::from(&self.path);
        name.push("-wal");
        fs::metadata(name).is_ok_and(|log| log.len() > 0)
    }

    /// A connection to a file that is known to be ours.
    pub(super) fn connect(&self) -> Result<Connection, MemoryError> {
        let connection = self.open(OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        self.check_place()?;
        Ok(connection)
    }

    /// Whether the file is still where it was: what is written to one that was taken away is lost.
    pub(super) fn check_place(&self) -> Result<(), MemoryError> {
        if self.file.is_none() || self.file == identity(&self.path) {
            return Ok(());
        }
        let name = self.name();
        let message = format!("the memory `{name}` was removed or replaced by another file; open it anew");
        Err(MemoryError::new(MemoryErrorKind::Io, message))
    }

    fn open(&self, flags: OpenFlags) -> Result<Connection, MemoryError> {
        let open = || {
            let mut connection = Connection::open_with_flags(&self.path, flags)?;
            connection.busy_handler(Some(try_again))?;
            connection.set_prepared_statement_cache_capacity(32);
            connection.pragma_update(None, "temp_store", "memory")?;
            connection.pragma_update(None, "wal_autocheckpoint", LOG)?;
            connection.pragma_update(None, "journal_size_limit", LOG * 4096)?;
            // What is removed is overwritten, not only forgotten.
            connection.pragma_update(None, "secure_delete", true)?;
            // A file from elsewhere must not make us run what its tables say.
            connection.pragma_update(None, "trusted_schema", false)?;
            Ok(connection)
        };
        open().map_err(|error| self.failed("opened", error))
    }

    /// What is there, found out in a way that changes nothing, whatever it is.
    fn check(&self) -> Result<Found, MemoryError> {
        match fs::metadata(&self.path) {
            Ok(there) if !there.is_file() => {
                let message = format!("the memory `{}` is not a plain file", self.name());
                return Err(MemoryError::new(MemoryErrorKind::Refused, message));
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

    fn is_ours(&self, marks: (i32, i32)) -> Result<(), MemoryError> {
        match marks {
            (APPLICATION, FORMAT) => Ok(()),
            (APPLICATION, newer) if newer > FORMAT => {
                let name = self.name();
                let message = format!(
                    "the memory `{name}` has format {newer}, and this version reads up to {FORMAT}; use a newer one"
                );
                Err(MemoryError::new(MemoryErrorKind::Version, message))
            }
            _ => Err(self.damaged("it is another program's")),
        }
    }

    fn verify(&self, connection: &Connection) -> Result<(), MemoryError> {
        let unread = |error| self.failed("read", error);
        self.is_ours(marks(connection).map_err(unread)?)?;
        for columns in COLUMNS {
            if let Err(error) = connection.prepare(columns) {
                let missing = error.sqlite_error_code().is_none_or(|code| code == ErrorCode::Unknown);
                let damaged = || self.damaged("a table is not as it should be");
                return Err(if missing { damaged() } else { unread(error) });
            }
        }
        // A file is ours only when it is known to be whole, so this comes last.
        use_log(connection).map_err(|error| self.failed("opened", error))
    }

    pub(super) fn failed(&self, what: &str, error: rusqlite::Error) -> MemoryError {
        let name = self.name();
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                self.damaged("SQLite finds flaws in it").with_source(error)
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                let message =
                    format!("the memory `{name}` could not be {what}: another program keeps it busy");
                MemoryError::new(MemoryErrorKind::Io, message).with_source(error)
            }
            Some(ErrorCode::TooBig) => {
                let message = format!("a message or summary is too long for the memory `{name}`");
                MemoryError::new(MemoryErrorKind::Refused, message).with_source(error)
            }
            _ => {
                let message = format!("the memory `{name}` could not be {what}");
                MemoryError::new(MemoryErrorKind::Io, message).with_source(error)
            }
        }
    }

    pub(super) fn failed_io(&self, what: &str, error: io::Error) -> MemoryError {
        let message = format!("the memory `{}` could not be {what}", self.name());
        MemoryError::new(MemoryErrorKind::Io, message).with_source(error)
    }

    fn damaged(&self, what: &str) -> MemoryError {
        let message = format!("the memory `{}` cannot be read and is left as it is: {what}", self.name());
        MemoryError::new(MemoryErrorKind::Damaged, message)
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

/// The path from the root: so no name means something special to SQLite, and the program may change its folder.
fn whole(path: &Path) -> Result<PathBuf, MemoryError> {
    std::path::absolute(path).map_err(|error| {
        let message = format!("`{}` is no path of a memory", path.display());
        MemoryError::new(MemoryErrorKind::Refused, message).with_source(error)
    })
}

/// All of it in one transaction, so that a file has either everything or nothing. Only then does it get a log
/// beside it: what the header says is in the file itself from the start.
fn create(connection: &mut Connection) -> rusqlite::Result<()> {
    let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let there: i64 = change.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if there == 0 {
        change.execute_batch(TABLES)?;
        change.pragma_update(None, "application_id", APPLICATION)?;
        change.pragma_update(None, "user_version", FORMAT)?;
    }
    change.commit()
}

/// Lets others read while somebody writes. SQLite does not wait for others by itself here.
fn use_log(connection: &Connection) -> rusqlite::Result<()> {
    let set =
        || connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get::<_, String>(0));
    for _ in 0..PATIENCE.as_millis() / 10 {
        match set() {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
                std::thread::sleep(Duration::from_millis(10));
            }
            other => return other.map(drop),
        }
    }
    set().map(drop)
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
pub(super) fn try_again(times: i32) -> bool {
    std::thread::sleep(PAUSE);
    u128::try_from(times).is_ok_and(|times| times * PAUSE.as_millis() < PATIENCE.as_millis())
}
