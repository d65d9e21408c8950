//! Settings of a workspace, and the order in which it is opened.
//!
//! The folder is opened once, by its canonical path. Everything later goes through that handle, so
//! the workspace stays on the same folder even if its path is moved or replaced. Links with denied
//! names are followed at the end, because that needs the opened folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::change::Listeners;
use super::deny::Rules;
use super::later::{DeniedPaths, DenySource, LiveDeny};
use super::targets::Targets;
use super::{Inner, PathError, Workspace, sys};

/// Settings for opening a [`Workspace`].
///
/// ```
/// use levity_sandbox::{PathError, Workspace};
///
/// # let folder = tempfile::tempdir()?;
/// # std::fs::create_dir(folder.path().join("private"))?;
/// # std::fs::write(folder.path().join("private/plan.txt"), "")?;
/// # std::fs::write(folder.path().join("notes.txt"), "read me")?;
/// let workspace = Workspace::builder(folder.path()).read_only().deny("private").build()?;
/// assert_eq!(workspace.read("notes.txt", 100)?, b"read me");
/// assert!(matches!(workspace.read("private/plan.txt", 100), Err(PathError::Denied(_))));
/// assert!(matches!(workspace.write("notes.txt", b""), Err(PathError::ReadOnly(_))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The default denies these names at any depth: settings with secrets (`.env`, `.envrc`, `.npmrc`),
/// keys and key stores (`*.pem`, `*.key`, `id_rsa`, `.ssh`, `.gnupg`), logins of clouds and
/// databases (`.aws`, `.kube`, `.netrc`, `.pgpass`), and version control data (`.git`, `.hg`,
/// `.svn`, `.jj`). Templates such as `.env.example` are allowed.
#[derive(Clone, Debug)]
#[must_use]
pub struct WorkspaceBuilder {
    root: PathBuf,
    read_only: bool,
    hard_links: bool,
    kernel: bool,
    rules: Rules,
    reserved: Vec<String>,
    source: DenySource,
}

impl WorkspaceBuilder {
    pub(super) fn new(root: &Path) -> Self {
        let root = root.to_owned();
        Self {
            root,
            read_only: false,
            hard_links: false,
            kernel: true,
            rules: Rules::standard(),
            reserved: Vec::new(),
            source: DenySource::default(),
        }
    }

