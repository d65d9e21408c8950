//! A file with one connection, its transactions, and the removal of deleted data.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::Semaphore;

use crate::open::{BUSY_TIMEOUT, PAUSE, in_memory, is_busy, try_again};
use crate::{Error, ErrorKind, Format, SharedFile};

/// A database in a file or in memory, for operations that run one after the other. `E` is the type
/// of the caller's errors.
///
/// Removal is a promise: after [`wipe`](Self::wipe), removed data is neither in the file nor in the
/// log beside it. Deleted rows are overwritten, the log is truncated, and small files are
/// rewritten.
///
/// ```
/// use std::sync::Arc;
///
/// use levity_sqlite::{Error, Store};
/// # use levity_sqlite::Format;
/// # static NOTES: Format = Format {
/// #     what: "notes",
/// #     application: 0x6e6f_7465,
/// #     version: 1,
/// #     tables: "CREATE TABLE notes (text TEXT NOT NULL);",
/// #     earlier: &[],
/// #     columns: &["SELECT text FROM notes"],
/// #     log_pages: 1_000,
/// #     overwrites: true,
/// # };
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let notes = Arc::new(Store::in_memory(&NOTES, |error| error)?);
/// let add = |store: &Store<Error>| {
///     store.write(|change| Ok(change.execute("INSERT INTO notes VALUES ('hello')", [])?))
/// };
/// assert_eq!(notes.run(add).await?, 1);
/// # Ok(())
/// # }
/// ```
pub struct Store<E> {
    /// `None` for a database in memory.
    file: Option<SharedFile>,
    connection: Mutex<Connection>,
    /// Serializes access: waiting tasks occupy no thread.
    queue: Arc<Semaphore>,
    what: &'static str,
    convert: fn(Error) -> E,
}

impl<E> Store<E> {
    /// Creates a database that ends with the process.
    ///
    /// # Errors
    /// If there is no memory left.
    pub fn in_memory(format: &'static Format, convert: fn(Error) -> E) -> Result<Self, E> {
        let connection = in_memory(format)
            .map_err(|error| convert(failed_in_memory(format.what, "made", error)))?;
        Self::new(None, connection, format, convert)
    }

    /// Opens a file, creates it if there is none, and checks its format.
    ///
    /// # Errors
    /// If the file cannot be opened, and if it is not of this format.
    pub fn open(path: &Path, format: &'static Format, convert: fn(Error) -> E) -> Result<Self, E> {
        let (file, connection) = SharedFile::open_or_create(path, format).map_err(convert)?;
        let store = Self::new(Some(file), connection, format, convert)?;
        // Data that was removed just before a crash may still be in the log.
        let _ = store.truncate_log();
        Ok(store)
    }

    fn new(
        file: Option<SharedFile>,
        connection: Connection,
        format: &'static Format,
        convert: fn(Error) -> E,
    ) -> Result<Self, E> {
        let sync_mode = connection.pragma_update(None, "synchronous", "full");
        let store = Self {
            file,
            connection: Mutex::new(connection),
            queue: Arc::new(Semaphore::new(1)),
            what: format.what,
            convert,
        };
        sync_mode.map_err(|error| store.failed("opened", error))?;
        Ok(store)
    }

    /// Returns a warning if other users can read the file.
    pub fn exposure_warning(&self) -> Option<String> {
        self.file.as_ref().and_then(SharedFile::exposure_warning)
    }

    /// Runs a read transaction.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, E> {
        let mut connection = self.connection();
        let view = || {
            let view = connection.transaction()?;
            read(&view)
        };
        view().map_err(|error| self.failed("read", error))
    }

    /// Runs a write transaction, which has no effect if it fails.
    ///
    /// # Errors
    /// If the file cannot be written or is no longer at its path, and the error of `write`.
    pub fn write<T>(
        &self,
        write: impl FnOnce(&Connection) -> Result<T, WriteError<E>>,
    ) -> Result<T, E> {
        // Writes to a moved or deleted file would be lost.
        let place = self.file.as_ref().map_or(Ok(()), SharedFile::check_place);
        place.map_err(self.convert)?;
        let mut connection = self.connection();
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
    ///
    /// # Errors
    /// If the file cannot be written; [`LogInUse`](ErrorKind::LogInUse) if another program still
    /// reads the state before the removal.
    pub fn wipe(&self, max_bytes: u64) -> Result<(), E> {
        if self.file.is_none() {
            return Ok(());
        }
        let vacuum = || {
            let connection = self.connection();
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
    fn truncate_log(&self) -> Result<(), E> {
        if self.file.is_none() {
            return Ok(());
        }
        let emptied = empty_log(&mut self.connection());
        if emptied.map_err(|error| self.failed("written", error))? {
            return Ok(());
        }
        let message = format!(
            "the {} are removed, but another program still reads the old state of the file, so its \
             log cannot be truncated yet; call this again later",
            self.what
        );
        Err((self.convert)(Error::new(ErrorKind::LogInUse, message)))
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, action: &str, error: rusqlite::Error) -> E {
        (self.convert)(match &self.file {
            Some(file) => file.failed(action, error),
            None => failed_in_memory(self.what, action, error),
        })
    }
}

impl<E: Send + 'static> Store<E> {
    /// Runs work that may wait for the disk where it delays no other task.
    ///
    /// One operation uses the file at a time; waiting callers hold no thread.
    ///
    /// # Errors
    /// The error of the work, and an error if the tokio runtime shuts down before it ends.
    pub async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        let store = self.clone();
        let permit = self.queue.clone().acquire_owned().await;
        let work = move || {
            let result = work(&store);
            drop(permit);
            result
        };
        match tokio::runtime::Handle::try_current() {
            Ok(handle) => match handle.spawn_blocking(work).await {
                Ok(result) => result,
                Err(error) => {
                    let message = format!(
                        "the tokio runtime shut down before the {} were read or written",
                        self.what
                    );
                    Err((self.convert)(
                        Error::new(ErrorKind::Io, message).with_source(error),
                    ))
                }
            },
            // Without a runtime there are no other tasks to delay.
            Err(_) => work(),
        }
    }
}

impl<E> fmt::Debug for Store<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("file", &self.file.as_ref().map(SharedFile::path))
            .finish_non_exhaustive()
    }
}

fn failed_in_memory(what: &str, action: &str, error: rusqlite::Error) -> Error {
    let message = format!("the {what} in memory could not be {action}");
    Error::new(ErrorKind::Io, message).with_source(error)
}

/// The reason why a change was not made.
///
/// ```
/// use levity_sqlite::WriteError;
///
/// let error: WriteError<String> = rusqlite::Error::QueryReturnedNoRows.into();
/// assert!(matches!(error, WriteError::Sqlite(_)));
/// ```
#[derive(Debug)]
#[allow(clippy::exhaustive_enums, reason = "only levity's stores use it")]
pub enum WriteError<E> {
    /// SQLite could not make the change.
    Sqlite(rusqlite::Error),
    /// The caller rejected the change.
    Refused(E),
}

impl<E> From<rusqlite::Error> for WriteError<E> {
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
