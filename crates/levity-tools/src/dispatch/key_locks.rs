//! Locks by idempotency key, for blocking tools that can be undone.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

/// Serializes work under the same key.
///
/// A blocking tool continues after its timeout or cancellation. Undoing its call meanwhile would
/// leave its later effects. There is one for the whole program: a dropped run may be resumed by a
/// newly built agent, while the thread of the old one still runs.
pub(super) static KEY_LOCKS: LazyLock<KeyLocks> = LazyLock::new(KeyLocks::default);

/// A set of locks by key; see [`KEY_LOCKS`].
#[derive(Default)]
pub(super) struct KeyLocks(Mutex<HashMap<Arc<str>, Weak<Turn<()>>>>);

impl KeyLocks {
    /// Waits until no other work is in progress under this key; it is free again when the guard is
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
