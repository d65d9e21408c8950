//! The settings and queries of SQLite connections.
//!
//! Every connection has the same settings: retries every millisecond for up to five seconds, no
//! triggers or views, and temporary data in memory.

use std::collections::BTreeSet;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _, TransactionBehavior};

use crate::Format;

/// The maximum wait for another process that writes.
pub const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The pause between two attempts.
pub const PAUSE: Duration = Duration::from_millis(1);

/// Creates the tables in memory; they disappear with the connection.
///
/// # Errors
/// Returns an error if SQLite has no memory for them.
pub fn in_memory(format: &Format) -> rusqlite::Result<Connection> {
    let mut connection = Connection::open_in_memory()?;
    set_up(&mut connection, format)?;
    create(&mut connection, format)?;
    Ok(connection)
}

/// Opens an existing file, or creates it.
pub(crate) fn connect(path: &Path, create: bool, format: &Format) -> rusqlite::Result<Connection> {
    let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    flags.set(OpenFlags::SQLITE_OPEN_CREATE, create);
    let mut connection = Connection::open_with_flags(path, flags)?;
    set_up(&mut connection, format)?;
    Ok(connection)
}

fn set_up(connection: &mut Connection, format: &Format) -> rusqlite::Result<()> {
    connection.busy_handler(Some(try_again))?;
    connection.set_prepared_statement_cache_capacity(32);
    // Savepoints roll back from memory, without a separate file.
    connection.pragma_update(None, "temp_store", "memory")?;
    connection.pragma_update(None, "wal_autocheckpoint", format.log_pages)?;
    connection.pragma_update(None, "journal_size_limit", format.log_pages * 4096)?;
    // A foreign file must not make this process run code in its tables. `SharedFile` also compares
    // the tables.
    connection.pragma_update(None, "trusted_schema", false)?;
    // No file of levity has a trigger or a view, which could write or return forged records.
    for (setting, on) in [
        (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
        (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
    ] {
        connection.set_db_config(setting, on)?;
    }
    connection.pragma_update(None, "secure_delete", format.overwrites)
}

/// Creates the tables in an empty file in one transaction, so that a file has either everything or
/// nothing.
///
/// The write-ahead log is enabled first. So SQLite never repairs a file with these header values by
/// a rollback journal, and one beside it is foreign. The header values are then moved into the file
/// itself, where `peek` finds them.
pub(crate) fn create(connection: &mut Connection, format: &Format) -> rusqlite::Result<()> {
    if !is_empty(connection)? {
        return Ok(());
    }
    use_log(connection)?;
    let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if is_empty(&change)? {
        change.execute_batch(format.tables)?;
        change.pragma_update(None, "application_id", format.application)?;
        change.pragma_update(None, "user_version", format.version)?;
    }
    change.commit()?;
    // Others may be reading at this moment. A later checkpoint then moves them.
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
}

fn is_empty(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| {
        row.get(0)
    })
}

/// A row of `sqlite_schema`: type, name, table and SQL. SQL is compared without its line breaks.
type Object = (String, String, String, String);

/// Returns the first object that differs from every version of the format; `None` if the schema
/// matches one of them.
pub(crate) fn foreign_object(
    connection: &Connection,
    format: &Format,
) -> rusqlite::Result<Option<String>> {
    let found = objects(connection)?;
    let mut first = None;
    for tables in std::iter::once(format.tables).chain(format.earlier.iter().copied()) {
        let own = Connection::open_in_memory()?;
        own.execute_batch(tables)?;
        let own = objects(&own)?;
        match found.symmetric_difference(&own).next() {
            None => return shared_page(connection),
            Some((_, name, ..)) => first = first.or_else(|| Some(name.clone())),
        }
    }
    Ok(first)
}

fn objects(connection: &Connection) -> rusqlite::Result<BTreeSet<Object>> {
    let mut select = connection.prepare(
        "SELECT type, name, tbl_name, substr(coalesce(sql, ''), 1, 10000) FROM main.sqlite_schema \
            LIMIT 1000",
    )?;
    let rows = select.query_map([], |row| {
        let sql: String = row.get(3)?;
        let sql = sql.split_whitespace().collect::<Vec<_>>().join(" ");
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, sql))
    })?;
    rows.collect()
}

/// Returns the name of an object that shares its pages with another one: writes to one of them
/// appear in the other.
fn shared_page(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let select = "SELECT name FROM main.sqlite_schema WHERE rootpage > 0 GROUP BY rootpage HAVING \
        count(*) > 1";
    connection
        .query_row(select, [], |row| row.get(0))
        .optional()
}

/// Enables the write-ahead log, so that others can read during a write. SQLite itself does not wait
/// for others here.
pub(crate) fn use_log(connection: &Connection) -> rusqlite::Result<()> {
    let set = || {
        connection
            .pragma_update_and_check(None, "journal_mode", "wal", |row| row.get::<_, String>(0))
    };
    for _ in 0..BUSY_TIMEOUT.as_millis() / 10 {
        match set() {
            Err(error) if is_busy(&error) => sleep(Duration::from_millis(10)),
            other => return other.map(drop),
        }
    }
    set().map(drop)
}

/// Returns the application and version in the header, and whether the file has a header and no
/// table. SQLite reads it, because closing a file would release this process's locks on it. It
/// reads it immutably, because even a reader may change a file.
pub(crate) fn peek(path: &Path) -> rusqlite::Result<((i32, i32), bool)> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(immutable(path), flags)?;
    // Without this, a file that is just growing appears to be corrupt.
    connection.pragma_update(None, "writable_schema", true)?;
    // SQLite treats a file shorter than a page as empty, whatever it contains.
    let pages: i64 = connection.pragma_query_value(None, "page_count", |row| row.get(0))?;
    Ok((marks(&connection)?, pages > 0 && is_empty(&connection)?))
}

/// Returns the application and version in a file's header.
pub(crate) fn marks(connection: &Connection) -> rusqlite::Result<(i32, i32)> {
    let value = |name| connection.pragma_query_value(None, name, |row| row.get(0));
    Ok((value("application_id")?, value("user_version")?))
}

/// Returns the URI with which SQLite opens a file that no one changes.
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

/// Returns `true` to retry after this many attempts. SQLite's own waits grow so long that a waiting
/// writer misses, for seconds, the gaps between the transactions of others.
///
/// ```
/// # use levity_sqlite::try_again;
/// assert!(try_again(0));
/// assert!(!try_again(1_000_000), "five seconds are over");
/// ```
pub fn try_again(times: i32) -> bool {
    sleep(PAUSE);
    u128::try_from(times).is_ok_and(|times| times * PAUSE.as_millis() < BUSY_TIMEOUT.as_millis())
}

/// Returns `true` if others block the SQLite operation.
///
/// ```
/// use levity_sqlite::is_busy;
///
/// assert!(!is_busy(&rusqlite::Error::QueryReturnedNoRows));
/// ```
pub fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}
