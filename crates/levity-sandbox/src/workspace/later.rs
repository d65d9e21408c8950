//! Paths that are denied while a workspace is open.
//!
//! The rules of a workspace are compiled once. A program that learns of a secret file later, such
//! as the database that another process creates, gives its workspace a source of denied paths. The
//! workspace asks the source before each access, so the source must be cheap if nothing changed.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::deny::{Deny, Rules};

/// Paths that a workspace denies from now on, for
/// [`WorkspaceBuilder::deny_from`](super::WorkspaceBuilder::deny_from).
///
/// ```
/// use levity_sandbox::DeniedPaths;
///
/// let paths = DeniedPaths::new().deny("/runs.db").reserve("runs.db-wal");
/// assert_ne!(paths, DeniedPaths::default());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct DeniedPaths {
    globs: Vec<String>,
    reserved: Vec<String>,
}

impl DeniedPaths {
    /// Returns an empty list of paths.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a glob, with the same meaning as in
    /// [`WorkspaceBuilder::deny`](super::WorkspaceBuilder::deny). If a glob does not parse, the
    /// workspace denies every path.
    pub fn deny(mut self, glob: impl Into<String>) -> Self {
        self.globs.push(glob.into());
        self
    }

    /// Adds a path that commands must not create, with the same meaning as in
    /// [`WorkspaceBuilder::reserve`](super::WorkspaceBuilder::reserve).
    pub fn reserve(mut self, path: impl Into<String>) -> Self {
        self.reserved.push(path.into());
        self
    }
}

type Source = dyn Fn() -> Option<DeniedPaths> + Send + Sync;

/// A source of denied paths, which a builder can clone.
///
/// The lock keeps an older list from replacing a newer one. It also keeps workspaces safe to use
/// after a panic, whatever the source contains.
#[derive(Clone, Default)]
pub(super) struct DenySource(Option<Arc<Mutex<Source>>>);

impl DenySource {
    pub(super) fn new(source: impl Fn() -> Option<DeniedPaths> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(Mutex::new(source))))
    }
}

impl fmt::Debug for DenySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DenySource")
            .field(&self.0.is_some())
            .finish()
    }
}

/// The rules of an open workspace: those of its builder, and those of its source.
#[derive(Debug)]
pub(super) struct LiveDeny {
    rules: Deny,
    source: DenySource,
    later: RwLock<Arc<Later>>,
    /// The number of lists that the source has returned.
    changes: AtomicU64,
}

#[derive(Debug, Default)]
struct Later {
    /// `None` if there are no rules.
    rules: Option<Deny>,
    /// `true` if a glob does not parse.
    denies_all: bool,
    reserved: Vec<String>,
}

impl LiveDeny {
    pub(super) fn new(rules: Deny, source: DenySource) -> Self {
        Self {
            rules,
            source,
            later: RwLock::default(),
            changes: AtomicU64::new(0),
        }
    }

    /// Returns `true` if there is a source.
    #[cfg_attr(not(feature = "commands"), allow(dead_code))]
    pub(super) fn can_change(&self) -> bool {
        self.source.0.is_some()
    }

    /// Asks the source, and returns the number of its changes.
    pub(super) fn refresh(&self) -> u64 {
        if let Some(source) = &self.source.0 {
            let source = source.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(paths) = source() {
                *self.later.write().unwrap_or_else(PoisonError::into_inner) =
                    Arc::new(Later::new(paths));
                self.changes.fetch_add(1, Ordering::Release);
            }
        }
        self.changes.load(Ordering::Acquire)
    }

    fn later(&self) -> Option<Arc<Later>> {
        self.source.0.as_ref()?;
        let later = self.later.read().unwrap_or_else(PoisonError::into_inner);
        Some(Arc::clone(&later))
    }

    /// Asks the source, and returns `true` if the path, or a folder on the way to it, is denied.
    pub(super) fn denies(&self, path: &str) -> bool {
        self.refresh();
        self.rules.denies(path) || self.denies_later(|rules| rules.denies(path))
    }

