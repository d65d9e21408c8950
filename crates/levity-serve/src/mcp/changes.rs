//! Notifications of changes, merged for clients that read slowly.
//!
//! A listener holds a set of changes, not a queue: a thousand changes of one resource are one
//! entry. Its size is bounded by the number of subscriptions. Listeners are held weakly, so a
//! disconnected client needs no clean-up.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

use crate::quota::Permit;

/// Notifies clients of changes, so that they list or read again. Cheap to clone.
///
/// Changes that occur faster than a client receives them are reported once.
///
/// ```
/// use levity_serve::mcp::{Changes, McpServer};
///
/// # fn main() -> levity_serve::Result<()> {
/// // Create it first, and pass it to the code that detects changes before the server exists.
/// let changes = Changes::new();
/// let server = McpServer::builder("files", "1.0").changes(changes.clone()).build()?;
/// changes.resource("file:///notes.md");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Changes(Arc<Hub>);

#[derive(Default)]
struct Hub {
    listeners: Mutex<Vec<Weak<ChangeListener>>>,
}

/// A listener for changes.
pub(super) struct ChangeListener {
    state: Mutex<ListenerState>,
    wake: Notify,
    _permit: Permit,
}

/// The changes since a listener last checked, and its subscriptions.
#[derive(Debug, Default)]
struct ListenerState {
    changes: ChangeSet,
    uris: BTreeSet<String>,
}

/// A set of changes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ChangeSet {
    pub(super) tools: bool,
    pub(super) prompts: bool,
    pub(super) resources: bool,
    /// The changed resources, at most as many as were subscribed to.
    pub(super) updated: BTreeSet<String>,
}

impl Changes {
    /// Creates a handle without listeners.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reports that the list of tools has changed.
    ///
    /// ```
    /// let changes = levity_serve::mcp::Changes::new();
    /// changes.tools(); // no listener yet: nothing happens
    /// assert_eq!(format!("{changes:?}"), "Changes(0)");
    /// ```
    pub fn tools(&self) {
        self.notify_all(|state| state.changes.tools = true);
    }

    /// Reports that the list of prompts has changed.
    pub fn prompts(&self) {
        self.notify_all(|state| state.changes.prompts = true);
    }

    /// Reports that the list of resources has changed.
    pub fn resources(&self) {
        self.notify_all(|state| state.changes.resources = true);
    }

    /// Reports that the resource at `uri` has changed.
    ///
    /// Only clients that subscribed to this URI are notified. The provider must return `true` from
    /// [`Resources::reports_updates`](super::Resources::reports_updates), or clients cannot
    /// subscribe.
    pub fn resource(&self, uri: &str) {
        self.notify_all(|state| {
            if state.uris.contains(uri) {
                state.changes.updated.insert(uri.to_owned());
            }
        });
    }

    /// Adds a listener, which holds this permit.
    pub(super) fn listen(&self, permit: Permit) -> Arc<ChangeListener> {
        let mut listeners = self.listeners();
        listeners.retain(|listener| listener.strong_count() > 0);
        let listener = Arc::new(ChangeListener {
            state: Mutex::default(),
            wake: Notify::new(),
            _permit: permit,
        });
        listeners.push(Arc::downgrade(&listener));
        listener
    }

    fn notify_all(&self, change: impl Fn(&mut ListenerState)) {
        let listeners: Vec<Arc<ChangeListener>> =
            self.listeners().iter().filter_map(Weak::upgrade).collect();
        for listener in listeners {
            change(&mut listener.state());
            listener.wake.notify_one();
        }
    }

    fn listeners(&self) -> MutexGuard<'_, Vec<Weak<ChangeListener>>> {
        self.0
            .listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl ChangeListener {
    /// Waits until something has changed, possibly nothing that this listener subscribed to.
    pub(super) async fn changed(&self) {
        self.wake.notified().await;
    }

    /// Returns the changes since the last call.
    pub(super) fn changes(&self) -> ChangeSet {
        std::mem::take(&mut self.state().changes)
    }

    /// Also reports changes of the resource at `uri`; `false` if there are `limit` subscriptions
    /// already.
    pub(super) fn subscribe(&self, uri: String, limit: usize) -> bool {
        let mut state = self.state();
        let fits = state.uris.contains(&uri) || state.uris.len() < limit;
        if fits {
            state.uris.insert(uri);
        }
        fits
    }

    pub(super) fn unsubscribe(&self, uri: &str) {
        let mut state = self.state();
        state.uris.remove(uri);
        state.changes.updated.remove(uri);
    }

    fn state(&self) -> MutexGuard<'_, ListenerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Changes({})", self.listeners().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Caller;
    use crate::quota::{Quota, TokenShare};

    #[test]
    fn listener_receives_each_subscribed_change_once() {
        let changes = Changes::new();
        let quota = Quota::new(2, TokenShare::DEFAULT);
        let permit = || quota.take(&Caller::owner());
        let listener = changes.listen(permit().unwrap());
        let other = changes.listen(permit().unwrap());
        assert!(permit().is_err(), "the limit is two listeners");
        assert!(
            listener.subscribe("a".into(), 1)
                && listener.subscribe("a".into(), 1)
                && !listener.subscribe("b".into(), 1)
        );
        for _ in 0..1000 {
            changes.tools();
            changes.resource("a");
            changes.resource("b");
        }
        let changes = listener.changes();
        assert!(
            changes.tools
                && !changes.prompts
                && changes.updated == BTreeSet::from(["a".to_owned()])
        );
        assert_eq!(listener.changes(), ChangeSet::default());
        assert!(other.changes().updated.is_empty());
        drop(other);
        assert!(permit().is_ok(), "a dropped listener releases its permit");
    }
}
