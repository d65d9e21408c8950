//! Execution of write requests on the writer's thread.
//!
//! Replies are sent after the commit. A request that is invalid fails alone; an error of SQLite
//! fails the whole batch, and nothing of it is stored.
//!
//! Removed data must leave the log as well. If another program still reads the old state, the
//! worker retries each second.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use levity_core::{ConversationId, MemoryError, MemoryErrorKind, Timestamp};
use rusqlite::Connection;
use tokio::sync::watch;

use super::database::Database;
use super::rows::{self, RowError};
use super::writer::{HoldGuard, OwnerEntry, Reply, WriteRequest, Writer, owners};
use super::{holds, index};
use crate::Durability;
use levity_core::World as _;
use levity_system::{Owner, SystemWorld, WithoutLocks};

/// The delay before a failed task is retried.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The number of one-millisecond waits for readers of removed data.
const MAX_READER_WAITS: i32 = 100;

/// The maximum size of a file that is rewritten when a conversation is forgotten: 4 MiB, some 40
/// ms.
const VACUUM_LIMIT: u64 = 4 << 20;

/// Sends the reply of a request, once the outcome of the transaction is known.
type Completion = Box<dyn FnOnce(&mut WriteWorker, Option<&MemoryError>)>;

/// It is used by the writer's thread alone, so it needs no locks.
pub(super) struct WriteWorker {
    database: Arc<Database>,
    owners: PathBuf,
    /// Opened by the first write.
    connection: Option<Connection>,
    synced: bool,
    owner: Option<Owner>,
    /// Released conversations whose release is not written yet.
    unreleased: Vec<ConversationId>,
    /// `true` if removed data may still be in the log beside the file.
    wipe_pending: bool,
    /// The maximum size of a file that is rewritten before the log is truncated.
    vacuum_limit: u64,
    /// Dropped after all other fields.
    alive: watch::Sender<()>,
}

impl WriteWorker {
    pub(super) fn new(database: Arc<Database>) -> Self {
        Self {
            owners: database.owners(),
            database,
            connection: None,
            synced: false,
            owner: None,
            unreleased: Vec::new(),
            wipe_pending: false,
            vacuum_limit: 0,
            alive: watch::Sender::new(()),
        }
    }

    /// Returns the delay until the next retry; `None` if there is no pending work.
    pub(super) fn retry_delay(&self) -> Option<Duration> {
        (self.wipe_pending || !self.unreleased.is_empty()).then_some(RETRY_DELAY)
    }

    /// Executes all requests in one transaction.
    pub(super) fn run_batch(&mut self, requests: Vec<WriteRequest>) {
        let mut completions = Vec::with_capacity(requests.len());
        let was_pending = std::mem::take(&mut self.wipe_pending);
        let mut failed = self.begin(&requests).err();
        for request in requests {
            completions.push(self.perform(request, &mut failed));
        }
        if failed.is_none() {
            failed = self.execute("COMMIT").err();
        }
        match failed {
            None => self.unreleased.clear(),
            Some(_) => self.roll_back(),
        }
        let removed = self.wipe_pending;
        self.wipe_pending |= was_pending;
        if self.wipe_pending && failed.is_none() {
            self.wipe(removed);
        }
        for complete in completions {
            complete(self, failed.as_ref());
        }
    }

    /// Executes the pending work as far as possible now.
    pub(super) fn close(&mut self) {
        if self.retry_delay().is_some() {
            self.run_batch(Vec::new());
        }
    }

    /// Begins an exclusive write transaction.
    fn begin(&mut self, requests: &[WriteRequest]) -> Result<(), MemoryError> {
        let sync = self.database.durability == Durability::Synced && requests.iter().any(must_sync);
        if self.connection.is_none() {
            // The process that removed data may have been killed before the log was truncated.
            self.wipe_pending |= self.database.has_log();
            self.connection = Some(self.database.connect()?);
            self.synced = !sync;
        }
        self.database.check_place()?;
        if self.synced != sync {
            // A full sync also covers earlier writes without one.
            self.execute(if sync {
                "PRAGMA synchronous = FULL"
            } else {
                "PRAGMA synchronous = NORMAL"
            })?;
            self.synced = sync;
        }
        self.execute("BEGIN IMMEDIATE")?;
        if self.owner.is_none()
            && let Some(writer) = requests.iter().find_map(holder_of)
        {
            self.register_owner(writer)?;
        }
        self.unreleased
            .iter()
            .try_for_each(|id| self.write(|connection| self.release(connection, id)))
    }

