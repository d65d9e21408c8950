//! What is in a file, and whether it is one of ours.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use levity_core::{MemoryError, MemoryErrorKind};
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use super::{PATIENCE, damaged, failed, failed_io, is_busy, name, try_again};

/// `lvtr`, in the header of every file.
const APPLICATION: i32 = 0x6c76_7472;

/// The version of the format that is written. Older ones are read, newer ones are refused.
const FORMAT: i32 = 1;

/// `docs/recall.md` says what the columns mean. Ids of facts are never used twice.
///
/// The index of words has no copy of the texts, so what is taken out of it must be named again word for word. It also
/// has the scope of each fact as a word, so that a search does not go through those of others.
const TABLES: &str = "
CREATE TABLE scopes (
    key INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    facts INTEGER NOT NULL DEFAULT 0,
    UNIQUE (kind, id)
);
CREATE TABLE facts (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    scope INTEGER NOT NULL,
    text TEXT NOT NULL,
    digest INTEGER NOT NULL,
    source TEXT NOT NULL,
    conversation TEXT,
    date INTEGER NOT NULL,
    embedder INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX facts_scope ON facts (scope);
CREATE INDEX facts_digest ON facts (scope, digest);
CREATE INDEX facts_embedder ON facts (scope, embedder);
CREATE UNIQUE INDEX facts_conversation ON facts (scope, conversation) WHERE conversation IS NOT NULL;
CREATE TABLE embedders (key INTEGER PRIMARY KEY, card TEXT NOT NULL UNIQUE);
CREATE TABLE vectors (
    place INTEGER PRIMARY KEY,
    embedder INTEGER NOT NULL,
    scale REAL NOT NULL,
    data BLOB NOT NULL
);
CREATE VIRTUAL TABLE words USING fts5(
    scope, text, content = '', tokenize = 'porter unicode61 remove_diacritics 2'
);
INSERT INTO words (words, rank) VALUES ('secure-delete', 1);
";

/// Fails unless every table has its columns.
const COLUMNS: [&str; 5] = [
    "SELECT key, kind, id, facts FROM scopes",
    "SELECT id, scope, text, digest, source, conversation, date, embedder FROM facts",
    "SELECT key, card FROM embedders",
    "SELECT place, embedder, scale, data FROM vectors",
    "SELECT scope, text FROM words",
];

/// Tables that are gone with the connection.
pub(super) fn in_memory() -> rusqlite::Result<Connection> {
    let mut connection = Connection::open_in_memory()?;
    set_up(&mut connection)?;
    create(&mut connection)?;
    Ok(connection)
}

/// Opens a file, makes it if there is none, and makes sure that it is one of ours.
pub(super) fn connect(path: &Path) -> Result<Connection, MemoryError> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    check(path)?;
    let open = || {
        let mut connection = Connection::open_with_flags(path, flags)?;
        set_up(&mut connection)?;
        // Whoever made it may have been killed half-way, and SQLite has taken that back by now.
        if marks(&connection)? == (0, 0) {
            create(&mut connection)?;
        }
        Ok(connection)
    };
    let connection = open().map_err(|error| failed(Some(path), "opened", error))?;
    verify(path, &connection)?;
    // A file is changed only when it is known to be ours, so this comes last.
    use_log(&connection).map_err(|error| failed(Some(path), "opened", error))?;
    Ok(connection)
}

fn set_up(connection: &mut Connection) -> rusqlite::Result<()> {
    connection.busy_handler(Some(try_again))?;
    connection.set_prepared_statement_cache_capacity(32);
    connection.pragma_update(None, "temp_store", "memory")?;
    // What is deleted is overwritten.
    connection.pragma_update(None, "secure_delete", true)?;
    connection.pragma_update(None, "synchronous", "full")?;
    // A file from elsewhere must not make us run what its tables say.
    connection.pragma_update(None, "trusted_schema", false)
}

/// Looks at what is there in a way that changes nothing, whatever it is.
fn check(path: &Path) -> Result<(), MemoryError> {
    match fs::metadata(path) {
        Ok(there) if !there.is_file() => {
            let message = format!("the facts `{}` are not in a plain file", name(path));
            Err(MemoryError::new(MemoryErrorKind::Refused, message))
        }
        Ok(there) if there.len() == 0 => Ok(()),
        Ok(_) => is_ours(path, peek(path).map_err(|error| failed(Some(path), "read", error))?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed_io(path, error)),
    }
}

/// The program and the format that the header names. It is read immutably, since even a reader may change a file.
fn peek(path: &Path) -> rusqlite::Result<(i32, i32)> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(immutable(path), flags)?;
    // Without this, a file that is just growing is taken for a broken one.
    connection.pragma_update(None, "writable_schema", true)?;
    marks(&connection)
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

fn is_ours(path: &Path, marks: (i32, i32)) -> Result<(), MemoryError> {
    match marks {
        (APPLICATION, FORMAT) => Ok(()),
        // Whoever made it may have been killed half-way; SQLite takes that back.
        (0, 0) if has_journal(path) => Ok(()),
        (APPLICATION, newer) if newer > FORMAT => {
            let message = format!(
                "the facts `{}` have format {newer}, and this version reads up to {FORMAT}; use a newer one",
                name(path)
            );
            Err(MemoryError::new(MemoryErrorKind::Version, message))
        }
        _ => Err(damaged(path, "the file is another program's")),
    }
}

fn has_journal(path: &Path) -> bool {
    let mut journal = path.as_os_str().to_owned();
    journal.push("-journal");
    fs::metadata(journal).is_ok()
}

/// All of it in one transaction, so that a file has either everything or nothing. Only then does it get a log beside
/// it: what the header says is in the file itself from the start.
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

fn verify(path: &Path, connection: &Connection) -> Result<(), MemoryError> {
    let unread = |error| failed(Some(path), "read", error);
    is_ours(path, marks(connection).map_err(unread)?)?;
    for columns in COLUMNS {
        if let Err(error) = connection.prepare(columns) {
            let missing = error.sqlite_error_code().is_none_or(|code| code == ErrorCode::Unknown);
            let damaged = || damaged(path, "a table is not as it should be");
            return Err(if missing { damaged() } else { unread(error) });
        }
    }
    Ok(())
}

/// Lets others read while somebody writes. SQLite does not wait for others by itself here.
fn use_log(connection: &Connection) -> rusqlite::Result<()> {
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

/// The program and the format that a file names.
fn marks(connection: &Connection) -> rusqlite::Result<(i32, i32)> {
    let value = |name| connection.pragma_query_value(None, name, |row| row.get(0));
    Ok((value("application_id")?, value("user_version")?))
}
