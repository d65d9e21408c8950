//! Performs the jobs of the writer's thread.
//!
//! All jobs that are queued at a moment form one transaction. Each job has a savepoint, so that one
//! failure does not undo the jobs of other runs. Replies are sent after the commit, when the result
//! of all jobs is known.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use levity_core::{JournalError, JournalErrorKind};
use levity_system::Owner;
use rusqlite::Connection;

use super::file::JournalFile;
use super::mailbox::Mailbox;
use super::owner;
use super::writer::{HeldRun, Job, Reply, Writer};
use crate::Durability;

/// The interval between checks for posts of other processes.
const POLL_INTERVAL: Duration = Duration::from_millis(150);

mod inbox;
mod rows;

/// The reply to a job, sent once the result of the whole transaction is known.
type Answer = Box<dyn FnOnce(&mut JobRunner, Option<&JournalError>)>;

/// It lives on the writer's thread and is used by nothing else.
pub(super) struct JobRunner {
    place: Arc<JournalFile>,
    owners: PathBuf,
    /// The connection, opened for the first write.
    connection: Option<Connection>,
    synced: bool,
    owner: Option<Owner>,
    /// The time of the last renewal of the lease.
    renewed: Option<i64>,
    /// The runs whose logs are alive, with the numbers they were opened under.
    held: HashMap<i64, i64>,
    /// The runs that were released while the release could not be written.
    unreleased: Vec<(i64, i64)>,
    /// The mailboxes of the runs that watch for posts.
    watched: HashMap<i64, WatchedRun>,
    /// The version of the file at the last check for posts of others.
    version: Option<i64>,
    polled: Option<Instant>,
}

struct WatchedRun {
    fence: i64,
    mailbox: Arc<Mailbox>,
    /// The last post that was delivered.
    last: i64,
}

impl JobRunner {
    pub(super) fn new(place: Arc<JournalFile>) -> Self {
        Self {
            owners: place.owners(),
            place,
            connection: None,
            synced: false,
            owner: None,
            renewed: None,
            held: HashMap::new(),
            unreleased: Vec::new(),
            watched: HashMap::new(),
            version: None,
            polled: None,
        }
    }

    /// Returns how long nothing needs to be done; forever if there are no runs.
    pub(super) fn idle_time(&self) -> Option<Duration> {
        let renew =
            (!self.held.is_empty() || !self.unreleased.is_empty()).then(|| self.place.lease / 3);
        let poll = (!self.watched.is_empty()).then_some(POLL_INTERVAL);
        renew.into_iter().chain(poll).min()
    }

    /// Does all of this in one transaction.
    pub(super) fn settle(&mut self, works: Vec<Job>) {
        let alone = works.len() == 1;
        let mut answers = Vec::with_capacity(works.len());
        let mut failed = self.begin(&works).err();
        for work in works {
            answers.push(match failed {
                None => self.perform(work, alone, &mut failed),
                Some(_) => self.refuse(work),
            });
        }
        if failed.is_none() {
            failed = self.execute("COMMIT").err();
        }
        match failed {
            None => self.unreleased.clear(),
            Some(_) => self.roll_back(),
        }
        for answer in answers {
            answer(self, failed.as_ref());
        }
    }

    /// Begins an exclusive transaction.
    ///
    /// It also writes releases that failed before and renews the lease, so that an active owner
    /// needs no extra transactions for that.
    fn begin(&mut self, works: &[Job]) -> Result<(), JournalError> {
        let sync = self.place.durability == Durability::Synced && works.iter().any(job_needs_sync);
        if self.connection.is_none() {
            self.connection = Some(self.place.connect()?);
            // The data version of another connection cannot be compared with that of this one.
            (self.synced, self.version) = (!sync, None);
        }
        self.place.check_place()?;
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
        self.unreleased
            .iter()
            .try_for_each(|(key, fence)| self.release(*key, *fence))?;
        if self.owner.is_none() {
            let writer = works.iter().find_map(|work| match work {
                Job::Take { writer, .. } => Some(writer),
                _ => None,
            });
            writer.map_or(Ok(()), |writer| self.register(writer))?;
        }
        if self.is_due() { self.renew() } else { Ok(()) }
    }

    fn roll_back(&mut self) {
        let broken = self.connection.as_ref().is_some_and(|connection| {
            !connection.is_autocommit() && connection.execute_batch("ROLLBACK").is_err()
        });
        if broken {
            self.connection = None;
        }
        self.renewed = None;
    }

    /// Does one job; a failed one leaves nothing behind. `failed` is set if no other job can
    /// continue either.
    fn perform(&mut self, work: Job, alone: bool, failed: &mut Option<JournalError>) -> Answer {
        // A single job is rolled back with the whole transaction.
        let mark = if alone {
            Ok(())
        } else {
            self.execute("SAVEPOINT work")
        };
        if let Err(error) = mark {
            *failed = Some(error);
            return self.refuse(work);
        }
        let (answer, error) = self.apply(work);
        // Some failures, such as a full disk, end the transaction automatically.
        let ended = self
            .connection
            .as_ref()
            .is_none_or(Connection::is_autocommit);
        *failed = match error {
            Some(error) if alone || ended => Some(error),
            Some(_) => self
                .execute("ROLLBACK TO work")
                .and_then(|()| self.execute("RELEASE work"))
                .err(),
            None if alone => None,
            None => self.execute("RELEASE work").err(),
        };
        answer
    }

