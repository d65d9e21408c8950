//! The thread that writes: it takes what many ask for and does it in one go.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use levity_core::{ConversationChange, ConversationId, MemoryError, MemoryErrorKind, Timestamp};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};

use super::desk::Desk;
use super::place::Place;
use super::reads::Readers;

/// How many may wait for the writer; others wait until they may.
const ROOM: usize = 1_024;

/// Something to be written.
pub(super) enum Work {
    Save {
        id: ConversationId,
        change: ConversationChange,
        reply: Reply<()>,
    },
    Trim {
        id: ConversationId,
        before: u64,
        reply: Reply<()>,
    },
    /// Remove a conversation, unless it was changed since a moment.
    Remove {
        id: ConversationId,
        unchanged_since: Option<Timestamp>,
        reply: Reply<Result<bool, i64>>,
    },
    /// Make more of a conversation's messages known to the search; the answer is whether all are.
    Index {
        id: ConversationId,
        reply: Reply<bool>,
    },
    /// Take some messages before a position away from the search; the answer is how many are left,
    /// 0 for few.
    Unindex {
        id: ConversationId,
        before: u64,
        reply: Reply<u64>,
    },
    /// Hold a conversation; the answer may be who does.
    Lease {
        id: ConversationId,
        writer: Arc<Writer>,
        reply: Reply<Result<Held, i64>>,
    },
    Release {
        id: ConversationId,
    },
    /// Leave nothing of what was removed.
    Wipe {
        reply: Reply<()>,
    },
    /// Only say that all before it is done.
    Settle {
        reply: Reply<()>,
    },
}

/// Where an answer goes.
pub(super) type Reply<T> = oneshot::Sender<Result<T, MemoryError>>;

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
    ) -> Result<Arc<Self>, MemoryError> {
        let (queue, queued) = channel();
        let desk = Desk::new(place.clone());
        let started = std::thread::Builder::new()
            .name("levity-memory".to_owned())
            .spawn(move || {
                serve(desk, &queued);
                // The last connection to be closed tidies up the file, which is no work for those
                // who wait.
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
    ) -> Result<T, MemoryError> {
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
}

fn gone() -> MemoryError {
    MemoryError::new(MemoryErrorKind::Io, "the memory's thread has ended")
}

/// A conversation that this owner holds; dropping it lets others have it.
pub(super) struct Held {
    pub(super) id: ConversationId,
    pub(super) writer: Arc<Writer>,
}

impl Drop for Held {
    fn drop(&mut self) {
        // Nobody waits for it, and each hold does so once, so it needs no room.
        let work = Work::Release {
            id: self.id.clone(),
        };
        let _ = self.writer.queue.send(Queued { work, _room: None });
    }
}

/// Works until nobody is left who could ask for anything.
fn serve(mut desk: Desk, queued: &Receiver<Queued>) {
    loop {
        let first = match desk.leisure() {
            Some(time) => queued.recv_timeout(time),
            None => queued.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let works = match first {
            Ok(first) => std::iter::once(first)
                .chain(queued.try_iter().take(ROOM))
                .collect(),
            Err(RecvTimeoutError::Timeout) => Vec::new(),
            Err(RecvTimeoutError::Disconnected) => return desk.close(),
        };
        desk.settle(
            works
                .into_iter()
                .map(|queued: Queued| queued.work)
                .collect(),
        );
    }
}

/// An owner of this process.
#[derive(Clone)]
pub(super) struct Known {
    pub(super) id: i64,
    pub(super) writer: Weak<Writer>,
    /// Closed when its thread has done all it was asked for and let go of everything.
    pub(super) life: watch::Receiver<()>,
}

static OWNERS: Mutex<Vec<Known>> = Mutex::new(Vec::new());

pub(super) fn owners() -> MutexGuard<'static, Vec<Known>> {
    OWNERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Another store of this process may have let go of a conversation, and not have come to write that
/// down: waits until it has.
pub(super) async fn settled(owner: i64) {
    let other = owners().iter().find(|known| known.id == owner).cloned();
    let Some(mut other) = other else { return };
    match other.writer.upgrade() {
        Some(writer) => drop(writer.ask(|reply| Work::Settle { reply }).await),
        // Nobody uses the store any more, and its thread comes to an end.
        None => while other.life.changed().await.is_ok() {},
    }
}
