//! The thread that writes: it takes what many ask for and does it in one go.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};

use levity_core::{JournalError, JournalErrorKind, RunId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::desk::Desk;
use super::file::Place;
use super::log::{Rows, SnapshotRow};
use super::mailbox::Mailbox;
use super::reads::Readers;

/// How many may wait for the writer; others wait until they may.
const ROOM: usize = 1_024;

/// Something to be written.
pub(super) enum Work {
    /// Take a run for this owner; the answer may be who has it.
    Take {
        run: RunId,
        writer: Arc<Writer>,
        reply: Reply<Result<Held, i64>>,
    },
    /// Add records to a run, and forget the posts up to `given`.
    Append {
        run: RunId,
        key: i64,
        fence: i64,
        rows: Rows,
        given: Option<i64>,
        sync: bool,
        reply: Reply<()>,
    },
    /// Keep the last snapshot of a run.
    Snapshot {
        run: RunId,
        key: i64,
        fence: i64,
        row: SnapshotRow,
        reply: Reply<()>,
    },
    /// Let go of a run.
    Release { key: i64, fence: i64 },
    /// Remove a run and those below it; the answer may be who has which of them.
    Remove {
        run: RunId,
        reply: Reply<Result<bool, (i64, RunId)>>,
    },
    /// Leave word for a run.
    Post {
        run: RunId,
        post: String,
        reply: Reply<()>,
    },
    /// Bring what is left for a run.
    Watch {
        run: RunId,
        key: i64,
        fence: i64,
        mailbox: Arc<Mailbox>,
    },
    /// Bring at once what is left for a run that is watched.
    Look { key: i64, reply: Reply<()> },
    /// Only say that all before it is done.
    Settle { reply: Reply<()> },
}

/// Where an answer goes.
pub(super) type Reply<T> = oneshot::Sender<Result<T, JournalError>>;

/// Takes work for the thread, which ends when the last of its kind is gone.
pub(super) struct Writer {
    queue: Sender<Queued>,
    room: Arc<Semaphore>,
}

struct Queued {
    work: Work,
    /// Given back when the work is taken up.
    _room: Option<OwnedSemaphorePermit>,
}

impl Writer {
    pub(super) fn start(
        place: &Arc<Place>,
        readers: Arc<Readers>,
    ) -> Result<Arc<Self>, JournalError> {
        let (queue, queued) = channel();
        let name = "levity-sqlite".to_owned();
        let desk = Desk::new(place.clone());
        let started = std::thread::Builder::new().name(name).spawn(move || {
            serve(desk, &queued);
            // The last connection to be closed tidies up the file, which is no work for those who
            // wait.
            drop(readers);
        });
        started.map_err(|error| place.failed_io("written", error))?;
        Ok(Arc::new(Self {
            queue,
            room: Arc::new(Semaphore::new(ROOM)),
        }))
    }

    /// Has something done, and waits for the answer. It is done, too, if nobody waits any more.
    pub(super) async fn ask<T>(
        &self,
        work: impl FnOnce(Reply<T>) -> Work,
    ) -> Result<T, JournalError> {
        let room = self
            .room
            .clone()
            .acquire_owned()
            .await
            .map_err(|_| gone())?;
        let (reply, answer) = oneshot::channel();
        self.queue
            .send(Queued {
                work: work(reply),
                _room: Some(room),
            })
            .map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }

    /// Has something done that nobody waits for. Each log does so twice at most, so it needs no
    /// room.
    pub(super) fn tell(&self, work: Work) {
        let _ = self.queue.send(Queued { work, _room: None });
    }
}

fn gone() -> JournalError {
    JournalError::new(JournalErrorKind::Io, "the journal's thread has ended")
}

/// A run that this owner has; dropping it lets others have it.
pub(super) struct Held {
    pub(super) key: i64,
    pub(super) fence: i64,
    /// Whether there was no such run before.
    pub(super) new: bool,
    pub(super) writer: Arc<Writer>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.writer.tell(Work::Release {
            key: self.key,
            fence: self.fence,
        });
    }
}

/// Works until nobody is left who could ask for anything.
fn serve(mut desk: Desk, queued: &Receiver<Queued>) {
    loop {
        let first = match desk.leisure() {
            Some(time) => queued.recv_timeout(time),
            None => queued.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match first {
            Ok(first) => {
                let rest = queued.try_iter().take(ROOM);
                desk.settle(
                    std::iter::once(first)
                        .chain(rest)
                        .map(|queued| queued.work)
                        .collect(),
                );
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        desk.look_around();
    }
}