    /// Registers an owner, and removes the holds of owners that no longer run.
    fn register_owner(&mut self, writer: &Arc<Writer>) -> Result<(), MemoryError> {
        let owner = Owner::new(&self.owners, || SystemWorld.random(), WithoutLocks::Fail)
            .map_err(|error| self.database.failed_io("locked for holding", error))?;
        self.write(|connection| holds::remove_dead_owners(connection, &self.owners))?;
        let (writer, alive) = (Arc::downgrade(writer), self.alive.subscribe());
        owners().push(OwnerEntry {
            id: owner.id(),
            writer,
            alive,
        });
        self.owner = Some(owner);
        Ok(())
    }

    fn roll_back(&mut self) {
        let broken = self.connection.as_ref().is_some_and(|connection| {
            !connection.is_autocommit() && connection.execute_batch("ROLLBACK").is_err()
        });
        if broken {
            self.connection = None;
        }
    }

    /// Moves the log into the file and truncates it, which removes pages from before a removal. A
    /// retry does not wait for other programs: a long-running reader would slow down every save.
    ///
    /// The first attempt waits up to 100 ms for readers, and retries do not wait at all.
    fn wipe(&mut self, wait_for_readers: bool) {
        let written = self.vacuum();
        let Some(connection) = &mut self.connection else {
            return;
        };
        let wiped = connection
            .busy_handler(wait_for_readers.then_some(wait_briefly as fn(i32) -> bool))
            .and_then(|()| {
                connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| {
                    row.get::<_, i64>(0)
                })
            });
        // Another program may still read the old state; then the next retry follows.
        self.wipe_pending = written.is_err() || !matches!(wiped, Ok(0));
        if connection
            .busy_handler(Some(levity_sqlite::try_again))
            .is_err()
        {
            self.connection = None;
        }
    }

    /// Rewrites the file after a removal. SQLite overwrites deleted rows, but not the copies that
    /// remain when it moves rows from page to page.
    fn vacuum(&mut self) -> Result<(), MemoryError> {
        let size = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size";
        let size =
            self.write(|connection| connection.query_row(size, [], |row| row.get::<_, i64>(0)))?;
        if u64::try_from(size).is_ok_and(|size| size <= self.vacuum_limit) {
            self.execute("VACUUM")?;
        }
        self.vacuum_limit = 0;
        Ok(())
    }

    fn perform(&mut self, request: WriteRequest, failed: &mut Option<MemoryError>) -> Completion {
        match request {
            WriteRequest::Save { id, change, reply } => reply_with(
                reply,
                self.run(failed, |worker| rows::save(worker.open()?, &id, &change)),
            ),
            WriteRequest::Trim { id, before, reply } => {
                let outcome = self.run(failed, |worker| rows::trim(worker.open()?, &id, before));
                self.wipe_pending |= matches!(outcome, Ok(true));
                reply_with(reply, outcome.map(drop))
            }
            WriteRequest::Remove {
                id,
                unchanged_since,
                reply,
            } => {
                let outcome = self.run(failed, |worker| worker.remove(&id, unchanged_since));
                let removed = outcome.map(|outcome| {
                    outcome.map(|(removed, wipe)| {
                        self.wipe_pending |= wipe;
                        if wipe && unchanged_since.is_none() {
                            self.vacuum_limit = self.vacuum_limit.max(VACUUM_LIMIT);
                        }
                        removed
                    })
                });
                reply_with(reply, removed)
            }
            WriteRequest::Index { id, reply } => reply_with(
                reply,
                self.run(failed, |worker| index::index(worker.open()?, &id)),
            ),
            WriteRequest::Unindex { id, before, reply } => reply_with(
                reply,
                self.run(failed, |worker| index::unindex(worker.open()?, &id, before)),
            ),
            WriteRequest::Lease { id, writer, reply } => {
                let outcome = self.run(failed, |worker| worker.hold(&id));
                reply_to_hold(outcome, id, writer, reply)
            }
            WriteRequest::Release { id } => {
                let outcome = self.run(failed, |worker| Ok(worker.release(worker.open()?, &id)?));
                let release_failed = outcome.is_err();
                finish_release(id, release_failed)
            }
            WriteRequest::Flush { reply } => reply_with(reply, Ok(())),
            WriteRequest::Wipe { reply } => {
                (self.wipe_pending, self.vacuum_limit) = (true, u64::MAX);
                reply_with(reply, Ok(()))
            }
        }
    }

    /// Executes one request. An error of the request itself changes nothing; `failed` is set if
    /// SQLite fails, which fails all other requests as well.
    fn run<T>(
        &self,
        failed: &mut Option<MemoryError>,
        request: impl FnOnce(&Self) -> Result<T, RowError>,
    ) -> Result<T, MemoryError> {
        if let Some(error) = failed {
            return Err(error.clone());
        }
        request(self).map_err(|fault| match fault {
            RowError::Rejected(error) => error,
            RowError::Sqlite(error) => failed
                .insert(self.database.failed("written", error))
                .clone(),
        })
    }

    /// Returns the holder of a conversation.
    fn holder(&self, id: &ConversationId) -> Result<Option<i64>, RowError> {
        let mine = self.owner.as_ref().map(Owner::id);
        holds::holder(self.open()?, id, mine, &self.owners)
    }

    /// Removes a conversation, or returns its holder. The result is whether it existed, and whether
    /// any data was removed.
    fn remove(
        &self,
        id: &ConversationId,
        unchanged_since: Option<Timestamp>,
    ) -> Result<Result<(bool, bool), i64>, RowError> {
        if let Some(owner) = self.holder(id)? {
            return Ok(Err(owner));
        }
        let removed = rows::remove(self.open()?, id, unchanged_since)?;
        let cleared = (removed || unchanged_since.is_none()) && holds::clear(self.open()?, id)?;
        Ok(Ok((removed, removed || cleared)))
    }

    /// Holds a conversation, or returns its current holder.
    fn hold(&self, id: &ConversationId) -> Result<Result<(), i64>, RowError> {
        if let Some(owner) = self.holder(id)? {
            return Ok(Err(owner));
        }
        let mine = self.owner.as_ref().map_or(0, Owner::id);
        holds::hold(self.open()?, id, mine).map(Ok)
    }

    fn release(&self, connection: &Connection, id: &ConversationId) -> rusqlite::Result<()> {
        let mine = self.owner.as_ref().map_or(0, Owner::id);
        holds::release(connection, id, mine)
    }

    fn open(&self) -> Result<&Connection, MemoryError> {
        let closed = || MemoryError::new(MemoryErrorKind::Io, "the memory file is not open");
        self.connection.as_ref().ok_or_else(closed)
    }

    fn execute(&self, sql: &str) -> Result<(), MemoryError> {
        self.write(|connection| connection.prepare_cached(sql)?.raw_execute().map(drop))
    }

    fn write<T>(
        &self,
        write: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, MemoryError> {
        write(self.open()?).map_err(|error| self.database.failed("written", error))
    }
}

