//! The file that facts are in: how it is read and changed.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use levity_core::{MemoryError, MemoryErrorKind};
use levity_sqlite::{PATIENCE, PAUSE, SharedFile, in_memory, is_busy, try_again};
use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::Semaphore;

use super::tables::FORMAT;
use crate::flaw::told;

/// Where facts are.
pub(super) struct File {
    /// `None` when they are in memory.
    file: Option<SharedFile>,
    connection: Mutex<Connection>,
    /// Whose turn it is: those who wait for theirs take up no thread.
    pub(super) turn: Arc<Semaphore>,
}

impl File {
    fn new(file: Option<SharedFile>, connection: Connection) -> Result<Self, MemoryError> {
        let full = connection.pragma_update(None, "synchronous", "full");
        let file = Self {
            file,
            connection: Mutex::new(connection),
            turn: Arc::new(Semaphore::new(1)),
        };
        full.map_err(|error| file.failed("opened", error))?;
        Ok(file)
    }

    /// Facts that are gone with the process.
    pub(super) fn in_memory() -> Result<Self, MemoryError> {
        let connection = in_memory(&FORMAT).map_err(|error| failed_in_memory("made", error))?;
        Self::new(None, connection)
    }

    /// Opens a file, makes it if there is none, and makes sure that it is one of ours.
    pub(super) fn open(path: &Path) -> Result<Self, MemoryError> {
        let (file, connection) = SharedFile::make(path, &FORMAT).map_err(told)?;
        let file = Self::new(Some(file), connection)?;
        // What was forgotten just before a crash may still be in the log.
        let _ = file.settle();
        Ok(file)
    }

    /// A warning, if other users can read the file.
    pub(super) fn exposed(&self) -> Option<String> {
        self.file.as_ref().and_then(SharedFile::exposed)
    }

    /// Reads.
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

    /// Makes a change: all of it or, when it fails, none.
    pub(super) fn write<T>(
        &self,
        write: impl FnOnce(&Connection) -> Result<T, Fault>,
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
            Fault::Sqlite(error) => self.failed("written", error),
            Fault::Refused(error) => error,
        })
    }

    /// Makes sure that nothing is left of what was removed. A file of at most `largest` bytes is
    /// written anew: SQLite overwrites rows that are deleted, but not the copies that stay behind
    /// when it moves rows from page to page.
    pub(super) fn wipe(&self, largest: u64) -> Result<(), MemoryError> {
        if self.file.is_none() {
            return Ok(());
        }
        let anew = || {
            let connection = self
                .connection
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let size = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size";
            let size: i64 = connection.query_row(size, [], |row| row.get(0))?;
            if u64::try_from(size).is_ok_and(|size| size <= largest) {
                connection.execute_batch("VACUUM")?;
            }
            Ok(())
        };
        anew().map_err(|error| self.failed("wiped", error))?;
        self.settle()
    }

    /// Moves everything from the log into the file and empties the log, so that nothing old is left
    /// in it.
    pub(super) fn settle(&self) -> Result<(), MemoryError> {
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
        let message = "it is forgotten, but another program still reads the file as it was, so its \
            log cannot be \
                       emptied yet; forget it once more later";
        Err(MemoryError::new(MemoryErrorKind::Busy, message))
    }

    /// Whether the file is still where it was. What is written to one that was taken away is lost.
    fn check_place(&self) -> Result<(), MemoryError> {
        self.file
            .as_ref()
            .map_or(Ok(()), |file| file.check_place().map_err(told))
    }

    fn failed(&self, what: &str, error: rusqlite::Error) -> MemoryError {
        match &self.file {
            Some(file) => told(file.failed(what, error)),
            None => failed_in_memory(what, error),
        }
    }
}

fn failed_in_memory(what: &str, error: rusqlite::Error) -> MemoryError {
    MemoryError::new(
        MemoryErrorKind::Io,
        format!("the facts in memory could not be {what}"),
    )
    .with_source(error)
}

/// Why a change was not made.
pub(super) enum Fault {
    Sqlite(rusqlite::Error),
    Refused(MemoryError),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

/// Moves what is in the log into the file, and says whether the log is empty then. SQLite waits for
/// those who read or write, but not for others who do the same at this moment, so it is tried again
/// here.
fn empty_log(connection: &mut Connection) -> rusqlite::Result<bool> {
    connection.busy_handler(None::<fn(i32) -> bool>)?;
    let mut tries = PATIENCE.as_millis() / PAUSE.as_millis() / 5;
    let emptied = loop {
        match connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| {
            row.get::<_, i64>(0)
        }) {
            Ok(0) => break Ok(true),
            Err(error) if !is_busy(&error) => break Err(error),
            _ if tries == 0 => break Ok(false),
            _ => tries -= 1,
        }
        std::thread::sleep(PAUSE);
    };
    connection.busy_handler(Some(try_again))?;
    emptied
}
