//! The file of facts, with its read and write transactions.
//!
//! Forgetting is a promise: after it, the text is neither in the file nor in the log beside it.
//! Deleted rows are overwritten, the log is truncated, and small files are rewritten.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use levity_core::{MemoryError, MemoryErrorKind};
use levity_sqlite::{BUSY_TIMEOUT, PAUSE, SharedFile, in_memory, is_busy, try_again};
use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::Semaphore;

use super::tables::FORMAT;
use crate::sqlite_error::to_memory_error;

/// The database of facts, in a file or in memory.
pub(super) struct File {
    /// `None` for a database in memory.
    file: Option<SharedFile>,
    connection: Mutex<Connection>,
    /// Serializes access: waiting tasks occupy no thread.
    pub(super) queue: Arc<Semaphore>,
}

impl File {
    fn new(file: Option<SharedFile>, connection: Connection) -> Result<Self, MemoryError> {
        let sync_mode = connection.pragma_update(None, "synchronous", "full");
        let file = Self {
            file,
            connection: Mutex::new(connection),
            queue: Arc::new(Semaphore::new(1)),
        };
        sync_mode.map_err(|error| file.failed("opened", error))?;
        Ok(file)
    }

    /// Creates a database that ends with the process.
    pub(super) fn in_memory() -> Result<Self, MemoryError> {
        let connection = in_memory(&FORMAT).map_err(|error| failed_in_memory("made", error))?;
        Self::new(None, connection)
    }

    /// Opens a file, creates it if there is none, and checks its format.
    pub(super) fn open(path: &Path) -> Result<Self, MemoryError> {
        let (file, connection) =
            SharedFile::open_or_create(path, &FORMAT).map_err(to_memory_error)?;
        let file = Self::new(Some(file), connection)?;
        // Facts forgotten just before a crash may still be in the log.
        let _ = file.truncate_log();
        Ok(file)
    }

    /// Returns a warning if other users can read the file.
    pub(super) fn permission_warning(&self) -> Option<String> {
        self.file.as_ref().and_then(SharedFile::exposure_warning)
    }

    /// Runs a read transaction.
    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, MemoryError> {
        let mut connection = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let view = || {
            let view = connection.transaction()?;
            read(&view)
        };
        view().map_err(|error| self.failed("read", error))
    }

    /// Runs a write transaction, which has no effect if it fails.
    pub(super) fn write<T>(
        &self,
        write: impl FnOnce(&Connection) -> Result<T, WriteError>,
    ) -> Result<T, MemoryError> {
        self.check_place()?;
        let mut connection = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let change = || {
            let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let written = write(&change)?;
            change.commit()?;
            Ok(written)
        };
        change().map_err(|fault| match fault {
            WriteError::Sqlite(error) => self.failed("written", error),
            WriteError::Refused(error) => error,
        })
    }

    /// Removes all remaining data of deleted rows, and rewrites a file of at most `max_bytes`
    /// bytes. SQLite overwrites deleted rows, but not the copies that remain when it moves rows
    /// from page to page.
    pub(super) fn wipe(&self, max_bytes: u64) -> Result<(), MemoryError> {
        if self.file.is_none() {
            return Ok(());
        }
        let vacuum = || {
            let connection = self
                .connection
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let size = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size";
            let size: i64 = connection.query_row(size, [], |row| row.get(0))?;
            if u64::try_from(size).is_ok_and(|size| size <= max_bytes) {
                connection.execute_batch("VACUUM")?;
            }
            Ok(())
        };
        vacuum().map_err(|error| self.failed("wiped", error))?;
        self.truncate_log()
    }

    /// Moves everything from the log into the file and truncates the log, so that no old data
    /// remains in it.
    pub(super) fn truncate_log(&self) -> Result<(), MemoryError> {
        if self.file.is_none() {
            return Ok(());
        }
        let mut connection = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let emptied = empty_log(&mut connection);
        if emptied.map_err(|error| self.failed("written", error))? {
            return Ok(());
        }
        let message = "the facts are forgotten, but another program still reads the old state of \
            the \
            file, so its log cannot be truncated yet; call `forget` again later";
        Err(MemoryError::new(MemoryErrorKind::Busy, message))
    }

    /// Checks that the file is still at its path. Writes to a moved or deleted file would be lost.
    fn check_place(&self) -> Result<(), MemoryError> {
        self.file
            .as_ref()
            .map_or(Ok(()), |file| file.check_place().map_err(to_memory_error))
    }

    fn failed(&self, action: &str, error: rusqlite::Error) -> MemoryError {
        match &self.file {
            Some(file) => to_memory_error(file.failed(action, error)),
            None => failed_in_memory(action, error),
        }
    }
}

fn failed_in_memory(action: &str, error: rusqlite::Error) -> MemoryError {
    MemoryError::new(
        MemoryErrorKind::Io,
        format!("the facts in memory could not be {action}"),
    )
    .with_source(error)
}

/// The reason why a change was not made.
pub(super) enum WriteError {
    Sqlite(rusqlite::Error),
    Refused(MemoryError),
}

impl From<rusqlite::Error> for WriteError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

/// Moves the log into the file, and returns `true` if the log is empty afterwards. SQLite waits for
/// readers and writers, but not for concurrent checkpoints, so this function retries.
///
/// SQLite reports a busy log in the result and not as an error, so both are checked.
fn empty_log(connection: &mut Connection) -> rusqlite::Result<bool> {
    connection.busy_handler(None::<fn(i32) -> bool>)?;
    let mut attempts = BUSY_TIMEOUT.as_millis() / PAUSE.as_millis() / 5;
    let emptied = loop {
        match connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| {
            row.get::<_, i64>(0)
        }) {
            Ok(0) => break Ok(true),
            Err(error) if !is_busy(&error) => break Err(error),
            _ if attempts == 0 => break Ok(false),
            _ => attempts -= 1,
        }
        std::thread::sleep(PAUSE);
    };
    connection.busy_handler(Some(try_again))?;
    emptied
}