impl Drop for WriteWorker {
    fn drop(&mut self) {
        if let Some(owner) = &self.owner {
            owners().retain(|entry| entry.id != owner.id());
        }
    }
}

/// Returns `true` if the request must be on the disk before its reply. Holds are worthless after a
/// power cut.
fn must_sync(request: &WriteRequest) -> bool {
    matches!(
        request,
        WriteRequest::Save { .. } | WriteRequest::Trim { .. } | WriteRequest::Remove { .. }
    )
}

fn holder_of(request: &WriteRequest) -> Option<&Arc<Writer>> {
    match request {
        WriteRequest::Lease { writer, .. } => Some(writer),
        _ => None,
    }
}

fn wait_briefly(times: i32) -> bool {
    std::thread::sleep(Duration::from_millis(1));
    times < MAX_READER_WAITS
}

fn reply_with<T: 'static>(reply: Reply<T>, outcome: Result<T, MemoryError>) -> Completion {
    Box::new(move |_, failed| {
        // The receiver may have gone.
        let _ = reply.send(failed.map_or(outcome, |error| Err(error.clone())));
    })
}

fn reply_to_hold(
    outcome: Result<Result<(), i64>, MemoryError>,
    id: ConversationId,
    writer: Arc<Writer>,
    reply: Reply<Result<HoldGuard, i64>>,
) -> Completion {
    Box::new(move |_, failed| {
        let outcome = failed.map_or(outcome, |error| Err(error.clone()));
        // If the receiver has gone, dropping the guard releases the hold.
        let _ = reply.send(outcome.map(|outcome| outcome.map(|()| HoldGuard { id, writer })));
    })
}

fn finish_release(id: ConversationId, release_failed: bool) -> Completion {
    Box::new(move |worker, failed| {
        if release_failed || failed.is_some() {
            worker.unreleased.push(id);
        }
    })
}
