//! The writer thread, which batches concurrent requests into one transaction.
//!
//! At most 1,024 requests wait in the queue. A dropped caller does not cancel its request, and a
//! hold keeps the order: a release is executed after every save that was requested before it.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use levity_core::{ConversationChange, ConversationId, MemoryError, MemoryErrorKind, Timestamp};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};

use super::database::Database;
use super::readers::Readers;
use super::worker::WriteWorker;

/// The maximum number of queued requests; further callers wait.
const MAX_QUEUED: usize = 1_024;

/// A request to the writer thread.
pub(super) enum WriteRequest {
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
    /// Removes a conversation, unless it changed after `unchanged_since`.
    Remove {
        id: ConversationId,
        unchanged_since: Option<Timestamp>,
        reply: Reply<Result<bool, i64>>,
    },
    /// Indexes more messages of a conversation; the reply is `true` if all are indexed.
    Index {
        id: ConversationId,
        reply: Reply<bool>,
    },
    /// Removes some messages before a position from the index; the reply is the remaining number, 0
    /// for a small remainder.
    Unindex {
        id: ConversationId,
        before: u64,
        reply: Reply<u64>,
    },
    /// Holds a conversation; the reply may be its current holder.
    Lease {
        id: ConversationId,
        writer: Arc<Writer>,
        reply: Reply<Result<HoldGuard, i64>>,
    },
    Release {
        id: ConversationId,
    },
    /// Removes all remaining data of deleted rows.
    Wipe {
        reply: Reply<()>,
    },
    /// Only replies once all earlier requests are done.
    Flush {
        reply: Reply<()>,
    },
}

/// The sender of a reply.
pub(super) type Reply<T> = oneshot::Sender<Result<T, MemoryError>>;

/// The handle of the writer thread, which ends when the last handle is dropped.
pub(super) struct Writer {
    queue: Sender<QueuedRequest>,
    permits: Arc<Semaphore>,
}

struct QueuedRequest {
    request: WriteRequest,
    /// Released when the thread takes the request.
    _permit: Option<OwnedSemaphorePermit>,
}

impl Writer {
    pub(super) fn start(
        database: &Arc<Database>,
        readers: Arc<Readers>,
    ) -> Result<Arc<Self>, MemoryError> {
        let (queue, receiver) = channel();
        let worker = WriteWorker::new(database.clone());
        let started = std::thread::Builder::new()
            .name("levity-memory".to_owned())
            .spawn(move || {
                run(worker, &receiver);
                // Closing the last connection cleans up the file, so it happens on this thread
                // instead of the callers'.
                drop(readers);
            });
        started.map_err(|error| database.failed_io("written", error))?;
        Ok(Arc::new(Self {
            queue,
            permits: Arc::new(Semaphore::new(MAX_QUEUED)),
        }))
    }

    /// Submits a request and waits for its reply. The thread executes it even if the caller stops
    /// waiting.
    pub(super) async fn submit<T>(
        &self,
        request: impl FnOnce(Reply<T>) -> WriteRequest,
    ) -> Result<T, MemoryError> {
        let permit = self
            .permits
            .clone()
            .acquire_owned()
            .await
            .map_err(|_| stopped())?;
        let (reply, answer) = oneshot::channel();
        self.queue
            .send(QueuedRequest {
                request: request(reply),
                _permit: Some(permit),
            })
            .map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }
}

fn stopped() -> MemoryError {
    MemoryError::new(
        MemoryErrorKind::Io,
        "the writer thread of the memory file has stopped; open \
        the store again",
    )
}

/// A hold of this owner on a conversation; dropping it releases the hold.
pub(super) struct HoldGuard {
    pub(super) id: ConversationId,
    pub(super) writer: Arc<Writer>,
}

impl Drop for HoldGuard {
    fn drop(&mut self) {
        // No caller waits for it, and each hold does this once, so it needs no permit.
        let request = WriteRequest::Release {
            id: self.id.clone(),
        };
        let _ = self.writer.queue.send(QueuedRequest {
            request,
            _permit: None,
        });
    }
}

/// Executes requests until all handles are dropped.
fn run(mut worker: WriteWorker, receiver: &Receiver<QueuedRequest>) {
    loop {
        let first = match worker.retry_delay() {
            Some(time) => receiver.recv_timeout(time),
            None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let requests = match first {
            Ok(first) => std::iter::once(first)
                .chain(receiver.try_iter().take(MAX_QUEUED))
                .collect(),
            Err(RecvTimeoutError::Timeout) => Vec::new(),
            Err(RecvTimeoutError::Disconnected) => return worker.close(),
        };
        worker.run_batch(
            requests
                .into_iter()
                .map(|queued: QueuedRequest| queued.request)
                .collect(),
        );
    }
}

/// An owner in this process.
#[derive(Clone)]
pub(super) struct OwnerEntry {
    pub(super) id: i64,
    pub(super) writer: Weak<Writer>,
    /// Closed when its thread has executed all requests and released all holds.
    pub(super) alive: watch::Receiver<()>,
}

static OWNERS: Mutex<Vec<OwnerEntry>> = Mutex::new(Vec::new());

pub(super) fn owners() -> MutexGuard<'static, Vec<OwnerEntry>> {
    OWNERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for another store of this process that has released a conversation but may not have
/// written the release yet.
pub(super) async fn wait_for_flush(owner: i64) {
    let other = owners().iter().find(|entry| entry.id == owner).cloned();
    let Some(mut other) = other else { return };
    match other.writer.upgrade() {
        Some(writer) => drop(writer.submit(|reply| WriteRequest::Flush { reply }).await),
        // No handle to the store remains, and its thread is about to end.
        None => while other.alive.changed().await.is_ok() {},
    }
}
