//! The queue of runs for each conversation within this process.
//!
//! Each conversation in use has a semaphore with one permit, which serves waiters in order. The
//! last user removes it, so that idle conversations cost nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use levity_core::ConversationId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The conversations that a run holds or waits for.
#[derive(Default)]
pub(super) struct OpenQueue {
    semaphores: Mutex<HashMap<ConversationId, Arc<Semaphore>>>,
}

impl OpenQueue {
    fn lock(&self) -> MutexGuard<'_, HashMap<ConversationId, Arc<Semaphore>>> {
        self.semaphores
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.lock().len()
    }
}

/// A place in the queue of one conversation; dropping it admits the next waiter.
pub(super) struct QueueSlot {
    queue: Arc<OpenQueue>,
    id: ConversationId,
    semaphore: Option<Arc<Semaphore>>,
    permit: Option<OwnedSemaphorePermit>,
}

impl QueueSlot {
    /// Waits for all earlier places in the queue.
    pub(super) async fn acquire(queue: &Arc<OpenQueue>, id: &ConversationId) -> Self {
        let mut slot = Self::enqueue(queue, id);
        if let Some(semaphore) = slot.semaphore.clone() {
            // No code closes the semaphore, so a permit always arrives.
            slot.permit = semaphore.acquire_owned().await.ok();
        }
        slot
    }

    /// Returns a place if no run holds the conversation or waits for it.
    pub(super) fn try_acquire(queue: &Arc<OpenQueue>, id: &ConversationId) -> Option<Self> {
        let mut slot = Self::enqueue(queue, id);
        slot.permit = slot.semaphore.clone()?.try_acquire_owned().ok();
        slot.permit.is_some().then_some(slot)
    }

    /// The count of references to the semaphore is the count of places in the queue.
    fn enqueue(queue: &Arc<OpenQueue>, id: &ConversationId) -> Self {
        let semaphore = queue
            .lock()
            .entry(id.clone())
            .or_insert_with(|| Arc::new(Semaphore::new(1)))
            .clone();
        Self {
            queue: queue.clone(),
            id: id.clone(),
            semaphore: Some(semaphore),
            permit: None,
        }
    }
}

impl Drop for QueueSlot {
    fn drop(&mut self) {
        self.permit = None;
        let mut semaphores = self.queue.lock();
        // Dropping the semaphore under the lock lets the last place see that it is the last.
        self.semaphore = None;
        if semaphores
            .get(&self.id)
            .is_some_and(|semaphore| Arc::strong_count(semaphore) == 1)
        {
            semaphores.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn queue_admits_waiters_in_order_and_drops_unused_entries() {
        let queue = Arc::new(OpenQueue::default());
        let id = ConversationId::new("a");
        let Poll::Ready(first) = poll(pin!(QueueSlot::acquire(&queue, &id))) else {
            panic!("the queue was empty")
        };
        let mut second = pin!(QueueSlot::acquire(&queue, &id));
        assert!(poll(second.as_mut()).is_pending());
        {
            let mut dropped = pin!(QueueSlot::acquire(&queue, &id));
            assert!(poll(dropped.as_mut()).is_pending());
        }
        let mut third = pin!(QueueSlot::acquire(&queue, &id));
        assert!(poll(third.as_mut()).is_pending());
        assert!(QueueSlot::try_acquire(&queue, &id).is_none());
        drop(first);
        assert!(poll(third.as_mut()).is_pending(), "the second slot is next");
        let Poll::Ready(second) = poll(second.as_mut()) else {
            panic!("the second slot is next")
        };
        drop(second);
        let Poll::Ready(third) = poll(third.as_mut()) else {
            panic!("the third slot is next")
        };
        assert_eq!(queue.len(), 1);
        drop(third);
        assert_eq!(queue.len(), 0);
    }
}