    fn apply(&mut self, work: Job) -> (Answer, Option<JournalError>) {
        match work {
            Job::Take { run, writer, reply } => take_answer(self.take(&run), writer, reply),
            Job::Append {
                run,
                key,
                fence,
                rows,
                given,
                reply,
                ..
            } => answered(reply, self.append(&run, (key, fence), &rows, given)),
            Job::Snapshot {
                run,
                key,
                fence,
                row,
                reply,
            } => answered(reply, self.keep_snapshot(&run, (key, fence), &row)),
            Job::Release { key, fence } => {
                self.forget(key, fence);
                let error = self.release(key, fence).err();
                (release_answer(key, fence, error.is_some()), error)
            }
            Job::Remove { run, reply } => answered(reply, self.remove(&run)),
            Job::Post { run, post, reply } => match self.post(&run, &post) {
                Ok(key) => (
                    Box::new(move |job_runner, failed| job_runner.posted(key, reply, failed)),
                    None,
                ),
                Err(error) => answered(reply, Err(error)),
            },
            Job::Watch {
                run,
                key,
                fence,
                mailbox,
            } => (self.watch(&run, (key, fence), mailbox), None),
            Job::Look { key, reply } => (
                Box::new(move |job_runner, failed| job_runner.posted(key, reply, failed)),
                None,
            ),
            Job::Settle { reply } => answered(reply, Ok(())),
        }
    }

    /// Returns the reply to a job when nothing can be written.
    ///
    /// The replies still have to be sent, and releases have to be remembered.
    fn refuse(&mut self, work: Job) -> Answer {
        match work {
            Job::Take { reply, .. } => answered(reply, Ok(Err(0))).0,
            Job::Append { reply, .. }
            | Job::Snapshot { reply, .. }
            | Job::Post { reply, .. }
            | Job::Look { reply, .. }
            | Job::Settle { reply } => answered(reply, Ok(())).0,
            Job::Remove { reply, .. } => answered(reply, Ok(Ok(false))).0,
            Job::Release { key, fence } => {
                self.forget(key, fence);
                release_answer(key, fence, true)
            }
            Job::Watch {
                run,
                key,
                fence,
                mailbox,
            } => self.watch(&run, (key, fence), mailbox),
        }
    }

    /// Renews the lease and checks for posts of others, when it is time.
    pub(super) fn poll(&mut self) {
        if !self.unreleased.is_empty() || (!self.held.is_empty() && self.is_due()) {
            self.settle(Vec::new());
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "the interval of checks is not part of a run"
        )]
        let now = Instant::now();
        if !self.watched.is_empty()
            && self
                .polled
                .is_none_or(|polled| now - polled >= POLL_INTERVAL)
        {
            self.polled = Some(now);
            self.poll_posts();
        }
    }

    pub(super) fn execute(&self, sql: &str) -> Result<(), JournalError> {
        self.write(|connection| connection.prepare_cached(sql)?.raw_execute().map(drop))
    }

    pub(super) fn write<T>(
        &self,
        write: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, JournalError> {
        match &self.connection {
            Some(connection) => {
                write(connection).map_err(|error| self.place.failed("written", error))
            }
            None => Err(JournalError::new(
                JournalErrorKind::Io,
                "the journal is not open",
            )),
        }
    }
}

impl Drop for JobRunner {
    fn drop(&mut self) {
        if let Some(owner) = &self.owner {
            owner::forget(owner.id());
            // Others would notice without it.
            let _ = self.write(|connection| {
                connection.execute("DELETE FROM owners WHERE id = ?1", [owner.id()])
            });
        }
    }
}

/// Returns `true` if a job must be on disk before anything relies on it. The owner of a run is
/// irrelevant after a power failure.
fn job_needs_sync(work: &Job) -> bool {
    matches!(
        work,
        Job::Append { sync: true, .. } | Job::Post { .. } | Job::Remove { .. }
    )
}

fn answered<T: 'static>(
    reply: Reply<T>,
    done: Result<T, JournalError>,
) -> (Answer, Option<JournalError>) {
    let error = done.as_ref().err().cloned();
    let answer = Box::new(move |_: &mut JobRunner, failed: Option<&JournalError>| {
        // The receiver may be gone.
        let _ = reply.send(failed.map_or(done, |error| Err(error.clone())));
    });
    (answer, error)
}

fn take_answer(
    taken: Result<Result<(i64, i64), i64>, JournalError>,
    writer: Arc<Writer>,
    reply: Reply<Result<HeldRun, i64>>,
) -> (Answer, Option<JournalError>) {
    let (key, fence) = match taken {
        Ok(Ok(taken)) => taken,
        Ok(Err(owner)) => return answered(reply, Ok(Err(owner))),
        Err(error) => return answered(reply, Err(error)),
    };
    let answer = Box::new(
        move |job_runner: &mut JobRunner, failed: Option<&JournalError>| {
            let answer = match failed {
                Some(error) => {
                    job_runner.forget(key, fence);
                    Err(error.clone())
                }
                None => Ok(Ok(HeldRun {
                    key,
                    fence,
                    new: fence == 1,
                    writer,
                })),
            };
            // If the receiver is gone, dropping the answer releases the run.
            let _ = reply.send(answer);
        },
    );
    (answer, None)
}

/// A released run is free for this owner at once, and for others when that is written.
fn release_answer(key: i64, fence: i64, late: bool) -> Answer {
    Box::new(move |job_runner, failed| {
        if late || failed.is_some() {
            job_runner.unreleased.push((key, fence));
        }
    })
}
