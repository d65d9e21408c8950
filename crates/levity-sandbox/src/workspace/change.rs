use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

/// A change made through a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// The path relative to the workspace, with `/` between the names and no link in it.
    pub path: String,
    /// The kind of the change.
    pub kind: ChangeKind,
}

/// The kind of change to a file or a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ChangeKind {
    /// A file was created, has new content, or was renamed to this path.
    Written,
    /// The entry no longer exists.
    Removed,
    /// A folder was created.
    FolderCreated,
}

impl fmt::Display for ChangeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Written => "written",
            Self::Removed => "removed",
            Self::FolderCreated => "made",
        })
    }
}

type Listener = dyn Fn(&Change) + Send + Sync;

/// The listeners to notify of changes.
#[derive(Default)]
pub(super) struct Listeners(RwLock<Vec<Arc<Listener>>>);

impl Listeners {
    pub(super) fn add(&self, listener: impl Fn(&Change) + Send + Sync + 'static) {
        self.0
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Arc::new(listener));
    }

    pub(super) fn notify(&self, path: &str, kind: ChangeKind) {
        // Listeners are called without the lock, so that a listener can add another.
        let listeners = self
            .0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if listeners.is_empty() {
            return;
        }
        let change = Change {
            path: path.to_owned(),
            kind,
        };
        listeners.iter().for_each(|listener| listener(&change));
    }
}

impl fmt::Debug for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.read().unwrap_or_else(PoisonError::into_inner).len();
        f.debug_tuple("Listeners").field(&count).finish()
    }
}
