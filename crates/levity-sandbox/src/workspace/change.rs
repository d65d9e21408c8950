//! Notifications about changes that are made through a workspace.
//!
//! Listeners are called in the order in which they were added, on the thread that made the change.
//! A path in a change contains no link, so two spellings of one file give the same path.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

/// A change made through a workspace.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use levity_sandbox::Workspace;
///
/// # let folder = tempfile::tempdir()?;
/// let workspace = Workspace::open(folder.path())?;
/// let log = Arc::new(Mutex::new(Vec::new()));
/// let writer = log.clone();
/// workspace.on_change(move |change| {
///     writer.lock().unwrap().push(format!("{} {}", change.kind, change.path));
/// });
/// workspace.write("a.txt", b"")?;
/// workspace.rename("a.txt", "b.txt")?;
/// assert_eq!(*log.lock().unwrap(), ["written a.txt", "removed a.txt", "written b.txt"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// The path relative to the workspace, with `/` between the names and no link in it.
    pub path: String,
    /// The kind of the change.
    pub kind: ChangeKind,
}

/// The kind of change to a file or a folder.
///
/// Its `Display` is one word for a log: `written`, `removed` or `made`.
///
/// ```
/// use levity_sandbox::ChangeKind;
///
/// assert_eq!(ChangeKind::Removed.to_string(), "removed");
/// ```
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

    /// Calls all listeners with one change. A panic of a listener reaches the caller of the
    /// workspace, after the change was made.
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
