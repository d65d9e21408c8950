//! What SQLite is told, and what it is asked.

use std::collections::BTreeSet;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _, TransactionBehavior};

use crate::Format;

/// How long to wait for another process that writes.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// How long to wait before trying again.
pub const PAUSE: Duration = Duration::from_millis(1);

/// Tables that are gone with the connection.
///
/// # Errors
/// When SQLite has no memory for them.
pub fn in_memory(format: &Format) -> rusqlite::Result<Connection> {
    let mut connection = Connection::open_in_memory()?;
    set_up(&mut connection, format)?;
    create(&mut connection, format)?;
    Ok(connection)
}

/// Opens what is there, or makes it.
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
    // What a savepoint may have to take back is kept in memory, and in no file of its own.
    connection.pragma_update(None, "temp_store", "memory")?;
    connection.pragma_update(None, "wal_autocheckpoint", format.log_pages)?;
    connection.pragma_update(None, "journal_size_limit", format.log_pages * 4096)?;
    // A file from elsewhere must not make us run what its tables say. `SharedFile` compares the
    // tables as well.
    connection.pragma_update(None, "trusted_schema", false)?;
    // No file of ours has a trigger or a view: they would write or return records that nobody
    // wrote.
    for (setting, on) in [
        (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
        (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
    ] {
        connection.set_db_config(setting, on)?;
    }
    connection.pragma_update(None, "secure_delete", format.overwrites)
}

/// Makes the tables in an empty file, all in one transaction, so that a file has either everything
/// or nothing.
///
/// The log comes first: a file with the marks of its header is never one that SQLite repairs by a
/// rollback journal, so that one beside it is not ours. The marks are then moved into the file
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
    // Others may read at this moment. Then a later checkpoint moves them.
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
}

fn is_empty(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| {
        row.get(0)
    })
}

/// A row of `sqlite_schema`: type, name, table and SQL. SQL is compared without its line breaks.
type Object = (String, String, String, String);

/// The first object that tells the schema of a file from all of those that the format has had;
/// `None` when it is one of them.
pub(crate) fn foreign_object(
    connection: &Connection,
    format: &Format,
) -> rusqlite::Result<Option<String>> {
    let there = objects(connection)?;
    let mut first = None;
    for tables in std::iter::once(format.tables).chain(format.earlier.iter().copied()) {
        let own = Connection::open_in_memory()?;
        own.execute_batch(tables)?;
        let own = objects(&own)?;
        match there.symmetric_difference(&own).next() {
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

/// The name of an object whose pages are those of another one: what is written to one of them
/// appears in the other.
fn shared_page(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let select = "SELECT name FROM main.sqlite_schema WHERE rootpage > 0 GROUP BY rootpage HAVING \
        count(*) > 1";
    connection
        .query_row(select, [], |row| row.get(0))
        .optional()
}

/// Lets others read while somebody writes. SQLite does not wait for others by itself here.
pub(crate) fn use_log(connection: &Connection) -> rusqlite::Result<()> {
    let set = || {
        connection
            .pragma_update_and_check(None, "journal_mode", "wal", |row| row.get::<_, String>(0))
    };
    for _ in 0..PATIENCE.as_millis() / 10 {
        match set() {
            Err(error) if is_busy(&error) => sleep(Duration::from_millis(10)),
            other => return other.map(drop),
        }
    }
    set().map(drop)
}

/// The program and the format that the header names, and whether the file has a header and no
/// table. It is read by SQLite, since closing a file takes this process's locks on it away, and
/// immutably, since even a reader may change a file.
pub(crate) fn peek(path: &Path) -> rusqlite::Result<((i32, i32), bool)> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(immutable(path), flags)?;
    // Without this, a file that is just growing is taken for a broken one.
    connection.pragma_update(None, "writable_schema", true)?;
    // SQLite takes what is shorter than a page for an empty file, whatever it is.
    let pages: i64 = connection.pragma_query_value(None, "page_count", |row| row.get(0))?;
    Ok((marks(&connection)?, pages > 0 && is_empty(&connection)?))
}

/// The program and the format that a file names.
pub(crate) fn marks(connection: &Connection) -> rusqlite::Result<(i32, i32)> {
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

/// Whether to try again after so many times. SQLite's own waits become so long that whoever waits
/// misses, for seconds, the moments between the transactions of others who write without a pause.
pub fn try_again(times: i32) -> bool {
    sleep(PAUSE);
    u128::try_from(times).is_ok_and(|times| times * PAUSE.as_millis() < PATIENCE.as_millis())
}

/// Whether others keep SQLite from what it was asked for.
pub fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}
