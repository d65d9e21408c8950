//! The file that facts are in: how it is read and changed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use levity_core::{MemoryError, MemoryErrorKind};
use rusqlite::{Connection, ErrorCode, TransactionBehavior};
use tokio::sync::Semaphore;

mod open;

/// How long to wait for another process that writes.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long to wait before trying again.
const PAUSE: Duration = Duration::from_millis(2);

/// Where facts are.
pub(super) struct File {
    /// `None` when they are in memory.
    path: Option<PathBuf>,
    /// Which file that is, whatever else may come to stand there; `None` where nobody can say.
    identity: Option<(u64, u64)>,
    connection: Mutex<Connection>,
    /// Whose turn it is: those who wait for theirs take up no thread.
    pub(super) turn: Arc<Semaphore>,
}

impl File {
    fn new(path: Option<PathBuf>, connection: Connection) -> Self {
        let identity = path.as_deref().and_then(identity);
        Self { path, identity, connection: Mutex::new(connection), turn: Arc::new(Semaphore::new(1)) }
    }

    /// Facts that are gone with the process.
    pub(super) fn in_memory() -> Result<Self, MemoryError> {
        let connection = open::in_memory().map_err(|error| failed(None, "made", error))?;
        Ok(Self::new(None, connection))
    }

    /// Opens a file, makes it if there is none, and makes sure that it is one of ours.
    pub(super) fn open(path: &Path) -> Result<Self, MemoryError> {
        // The path from the root: so no name means something special to SQLite, and the program may change its folder.
        let path = std::path::absolute(path).map_err(|error| failed_io(path, error))?;
        let connection = open::connect(&path)?;
        let file = Self::new(Some(path), connection);
        // What was forgotten just before a crash may still be in the log.
        let _ = file.settle();
        Ok(file)
    }

    /// Reads.
    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, MemoryError> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
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
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Makes sure that nothing is left of what was removed. A file of at most `largest` bytes is written anew: SQLite
    /// overwrites rows that are deleted, but not the copies that stay behind when it moves rows from page to page.
    pub(super) fn wipe(&self, largest: u64) -> Result<(), MemoryError> {
        if self.path.is_none() {
            return Ok(());
        }
        let anew = || {
            let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Moves everything from the log into the file and empties the log, so that nothing old is left in it.
    pub(super) fn settle(&self) -> Result<(), MemoryError> {
        if self.path.is_none() {
            return Ok(());
        }
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let emptied = empty_log(&mut connection);
        if emptied.map_err(|error| self.failed("written", error))? {
            return Ok(());
        }
        let message = "it is forgotten, but another program still reads the file as it was, so its log cannot be \
                       emptied yet; forget it once more later";
        Err(MemoryError::new(MemoryErrorKind::Busy, message))
    }

    /// Whether the file is still where it was. What is written to one that was taken away is lost.
    fn check_place(&self) -> Result<(), MemoryError> {
        let Some(path) = &self.path else { return Ok(()) };
        if self.identity.is_none() || self.identity == identity(path) {
            return Ok(());
        }
        let message =
            format!("the facts `{}` were removed or replaced by another file; open them anew", name(path));
        Err(MemoryError::new(MemoryErrorKind::Io, message))
    }

    fn failed(&self, what: &str, error: rusqlite::Error) -> MemoryError {
        failed(self.path.as_deref(), what, error)
    }
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

fn failed(path: Option<&Path>, what: &str, error: rusqlite::Error) -> MemoryError {
    let broken = [Some(ErrorCode::DatabaseCorrupt), Some(ErrorCode::NotADatabase)];
    match path {
        Some(path) if broken.contains(&error.sqlite_error_code()) => {
            return damaged(path, "SQLite finds flaws in the file").with_source(error);
        }
        _ => {}
    }
    let name = path.map_or_else(|| "in memory".to_owned(), |path| format!("`{}`", name(path)));
    let (kind, why) = match is_busy(&error) {
        true => (MemoryErrorKind::Busy, ": another program keeps the file busy"),
        false => (MemoryErrorKind::Io, ""),
    };
    MemoryError::new(kind, format!("the facts {name} could not be {what}{why}")).with_source(error)
}

fn failed_io(path: &Path, error: io::Error) -> MemoryError {
    let message = format!("the facts `{}` could not be opened", name(path));
    MemoryError::new(MemoryErrorKind::Io, message).with_source(error)
}

fn damaged(path: &Path, what: &str) -> MemoryError {
    let message = format!("the facts `{}` cannot be read and are left as they are: {what}", name(path));
    MemoryError::new(MemoryErrorKind::Damaged, message)
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
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

/// Whether to try again after so many times. SQLite's own waits become so long that whoever waits misses, for
/// seconds, the moments between the transactions of others who write without a pause.
fn try_again(times: i32) -> bool {
    std::thread::sleep(PAUSE);
    u128::try_from(times).is_ok_and(|times| times * PAUSE.as_millis() < PATIENCE.as_millis())
}

/// Moves what is in the log into the file, and says whether the log is empty then. SQLite waits for those who read or
/// write, but not for others who do the same at this moment, so it is tried again here.
fn empty_log(connection: &mut Connection) -> rusqlite::Result<bool> {
    connection.busy_handler(None::<fn(i32) -> bool>)?;
    let mut tries = PATIENCE.as_millis() / PAUSE.as_millis() / 5;
    let emptied = loop {
        match connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0)) {
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

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}
