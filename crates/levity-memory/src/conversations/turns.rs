//! Whose turn it is within this process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use levity_core::ConversationId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The conversations that somebody has or waits for.
#[derive(Default)]
pub(super) struct Turns {
    gates: Mutex<HashMap<ConversationId, Arc<Semaphore>>>,
}

impl Turns {
    fn lock(&self) -> MutexGuard<'_, HashMap<ConversationId, Arc<Semaphore>>> {
        self.gates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.lock().len()
    }
}

/// A place in the queue of a conversation; leaving it lets the next one in.
pub(super) struct Turn {
    turns: Arc<Turns>,
    id: ConversationId,
    gate: Option<Arc<Semaphore>>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Turn {
    /// Waits for all who came before.
    pub(super) async fn take(turns: &Arc<Turns>, id: &ConversationId) -> Self {
        let mut turn = Self::queue(turns, id);
        if let Some(gate) = turn.gate.clone() {
            // Nobody ever closes the gate, so there always is a permit.
            turn.permit = gate.acquire_owned().await.ok();
        }
        turn
    }

    /// The turn, if nobody has it or waits for it.
    pub(super) fn try_take(turns: &Arc<Turns>, id: &ConversationId) -> Option<Self> {
        let mut turn = Self::queue(turns, id);
        turn.permit = turn.gate.clone()?.try_acquire_owned().ok();
        turn.permit.is_some().then_some(turn)
    }

    fn queue(turns: &Arc<Turns>, id: &ConversationId) -> Self {
        let gate = turns
            .lock()
            .entry(id.clone())
            .or_insert_with(|| Arc::new(Semaphore::new(1)))
            .clone();
        Self {
            turns: turns.clone(),
            id: id.clone(),
            gate: Some(gate),
            permit: None,
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.permit = None;
        let mut gates = self.turns.lock();
        // Within the lock, so that the last to go sees that it is the last.
        self.gate = None;
        if gates
            .get(&self.id)
            .is_some_and(|gate| Arc::strong_count(gate) == 1)
        {
            gates.remove(&self.id);
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
    fn turns_come_in_the_order_of_asking_and_leave_nothing() {
        let turns = Arc::new(Turns::default());
        let id = ConversationId::new("a");
        let Poll::Ready(first) = poll(pin!(Turn::take(&turns, &id))) else {
            panic!("nobody was there")
        };
        let mut second = pin!(Turn::take(&turns, &id));
        assert!(poll(second.as_mut()).is_pending());
        {
            let mut impatient = pin!(Turn::take(&turns, &id));
            assert!(poll(impatient.as_mut()).is_pending());
        }
        let mut third = pin!(Turn::take(&turns, &id));
        assert!(poll(third.as_mut()).is_pending());
        assert!(Turn::try_take(&turns, &id).is_none());
        drop(first);
        assert!(poll(third.as_mut()).is_pending(), "the second came first");
        let Poll::Ready(second) = poll(second.as_mut()) else {
            panic!("it is its turn")
        };
        drop(second);
        let Poll::Ready(third) = poll(third.as_mut()) else {
            panic!("it is its turn")
        };
        assert_eq!(turns.len(), 1);
        drop(third);
        assert_eq!(turns.len(), 0);
    }
}
