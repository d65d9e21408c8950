//! The conversations that this store holds. A task for each hold renews its lease in the store, and
//! ends it.
//!
//! The table in memory keeps holders of this process apart, and the lease in the store those of
//! other processes. A lease that cannot be renewed is not an error at once: the next save notices
//! that it was lost.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::{Either, select};
use levity_core::{ConversationId, MemoryError, MemoryErrorKind};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;

use super::KeyValueMemory;

/// The holds of this process on one store, and their tasks.
#[derive(Default)]
pub(super) struct Holds {
    table: Mutex<HashMap<ConversationId, Arc<Hold>>>,
    tasks: Mutex<JoinSet<()>>,
}

/// `released` is set when the guard is dropped, and `done` closes when the store knows.
struct Hold {
    token: u64,
    /// Set once the lease is in the store.
    acquired: AtomicBool,
    released: AtomicBool,
    /// Closed when the lease is removed from the store.
    done: Semaphore,
}

/// A hold that lasts until this guard is dropped.
pub(super) struct HoldGuard {
    pub(super) token: u64,
    hold: Arc<Hold>,
    _signal: oneshot::Sender<()>,
}

impl HoldGuard {
    /// Requires the lease for all further changes by this process.
    pub(super) fn mark_acquired(&self) {
        self.hold.acquired.store(true, Ordering::Release);
    }
}

impl Drop for HoldGuard {
    fn drop(&mut self) {
        self.hold.released.store(true, Ordering::Release);
    }
}

/// The entry of a hold in the table. It is removed with its task, even when the runtime shuts down.
struct Entry {
    holds: Arc<Holds>,
    id: ConversationId,
    hold: Arc<Hold>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.holds.table().remove(&self.id);
        self.hold.done.close();
    }
}

impl Holds {
    fn table(&self) -> MutexGuard<'_, HashMap<ConversationId, Arc<Hold>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `true` if this process has the hold of a lease.
    pub(super) fn is_active(&self, id: &ConversationId, token: u64) -> bool {
        self.table().get(id).is_some_and(|hold| hold.token == token)
    }

    /// Returns the token of this process's hold.
    pub(super) fn token(&self, id: &ConversationId) -> Option<u64> {
        let table = self.table();
        let hold = table.get(id)?;
        let is_active =
            hold.acquired.load(Ordering::Acquire) && !hold.released.load(Ordering::Acquire);
        is_active.then_some(hold.token)
    }

    /// Waits until all released holds are removed from the store.
    pub(super) async fn wait_for_releases(&self) {
        loop {
            let released = |hold: &&Arc<Hold>| hold.released.load(Ordering::Acquire);
            let Some(hold) = self.table().values().find(released).cloned() else {
                return;
            };
            let _ = hold.done.acquire().await;
        }
    }

    /// Waits until a released hold is removed from the store; a hold that is still in use is busy.
    pub(super) async fn wait(&self, id: &ConversationId) -> Result<(), MemoryError> {
        loop {
            let Some(hold) = self.table().get(id).cloned() else {
                return Ok(());
            };
            if !hold.released.load(Ordering::Acquire) {
                return Err(MemoryError::busy(id));
            }
            // No code adds permits: the wait ends when the semaphore closes.
            let _ = hold.done.acquire().await;
        }
    }
}

impl KeyValueMemory {
    /// Adds a hold to the table, and starts the task that maintains its lease.
    ///
    /// The task belongs to the store's set of tasks and ends with it.
    pub(super) async fn register_hold(
        &self,
        id: &ConversationId,
    ) -> Result<HoldGuard, MemoryError> {
        let runtime = Handle::try_current().map_err(|error| {
            let message = "holding a conversation in a key-value store requires a tokio runtime";
            MemoryError::new(MemoryErrorKind::Io, message).with_source(error)
        })?;
        let token = self.world.random();
        let hold = Arc::new(Hold {
            token,
            acquired: AtomicBool::new(false),
            released: AtomicBool::new(false),
            done: Semaphore::new(0),
        });
        loop {
            self.holds.wait(id).await?;
            let mut table = self.holds.table();
            if !table.contains_key(id) {
                table.insert(id.clone(), hold.clone());
                break;
            }
        }
        let entry = Entry {
            holds: self.holds.clone(),
            id: id.clone(),
            hold: hold.clone(),
        };
        let (signal, dropped) = oneshot::channel();
        let mut tasks = self
            .holds
            .tasks
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn_on(self.clone().maintain_lease(entry, dropped), &runtime);
        drop(tasks);
        Ok(HoldGuard {
            token,
            hold,
            _signal: signal,
        })
    }

    /// Renews a lease until its hold is dropped, then ends it. If ending it fails, the lease
    /// expires.
    async fn maintain_lease(self, entry: Entry, mut dropped: oneshot::Receiver<()>) {
        let (id, token) = (&entry.id, entry.hold.token);
        while let Either::Right(_) = select(&mut dropped, self.world.sleep(self.lease / 3)).await {
            let _ = self.renew(id, token).await;
            // The `sleep` of a test world may return at once.
            tokio::task::yield_now().await;
        }
        let _ = self.release(id, token).await;
    }
}
