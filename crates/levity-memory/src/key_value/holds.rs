//! Which conversations this store holds. A task for each renews the lease in the store, and ends
//! it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::{Either, select};
use levity_core::{ConversationId, MemoryError, MemoryErrorKind};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;

use super::KeyValueMemory;

/// The holds of this process over one store, and their tasks.
#[derive(Default)]
pub(super) struct Holds {
    table: Mutex<HashMap<ConversationId, Arc<Hold>>>,
    tasks: Mutex<JoinSet<()>>,
}

struct Hold {
    token: u64,
    /// Whether the lease is in the store.
    taken: AtomicBool,
    released: AtomicBool,
    /// Closed when the lease is gone from the store.
    done: Semaphore,
}

/// A hold, until it is dropped.
pub(super) struct Held {
    pub(super) token: u64,
    hold: Arc<Hold>,
    _signal: oneshot::Sender<()>,
}

impl Held {
    /// From now on, changes by this process need the lease.
    pub(super) fn take(&self) {
        self.hold.taken.store(true, Ordering::Release);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.hold.released.store(true, Ordering::Release);
    }
}

/// The entry of a hold in the table. It goes with its task, also when the runtime ends.
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

    /// Returns whether a lease has its hold in this process.
    pub(super) fn has(&self, id: &ConversationId, token: u64) -> bool {
        self.table().get(id).is_some_and(|hold| hold.token == token)
    }

    /// Returns the token of the hold that this process has.
    pub(super) fn token(&self, id: &ConversationId) -> Option<u64> {
        let table = self.table();
        let hold = table.get(id)?;
        let has = hold.taken.load(Ordering::Acquire) && !hold.released.load(Ordering::Acquire);
        has.then_some(hold.token)
    }

    /// Waits until all holds that were dropped are gone from the store.
    pub(super) async fn wait_for_releases(&self) {
        loop {
            let released = |hold: &&Arc<Hold>| hold.released.load(Ordering::Acquire);
            let Some(hold) = self.table().values().find(released).cloned() else {
                return;
            };
            let _ = hold.done.acquire().await;
        }
    }

    /// Waits until a hold that was dropped is gone from the store; one that was not is busy.
    pub(super) async fn wait(&self, id: &ConversationId) -> Result<(), MemoryError> {
        loop {
            let Some(hold) = self.table().get(id).cloned() else {
                return Ok(());
            };
            if !hold.released.load(Ordering::Acquire) {
                return Err(MemoryError::busy(id));
            }
            // Nobody adds permits: it ends when the semaphore is closed.
            let _ = hold.done.acquire().await;
        }
    }
}

impl KeyValueMemory {
    /// Enters a hold into the table, and starts the task that takes care of its lease.
    pub(super) async fn enter(&self, id: &ConversationId) -> Result<Held, MemoryError> {
        let runtime = Handle::try_current().map_err(|error| {
            let message = "to hold a conversation of a key-value store needs a tokio runtime";
            MemoryError::new(MemoryErrorKind::Io, message).with_source(error)
        })?;
        let token = self.world.random();
        let hold = Arc::new(Hold {
            token,
            taken: AtomicBool::new(false),
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
        tasks.spawn_on(self.clone().keep(entry, dropped), &runtime);
        drop(tasks);
        Ok(Held {
            token,
            hold,
            _signal: signal,
        })
    }

    /// Renews a lease until its hold is dropped, and ends it then. If that fails, the lease
    /// expires.
    async fn keep(self, entry: Entry, mut dropped: oneshot::Receiver<()>) {
        let (id, token) = (&entry.id, entry.hold.token);
        while let Either::Right(_) = select(&mut dropped, self.world.sleep(self.lease / 3)).await {
            let _ = self.renew(id, token).await;
            // The world of a test may not wait.
            tokio::task::yield_now().await;
        }
        let _ = self.release(id, token).await;
    }
}
