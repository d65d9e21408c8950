use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

/// Lets what is done under one key be done one after the other.
///
/// A tool that blocks goes on when its time is up or nobody waits for it any more. To undo its call
/// meanwhile would leave what it does afterwards. One for the whole program: a run that was dropped
/// may be resumed by an agent that was built anew, and the thread of the old one is still there.
pub(super) static TURNS: LazyLock<Turns> = LazyLock::new(Turns::default);

/// See [`TURNS`].
#[derive(Default)]
pub(super) struct Turns(Mutex<HashMap<Arc<str>, Weak<Turn<()>>>>);

impl Turns {
    /// Waits until nothing else is under way under this key; it is free again when the guard is
    /// dropped.
    pub(super) async fn wait(&self, key: &Arc<str>) -> OwnedMutexGuard<()> {
        self.of(key).lock_owned().await
    }

    fn of(&self, key: &Arc<str>) -> Arc<Turn<()>> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = turns.get(key).and_then(Weak::upgrade) {
            return turn;
        }
        turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::new(Turn::new(()));
        turns.insert(key.clone(), Arc::downgrade(&turn));
        turn
    }
}
