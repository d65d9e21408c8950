//! What the writer's thread does with the work it is given.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use levity_core::{ConversationId, MemoryError, MemoryErrorKind, Timestamp};
use rusqlite::Connection;
use tokio::sync::watch;

use super::place::Place;
use super::rows::{self, Fault};
use super::writer::{Held, Known, Reply, Work, Writer, owners};
use super::{holds, index};
use crate::Durability;
use levity_core::World as _;
use levity_system::{Owner, SystemWorld, WithoutLocks};

/// When to try again what could not be done.
const AGAIN: Duration = Duration::from_secs(1);

/// So often, and a millisecond each time, is waited for those who still read what was removed.
const READERS: i32 = 100;

/// A file up to this size is written anew when a conversation is forgotten: 4 MiB, some 40 ms.
const SMALL: u64 = 4 << 20;

/// Said to whoever asked, once it is known whether all of it was written.
type Answer = Box<dyn FnOnce(&mut Desk, Option<&MemoryError>)>;

pub(super) struct Desk {
    place: Arc<Place>,
    owners: PathBuf,
    /// Opened when there is something to write.
    connection: Option<Connection>,
    synced: bool,
    owner: Option<Owner>,
    /// Conversations that were let go of, when that could not be written.
    unreleased: Vec<ConversationId>,
    /// Whether something that was removed may still be in the log beside the file.
    unwiped: bool,
    /// Up to which size the file is written anew before the log is cut off.
    anew: u64,
    /// Dropped after all else.
    life: watch::Sender<()>,
}

impl Desk {
    pub(super) fn new(place: Arc<Place>) -> Self {
        Self {
            owners: place.owners(),
            place,
            connection: None,
            synced: false,
            owner: None,
            unreleased: Vec::new(),
            unwiped: false,
            anew: 0,
            life: watch::Sender::new(()),
        }
    }

    /// How long nothing needs to be done; for ever, when all is done.
    pub(super) fn leisure(&self) -> Option<Duration> {
        (self.unwiped || !self.unreleased.is_empty()).then_some(AGAIN)
    }

    /// Does all of this in one transaction.
    pub(super) fn settle(&mut self, works: Vec<Work>) {
        let mut answers = Vec::with_capacity(works.len());
        let put_off = std::mem::take(&mut self.unwiped);
        let mut failed = self.begin(&works).err();
        for work in works {
            answers.push(self.perform(work, &mut failed));
        }
        if failed.is_none() {
            failed = self.execute("COMMIT").err();
        }
        match failed {
            None => self.unreleased.clear(),
            Some(_) => self.roll_back(),
        }
        let removed = self.unwiped;
        self.unwiped |= put_off;
        if self.unwiped && failed.is_none() {
            self.wipe(removed);
        }
        for answer in answers {
            answer(self, failed.as_ref());
        }
    }

    /// Does what was put off, as far as that can be done now.
    pub(super) fn close(&mut self) {
        if self.leisure().is_some() {
            self.settle(Vec::new());
        }
    }

    /// Begins a transaction that nobody else can come between.
    fn begin(&mut self, works: &[Work]) -> Result<(), MemoryError> {
        let sync = self.place.durability == Durability::Synced && works.iter().any(must_last);
        if self.connection.is_none() {
            // Whoever removed something may have been killed before the log was cut off.
            self.unwiped |= self.place.has_log();
            self.connection = Some(self.place.connect()?);
            self.synced = !sync;
        }
        self.place.check_place()?;
        if self.synced != sync {
            // A full sync takes along what was written before without one.
            self.execute(if sync {
                "PRAGMA synchronous = FULL"
            } else {
                "PRAGMA synchronous = NORMAL"
            })?;
            self.synced = sync;
        }
        self.execute("BEGIN IMMEDIATE")?;
        if self.owner.is_none()
            && let Some(writer) = works.iter().find_map(holder_of)
        {
            self.appear(writer)?;
        }
        self.unreleased
            .iter()
            .try_for_each(|id| self.write(|connection| self.release(connection, id)))
    }