    /// Returns `true` if the last name of a path is denied. The caller has checked the folders
    /// above it.
    pub(super) fn denies_step(&self, path: &str, name: &str) -> bool {
        self.rules.denies_step(path, name)
            || self.denies_later(|rules| rules.denies_step(path, name))
    }

    /// Returns `true` if the entry `name` of the folder `dir` is denied.
    pub(super) fn denies_entry(&self, dir: &str, name: &str) -> bool {
        self.rules.denies_entry(dir, name)
            || self.denies_later(|rules| rules.denies_entry(dir, name))
    }

    fn denies_later(&self, denies: impl Fn(&Deny) -> bool) -> bool {
        let later = self.later();
        later.is_some_and(|later| later.denies_all || later.rules.as_ref().is_some_and(denies))
    }

    /// Returns `true` if a rule allows exactly this path.
    #[cfg_attr(not(unix), expect(dead_code, reason = "workspaces need Unix"))]
    pub(super) fn allows(&self, path: &str) -> bool {
        self.rules.allows(path) && !self.denies_later(|rules| rules.denies(path))
    }

    /// Returns `true` if there are no rules.
    #[cfg_attr(not(unix), expect(dead_code, reason = "workspaces need Unix"))]
    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_empty() && !self.denies_later(|_| true)
    }

    /// Returns `true` if a rule matches more than one name of a path, so that moving a folder could
    /// bypass it.
    pub(super) fn has_path_rules(&self) -> bool {
        self.rules.has_path_rules() || self.denies_later(Deny::has_path_rules)
    }

    /// Returns the paths of the source that commands must not create.
    #[cfg_attr(not(all(feature = "commands", target_os = "linux")), allow(dead_code))]
    pub(super) fn reserved(&self) -> Vec<String> {
        let later = self.later();
        later.map_or_else(Vec::new, |later| later.reserved.clone())
    }
}

impl Later {
    fn new(paths: DeniedPaths) -> Self {
        let mut rules = Rules::default();
        paths.globs.iter().for_each(|glob| rules.add(glob, true));
        let rules = rules.compile();
        Self {
            denies_all: rules.is_err(),
            rules: rules.ok().filter(|_| !paths.globs.is_empty()),
            reserved: paths.reserved,
        }
    }
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use super::super::Workspace;
    use super::*;

    /// Returns a workspace whose source returns these paths once.
    fn workspace(folder: &tempfile::TempDir, paths: DeniedPaths) -> Workspace {
        let next = Mutex::new(Some(paths));
        let source = move || next.lock().unwrap().take();
        let builder = Workspace::builder(folder.path()).deny_from(source);
        builder.build().unwrap()
    }

    #[test]
    fn paths_of_source_are_denied_in_addition() {
        let folder = tempfile::tempdir().unwrap();
        let paths = DeniedPaths::new().deny("/data/runs.db").reserve("x");
        let workspace = workspace(&folder, paths);
        assert!(workspace.denies("data/runs.db") && workspace.denies(".env"));
        assert!(!workspace.denies("runs.db") && !workspace.denies("data/a"));
        workspace.create_dir("data").unwrap();
        assert!(workspace.write("data/runs.db", b"").is_err());
        workspace.write("data/a", b"").unwrap();
        let listing = workspace.list("data", 9).unwrap();
        assert_eq!(listing.entries.len(), 1);
    }

    #[test]
    fn workspaces_are_safe_to_use_after_a_panic() {
        use std::panic::{RefUnwindSafe, UnwindSafe};
        fn check<T: UnwindSafe + RefUnwindSafe>() {}
        check::<Workspace>();
        check::<super::super::WorkspaceBuilder>();
    }

    #[test]
    fn source_with_broken_glob_denies_every_path() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = workspace(&folder, DeniedPaths::new().deny("a/{b"));
        assert!(workspace.denies("x"));
    }
}
