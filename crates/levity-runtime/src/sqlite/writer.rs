//! The writer's thread, which performs the jobs of many callers in one transaction.
//!
//! Callers send jobs through a channel and wait for the reply. A permit limits the queue to 1,024
//! waiting callers. Dropping a caller's future does not undo its job: the log of that run then
//! counts as broken until it is opened again.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};

use levity_core::{JournalError, JournalErrorKind, RunId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::file::JournalFile;
use super::job_runner::JobRunner;
use super::log::{Rows, SnapshotRow};
use super::mailbox::Mailbox;
use super::readers::Readers;

/// The maximum number of callers that wait for the writer; further ones wait for a permit.
const MAX_QUEUED: usize = 1_024;

/// A job for the writer's thread.
pub(super) enum Job {
    /// Take a run for this owner; the reply may be the owner that holds it.
    Take {
        run: RunId,
        writer: Arc<Writer>,
        reply: Reply<Result<HeldRun, i64>>,
    },
    /// Add records to a run, and delete the posts up to `given`.
    Append {
        run: RunId,
        key: i64,
        fence: i64,
        rows: Rows,
        given: Option<i64>,
        sync: bool,
        reply: Reply<()>,
    },
    /// Store the last snapshot of a run.
    Snapshot {
        run: RunId,
        key: i64,
        fence: i64,
        row: SnapshotRow,
        reply: Reply<()>,
    },
    /// Release a run for other owners.
    Release { key: i64, fence: i64 },
    /// Remove a run and its children; the reply may be the owner of one of them.
    Remove {
        run: RunId,
        reply: Reply<Result<bool, (i64, RunId)>>,
    },
    /// Store a post for a run.
    Post {
        run: RunId,
        post: String,
        reply: Reply<()>,
    },
    /// Deliver the posts of a run from now on.
    Watch {
        run: RunId,
        key: i64,
        fence: i64,
        mailbox: Arc<Mailbox>,
    },
    /// Deliver at once the posts of a run that is watched.
    Look { key: i64, reply: Reply<()> },
    /// Confirm that all earlier jobs are done.
    Settle { reply: Reply<()> },
}

/// The channel for the reply to a job.
pub(super) type Reply<T> = oneshot::Sender<Result<T, JournalError>>;

/// Sends jobs to the thread, which ends when the last writer is dropped.
pub(super) struct Writer {
    queue: Sender<Queued>,
    room: Arc<Semaphore>,
}

struct Queued {
    work: Job,
    /// The permit, released when the job is started.
    _room: Option<OwnedSemaphorePermit>,
}

impl Writer {
    pub(super) fn start(
        place: &Arc<JournalFile>,
        readers: Arc<Readers>,
    ) -> Result<Arc<Self>, JournalError> {
        let (queue, queued) = channel();
        let name = "levity-sqlite".to_owned();
        let job_runner = JobRunner::new(place.clone());
        let started = std::thread::Builder::new().name(name).spawn(move || {
            serve(job_runner, &queued);
            // The last connection to be closed cleans up the file, which callers should not wait
            // for.
            drop(readers);
        });
        started.map_err(|error| place.failed_io("written", error))?;
        Ok(Arc::new(Self {
            queue,
            room: Arc::new(Semaphore::new(MAX_QUEUED)),
        }))
    }

    /// Sends a job, and waits for the reply. The job is done even if the caller no longer waits.
    pub(super) async fn ask<T>(
        &self,
        work: impl FnOnce(Reply<T>) -> Job,
    ) -> Result<T, JournalError> {
        let room = self
            .room
            .clone()
            .acquire_owned()
            .await
            .map_err(|_| thread_ended())?;
        let (reply, answer) = oneshot::channel();
        self.queue
            .send(Queued {
                work: work(reply),
                _room: Some(room),
            })
            .map_err(|_| thread_ended())?;
        answer.await.map_err(|_| thread_ended())?
    }

    /// Sends a job without waiting. Each log does so at most twice, so it needs no permit.
    pub(super) fn tell(&self, work: Job) {
        let _ = self.queue.send(Queued { work, _room: None });
    }
}

fn thread_ended() -> JournalError {
    JournalError::new(JournalErrorKind::Io, "the journal's thread has ended")
}

/// A run that this owner holds; dropping it releases the run.
pub(super) struct HeldRun {
    pub(super) key: i64,
    pub(super) fence: i64,
    /// `true` if there was no such run before.
    pub(super) new: bool,
    pub(super) writer: Arc<Writer>,
}

impl Drop for HeldRun {
    fn drop(&mut self) {
        self.writer.tell(Job::Release {
            key: self.key,
            fence: self.fence,
        });
    }
}

/// Performs jobs until all senders are dropped.
fn serve(mut job_runner: JobRunner, queued: &Receiver<Queued>) {
    loop {
        let first = match job_runner.idle_time() {
            Some(time) => queued.recv_timeout(time),
            None => queued.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match first {
            Ok(first) => {
                let rest = queued.try_iter().take(MAX_QUEUED);
                job_runner.settle(
                    std::iter::once(first)
                        .chain(rest)
                        .map(|queued| queued.work)
                        .collect(),
                );
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        job_runner.poll();
    }
}