    /// Becomes an owner, and forgets what others held who are gone.
    fn appear(&mut self, writer: &Arc<Writer>) -> Result<(), MemoryError> {
        let owner = Owner::new(&self.owners, || SystemWorld.random(), WithoutLocks::Fail)
            .map_err(|error| self.place.failed_io("locked for holding", error))?;
        self.write(|connection| holds::forget_the_dead(connection, &self.owners))?;
        let (writer, life) = (Arc::downgrade(writer), self.life.subscribe());
        owners().push(Known {
            id: owner.id(),
            writer,
            life,
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

    /// Moves all that is in the log into the file, which cuts the log off: pages from before a
    /// removal are gone. Who only tries once more does not wait for others: somebody who reads for
    /// long would slow down every save.
    fn wipe(&mut self, patient: bool) {
        let written = self.write_anew();
        let Some(connection) = &mut self.connection else {
            return;
        };
        let wiped = connection
            .busy_handler(patient.then_some(briefly as fn(i32) -> bool))
            .and_then(|()| {
                connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| {
                    row.get::<_, i64>(0)
                })
            });
        // Somebody may be reading what was there before; then it is tried again.
        self.unwiped = written.is_err() || !matches!(wiped, Ok(0));
        if connection
            .busy_handler(Some(levity_sqlite::try_again))
            .is_err()
        {
            self.connection = None;
        }
    }

    /// Writes a file anew from which somebody wants something gone. SQLite overwrites what is
    /// deleted, but not the copies that stay behind when it moves rows from page to page.
    fn write_anew(&mut self) -> Result<(), MemoryError> {
        let size = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size";
        let size =
            self.write(|connection| connection.query_row(size, [], |row| row.get::<_, i64>(0)))?;
        if u64::try_from(size).is_ok_and(|size| size <= self.anew) {
            self.execute("VACUUM")?;
        }
        self.anew = 0;
        Ok(())
    }

    fn perform(&mut self, work: Work, failed: &mut Option<MemoryError>) -> Answer {
        match work {
            Work::Save { id, change, reply } => answered(
                reply,
                self.run(failed, |desk| rows::save(desk.open()?, &id, &change)),
            ),
            Work::Trim { id, before, reply } => {
                let done = self.run(failed, |desk| rows::trim(desk.open()?, &id, before));
                self.unwiped |= matches!(done, Ok(true));
                answered(reply, done.map(drop))
            }
            Work::Remove {
                id,
                unchanged_since,
                reply,
            } => {
                let done = self.run(failed, |desk| desk.remove(&id, unchanged_since));
                let removed = done.map(|done| {
                    done.map(|(removed, wipe)| {
                        self.unwiped |= wipe;
                        if wipe && unchanged_since.is_none() {
                            self.anew = self.anew.max(SMALL);
                        }
                        removed
                    })
                });
                answered(reply, removed)
            }
            Work::Index { id, reply } => answered(
                reply,
                self.run(failed, |desk| index::index(desk.open()?, &id)),
            ),
            Work::Unindex { id, before, reply } => answered(
                reply,
                self.run(failed, |desk| index::unindex(desk.open()?, &id, before)),
            ),
            Work::Lease { id, writer, reply } => {
                let done = self.run(failed, |desk| desk.hold(&id));
                took(done, id, writer, reply)
            }
            Work::Release { id } => {
                let done = self.run(failed, |desk| Ok(desk.release(desk.open()?, &id)?));
                let late = done.is_err();
                let_go(id, late)
            }
            Work::Settle { reply } => answered(reply, Ok(())),
            Work::Wipe { reply } => {
                (self.unwiped, self.anew) = (true, u64::MAX);
                answered(reply, Ok(()))
            }
        }
    }

    /// Does one thing. What it fails with by itself leaves nothing behind; `failed` is set when
    /// SQLite fails, and nothing else can go on either.
    fn run<T>(
        &self,
        failed: &mut Option<MemoryError>,
        work: impl FnOnce(&Self) -> Result<T, Fault>,
    ) -> Result<T, MemoryError> {
        if let Some(error) = failed {
            return Err(error.clone());
        }
        work(self).map_err(|fault| match fault {
            Fault::Own(error) => error,
            Fault::Sqlite(error) => failed.insert(self.place.failed("written", error)).clone(),
        })
    }

    /// Who holds a conversation.
    fn holder(&self, id: &ConversationId) -> Result<Option<i64>, Fault> {
        let mine = self.owner.as_ref().map(Owner::id);
        holds::holder(self.open()?, id, mine, &self.owners)
    }

    /// Removes a conversation, or says who holds it. It says whether there was one, and whether
    /// anything was removed.
    fn remove(
        &self,
        id: &ConversationId,
        unchanged_since: Option<Timestamp>,
    ) -> Result<Result<(bool, bool), i64>, Fault> {
        if let Some(owner) = self.holder(id)? {
            return Ok(Err(owner));
        }
        let removed = rows::remove(self.open()?, id, unchanged_since)?;
        let cleared = (removed || unchanged_since.is_none()) && holds::clear(self.open()?, id)?;
        Ok(Ok((removed, removed || cleared)))
    }

    /// Holds a conversation, or says who does.
    fn hold(&self, id: &ConversationId) -> Result<Result<(), i64>, Fault> {
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
        let closed = || MemoryError::new(MemoryErrorKind::Io, "the memory is not open");
        self.connection.as_ref().ok_or_else(closed)
    }

    fn execute(&self, sql: &str) -> Result<(), MemoryError> {
        self.write(|connection| connection.prepare_cached(sql)?.raw_execute().map(drop))
    }

    fn write<T>(
        &self,
        write: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, MemoryError> {
        write(self.open()?).map_err(|error| self.place.failed("written", error))
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        if let Some(owner) = &self.owner {
            owners().retain(|known| known.id != owner.id());
        }
    }
}

/// Whether it must be on the disk before anybody goes by it. Who holds what is of no use after a
/// power cut.
fn must_last(work: &Work) -> bool {
    matches!(
        work,
        Work::Save { .. } | Work::Trim { .. } | Work::Remove { .. }
    )
}

fn holder_of(work: &Work) -> Option<&Arc<Writer>> {
    match work {
        Work::Lease { writer, .. } => Some(writer),
        _ => None,
    }
}

fn briefly(times: i32) -> bool {
    std::thread::sleep(Duration::from_millis(1));
    times < READERS
}

fn answered<T: 'static>(reply: Reply<T>, done: Result<T, MemoryError>) -> Answer {
    Box::new(move |_, failed| {
        // Nobody may wait for it any more.
        let _ = reply.send(failed.map_or(done, |error| Err(error.clone())));
    })
}

fn took(
    done: Result<Result<(), i64>, MemoryError>,
    id: ConversationId,
    writer: Arc<Writer>,
    reply: Reply<Result<Held, i64>>,
) -> Answer {
    Box::new(move |_, failed| {
        let done = failed.map_or(done, |error| Err(error.clone()));
        // If nobody waits for it any more, dropping it lets go.
        let _ = reply.send(done.map(|done| done.map(|()| Held { id, writer })));
    })
}

fn let_go(id: ConversationId, late: bool) -> Answer {
    Box::new(move |desk, failed| {
        if late || failed.is_some() {
            desk.unreleased.push(id);
        }
    })
}