    /// Makes the workspace read-only: every call that changes something fails.
    ///
    /// A sandbox applies the same restriction to its commands, as far as its report states.
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// Denies every path that this glob matches, and everything below it.
    ///
    /// A glob without `/` matches a name at any depth; any other glob matches a path relative to
    /// the workspace. Case and invisible characters are ignored. The last glob that matches a path
    /// decides, and a path glob takes precedence over a name glob. If a path glob is denied,
    /// folders cannot be renamed: a rename could bypass the glob.
    ///
    /// ```
    /// # use levity_sandbox::Workspace;
    /// # let folder = tempfile::tempdir()?;
    /// let workspace = Workspace::builder(folder.path())
    ///     .deny("*.sqlite")
    ///     .deny("data/customers/**")
    ///     .build()?;
    /// assert!(workspace.denies("a/b/users.SQLite"));
    /// assert!(workspace.denies("data/customers/1.json"));
    /// assert!(!workspace.denies("data/products/1.json"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn deny(mut self, glob: impl AsRef<str>) -> Self {
        self.rules.add(glob.as_ref(), true);
        self
    }

    /// Allows the paths that this glob matches although an earlier one denies them: `.npmrc`, for
    /// instance, or `.git`. Paths below a denied folder stay denied; allow the folder instead.
    ///
    /// ```
    /// # use levity_sandbox::Workspace;
    /// # let folder = tempfile::tempdir()?;
    /// let workspace = Workspace::builder(folder.path()).allow(".npmrc").build()?;
    /// assert!(!workspace.denies("web/.npmrc"));
    /// assert!(workspace.denies("web/.env"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn allow(mut self, glob: impl AsRef<str>) -> Self {
        self.rules.add(glob.as_ref(), false);
        self
    }

    /// Keeps commands from creating a file at this path while it does not exist. Deny the path as
    /// well, so that file tools do not create it and commands cannot change it later.
    ///
    /// While commands run, a sandbox that can hide files puts an empty folder in place of the
    /// missing path, or of the first folder of the path that is missing. For `X-wal` and `X-shm`,
    /// which SQLite keeps next to a database `X`, it creates empty files. It removes them when no
    /// process uses their folder for commands any more, but keeps `X-wal` and `X-shm` if `X`
    /// exists. A command ends with [`CommandError::Exposed`](crate::CommandError::Exposed) if
    /// another program removes the path, and does not run if the sandbox cannot create it. Other
    /// levels of isolation do not protect the path.
    ///
    /// ```
    /// # use levity_sandbox::Workspace;
    /// # let folder = tempfile::tempdir()?;
    /// let workspace = Workspace::builder(folder.path())
    ///     .deny("/settings.toml")
    ///     .reserve("settings.toml")
    ///     .build()?;
    /// assert!(workspace.denies("settings.toml"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reserve(mut self, path: impl Into<String>) -> Self {
        self.reserved.push(path.into());
        self
    }

    /// Denies more paths while the workspace is open, in addition to its other rules.
    ///
    /// The workspace calls `source` before it opens a path, before a command starts, and several
    /// times per second while a command runs. `None` means that nothing has changed since the last
    /// call. Other results replace the last one. If the paths change while a command runs, the
    /// command ends with [`CommandError::Changed`](crate::CommandError::Changed), because it can
    /// access paths that are denied now.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicBool, Ordering};
    /// use levity_sandbox::{DeniedPaths, Workspace};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// static CHANGED: AtomicBool = AtomicBool::new(false);
    /// let source = || {
    ///     let changed = CHANGED.swap(false, Ordering::Relaxed);
    ///     changed.then(|| DeniedPaths::new().deny("/runs.db"))
    /// };
    /// let workspace = Workspace::builder(folder.path()).deny_from(source).build()?;
    /// assert!(!workspace.denies("runs.db"));
    /// CHANGED.store(true, Ordering::Relaxed);
    /// assert!(workspace.denies("runs.db"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn deny_from(
        mut self,
        source: impl Fn() -> Option<DeniedPaths> + Send + Sync + 'static,
    ) -> Self {
        self.source = DenySource::new(source);
        self
    }

    /// Removes all rules: only globs that you [`deny`](Self::deny) after this call are denied.
    ///
    /// ```
    /// # use levity_sandbox::Workspace;
    /// # let folder = tempfile::tempdir()?;
    /// let workspace = Workspace::builder(folder.path()).allow_all().deny("*.key").build()?;
    /// assert!(!workspace.denies(".env"));
    /// assert!(workspace.denies("server.key"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn allow_all(mut self) -> Self {
        self.rules = Rules::default();
        self
    }

    /// Allows reading files with several hard links, although they may be shared with a place
    /// outside. Use this for trees of a package manager that hard-links what it installs.
    pub fn allow_hard_links(mut self) -> Self {
        self.hard_links = true;
        self
    }

    /// Resolves every path name by name, as on a kernel without `openat2`. For tests.
    #[doc(hidden)]
    pub fn walk_only(mut self) -> Self {
        self.kernel = false;
        self
    }

    /// Opens the workspace with these settings.
    ///
    /// The build searches up to 200,000 entries for links whose names are denied, and denies their
    /// targets as well.
    ///
    /// # Errors
    /// Returns an error if the folder does not exist or is not a folder, if a glob does not parse,
    /// or if the system is not supported. It also fails if following the links with denied names
    /// takes longer than five seconds.
    pub fn build(self) -> Result<Workspace, PathError> {
        let deny = LiveDeny::new(self.rules.compile()?, self.source);
        let shown = || self.root.to_string_lossy().into_owned();
        let failed = |source: std::io::Error| match source.kind() {
            std::io::ErrorKind::NotFound => PathError::NotFound(shown()),
            std::io::ErrorKind::NotADirectory => PathError::NotADirectory(shown()),
            std::io::ErrorKind::Unsupported => PathError::Unsupported,
            _ => PathError::Io {
                path: shown(),
                source,
            },
        };
        let root = self.root.canonicalize().map_err(failed)?;
        let dir = Arc::new(sys::open_root(&root).map_err(failed)?);
        // Paths below an absolute root are also accepted in the spelling of the caller.
        let given = if self.root.is_absolute() {
            self.root.clone()
        } else {
            root.clone()
        };
        let (read_only, hard_links, kernel) = (self.read_only, self.hard_links, self.kernel);
        let listeners = Listeners::default();
        let targets = Targets::default();
        let inner = Inner {
            root,
            given,
            dir,
            read_only,
            hard_links,
            kernel,
            deny,
            reserved: self.reserved,
            targets,
            listeners,
        };
        inner.find_targets().map_err(failed)?;
        Ok(Workspace(Arc::new(inner)))
    }
}
