//! Access to the files of one folder.
//!
//! `path` normalizes the text of a path, `deny` applies the rules to it, and `resolve` opens it
//! without leaving the folder. `write`, `dir` and `file` work on the opened handles. `targets`
//! remembers files that a denied link names, and `sys` contains the system calls.
//!
//! Each call checks twice: the text of the path before anything is opened, and the identity of the
//! opened file afterwards. The first check gives good errors, and the second one resists races.

mod builder;
mod change;
mod deny;
#[cfg_attr(
    not(unix),
    allow(
        unreachable_code,
        reason = "no workspace can be opened on these systems"
    )
)]
mod dir;
mod error;
mod file;
mod fold;
mod later;
mod meta;
mod path;
#[cfg(unix)]
mod repository;
mod resolve;
#[cfg(unix)]
mod sys;
#[cfg(not(unix))]
#[path = "workspace/sys_none.rs"]
mod sys;
#[cfg(unix)]
mod targets;
#[cfg(not(unix))]
#[path = "workspace/targets_none.rs"]
mod targets;
#[cfg(unix)]
mod tree;
mod write;

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

pub use builder::WorkspaceBuilder;
use change::Listeners;
pub use change::{Change, ChangeKind};
pub use dir::{Dir, FolderEntry, Listing};
pub use error::PathError;
pub use file::{Excerpt, OpenFile};
pub use later::DeniedPaths;
use later::LiveDeny;
pub use meta::{EntryKind, Metadata};
#[cfg(all(feature = "commands", target_os = "linux"))]
pub(crate) use repository::{CONTROL_FILES, GitPlaces, Trail, TrailEnd, is_bare, is_name_of_git};
use resolve::{Place, ResolveOptions, error as failed};
use sys::{Fd, Purpose, SysError};
use targets::Targets;
#[cfg(all(feature = "commands", target_os = "linux"))]
pub(crate) use targets::{Identity, real_path};
#[cfg(all(feature = "commands", target_os = "linux"))]
pub(crate) use tree::Tree;
pub use write::{WriteOptions, WrittenFile};

/// A folder that restricts all file access to its contents. Cloning is cheap.
///
/// ```
/// use levity_sandbox::{PathError, Workspace};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// let workspace = Workspace::open(folder.path())?;
/// workspace.write("notes.txt", b"buy milk")?;
/// assert_eq!(workspace.read("./notes.txt", 1000)?, b"buy milk");
///
/// assert!(matches!(workspace.read("../secret", 1000), Err(PathError::Outside(_))));
/// assert!(matches!(workspace.read(".env", 1000), Err(PathError::Denied(_))));
/// # Ok(())
/// # }
/// ```
///
/// # Promises
/// - Nothing outside the folder is read, written, listed, inspected or revealed to exist. This
///   holds for `..`, absolute paths, links, links to links, files with several hard links, devices
///   and pipes, and for concurrent changes by others.
/// - Denied paths ([`WorkspaceBuilder::deny`]) are neither accessed nor revealed to exist, no
///   matter which path leads to them.
/// - A write replaces the whole file or leaves it unchanged.
/// - No call waits for another process, and none buffers more than its limit allows.
///
/// # Paths
/// Paths are relative to the folder, with `/` between the names. `.` is the folder itself; `a/../b`
/// is `b`, whatever `a` is. An absolute path that begins with [`root`](Self::root) counts as
/// relative to it.
///
/// # Limits
/// A path has at most 4096 bytes, a name 255 bytes, and a path 128 folders. A path may lead through
/// at most 40 links. If another process changes a path while it is resolved, 16 attempts are made
/// before [`PathError::Busy`] is returned.
#[derive(Clone, Debug)]
pub struct Workspace(Arc<Inner>);

/// Searches of a workspace hold this lock for reading; a call that moves a folder holds it for
/// writing. Otherwise a search could miss a folder that moves from an unsearched place to a
/// searched one.
pub(crate) static MOVES: RwLock<()> = RwLock::new(());

/// The state that all clones of a workspace share.
#[derive(Debug)]
struct Inner {
    /// The canonical path of the folder, for display and for text comparisons. Files are opened
    /// through `dir` alone.
    root: PathBuf,
    /// The path of the folder as the caller wrote it.
    given: PathBuf,
    dir: Arc<Fd>,
    read_only: bool,
    hard_links: bool,
    /// `true` if the kernel resolves paths (`openat2`).
    kernel: bool,
    deny: LiveDeny,
    /// Relative paths that commands must not create.
    #[cfg_attr(not(all(feature = "commands", target_os = "linux")), allow(dead_code))]
    reserved: Vec<String>,
    targets: Targets,
    listeners: Listeners,
}

impl Workspace {
    /// Opens a folder for reading and writing, with the usual secrets denied.
    ///
    /// ```
    /// use levity_sandbox::{PathError, Workspace};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// let workspace = Workspace::open(folder.path())?;
    /// assert_eq!(workspace.root(), folder.path().canonicalize()?);
    /// assert!(matches!(Workspace::open("/no/such/folder"), Err(PathError::NotFound(_))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if the folder does not exist, or if the path is not a folder.
    pub fn open(root: impl AsRef<Path>) -> Result<Self, PathError> {
        Self::builder(root).build()
    }

    /// Returns a builder to open a folder with other settings.
    pub fn builder(root: impl AsRef<Path>) -> WorkspaceBuilder {
        WorkspaceBuilder::new(root.as_ref())
    }

    /// Returns the canonical path of the folder.
    pub fn root(&self) -> &Path {
        &self.0.root
    }

    /// Returns `true` if the workspace is read-only.
    pub fn is_read_only(&self) -> bool {
        self.0.read_only
    }

    /// Returns `true` if a path, relative to the folder, is denied or leads out of the folder.
    ///
    /// This checks the text alone: a link may still lead to a denied file. The workspace also
    /// checks every link on the way when it opens a path.
    ///
    /// ```
    /// # use levity_sandbox::Workspace;
    /// # let folder = tempfile::tempdir()?;
    /// let workspace = Workspace::open(folder.path())?;
    /// assert!(workspace.denies("config/.env"));
    /// assert!(workspace.denies("../other"));
    /// assert!(!workspace.denies("config/.env.example"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn denies(&self, path: &str) -> bool {
        self.0.check(path).is_err()
    }

    /// Returns `true` if a rule denies the entry `name` of the folder `dir`, which itself is not
    /// denied.
    #[cfg(all(feature = "commands", target_os = "linux"))]
    pub(crate) fn denies_entry(&self, dir: &str, name: &str) -> bool {
        self.0.deny.denies_entry(dir, name)
    }

    /// Records the target of a link whose name is denied, by its real path, and returns its
    /// identity.
    #[cfg(all(feature = "commands", target_os = "linux"))]
    pub(crate) fn record_target(&self, real: &Path) -> std::io::Result<Option<Identity>> {
        self.0.record_real_target(real, targets::DeniedTo::All)
    }

    /// Records and returns the places to which a `.git` link or file leads. Calls `check` before it
    /// follows a link.
    #[cfg(all(feature = "commands", target_os = "linux"))]
    pub(crate) fn record_git(
        &self,
        git: &Path,
        check: &dyn Fn() -> std::io::Result<()>,
    ) -> std::io::Result<GitPlaces> {
        self.0.record_git(git, check)
    }

    /// Records and returns the places to which a repository leads. Calls `check` before it follows a
    /// link.
    #[cfg(all(feature = "commands", target_os = "linux"))]
    pub(crate) fn record_repository(
        &self,
        repository: &Path,
        check: &dyn Fn() -> std::io::Result<()>,
    ) -> std::io::Result<GitPlaces> {
        self.0.record_repository(repository, check)
    }

    /// Returns the identities and the paths of all recorded targets of denied names.
    #[cfg(all(feature = "commands", target_os = "linux"))]
    pub(crate) fn targets(&self) -> (Vec<Identity>, Vec<String>) {
        self.0.targets.denied_to_commands()
    }

    /// Returns the relative paths that commands must not create.
    #[cfg(all(feature = "commands", target_os = "linux"))]
    pub(crate) fn reserved(&self) -> Vec<String> {
        [&self.0.reserved[..], &self.0.deny.reserved()].concat()
    }

    /// Returns `true` if paths can become denied while the workspace is open.
    #[cfg(feature = "commands")]
    pub(crate) fn can_deny_more(&self) -> bool {
        self.0.deny.can_change()
    }

    /// Updates the denied paths, and returns the number of their changes.
    #[cfg(feature = "commands")]
    pub(crate) fn refresh_denied(&self) -> u64 {
        self.0.deny.refresh()
    }

    /// Returns `true` if a rule matches more than the last name of a path.
    #[cfg(all(feature = "commands", target_os = "linux"))]
    pub(crate) fn denies_by_path(&self) -> bool {
        self.0.deny.has_path_rules()
    }

    /// Calls `listener` after each change made through this workspace or a clone of it, on the
    /// thread that made the change. Changes that others make in the folder, such as commands, are
    /// not reported.
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use levity_sandbox::{ChangeKind, Workspace};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// let workspace = Workspace::open(folder.path())?;
    /// let (sender, changes) = mpsc::channel();
    /// workspace.on_change(move |change| _ = sender.send(change.clone()));
    ///
    /// workspace.write("notes.txt", b"buy milk")?;
    /// let change = changes.recv()?;
    /// assert_eq!((change.path.as_str(), change.kind), ("notes.txt", ChangeKind::Written));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A listener cannot be removed. It is called without a lock, so it may use the workspace
    /// itself. A listener that blocks delays the call that made the change.
    pub fn on_change(&self, listener: impl Fn(&Change) + Send + Sync + 'static) {
        self.0.listeners.add(listener);
    }

    /// Opens a file for reading.
    ///
    /// ```
    /// use std::io::Read;
    /// # use levity_sandbox::Workspace;
    /// # let folder = tempfile::tempdir()?;
    /// let workspace = Workspace::open(folder.path())?;
    /// workspace.write("a.txt", b"one")?;
    ///
    /// let mut file = workspace.open_file("./a.txt")?;
    /// let mut text = String::new();
    /// file.read_to_string(&mut text)?;
    /// assert_eq!((file.path(), text.as_str()), ("a.txt", "one"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if the path leaves the workspace, is denied, does not exist, or is not a
    /// regular file.
    pub fn open_file(&self, path: &str) -> Result<OpenFile, PathError> {
        let (fd, real) = match self.0.open(path, Purpose::Read) {
            Err(PathError::NotADirectory(path)) => return Err(PathError::NotFound(path)),
            other => other?,
        };
        OpenFile::new(&self.0, fd, path, real)
    }

    /// Reads a whole file into memory.
    ///
    /// ```
    /// use levity_sandbox::{PathError, Workspace};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// let workspace = Workspace::open(folder.path())?;
    /// workspace.write("a.txt", b"12345")?;
    /// assert_eq!(workspace.read("a.txt", 5)?, b"12345");
    /// let error = workspace.read("a.txt", 4).unwrap_err();
    /// assert!(matches!(error, PathError::TooLarge { size: 5, max: 4, .. }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Fails as [`open_file`](Self::open_file) does. Returns [`TooLarge`](PathError::TooLarge) if
    /// the file is longer than `max` bytes.
    pub fn read(&self, path: &str, max: u64) -> Result<Vec<u8>, PathError> {
        let excerpt = self.read_prefix(path, max)?;
        match excerpt.truncated {
            true => Err(PathError::TooLarge {
                path: path.to_owned(),
                size: excerpt.size,
                max,
            }),
            false => Ok(excerpt.bytes),
        }
    }

    /// Reads up to `max` bytes of a file, and reports its full size.
    ///
    /// ```
    /// # use levity_sandbox::Workspace;
    /// # let folder = tempfile::tempdir()?;
    /// let workspace = Workspace::open(folder.path())?;
    /// workspace.write("log.txt", b"first line\nsecond line\n")?;
    /// let excerpt = workspace.read_prefix("log.txt", 10)?;
    /// assert_eq!(excerpt.bytes, b"first line");
    /// assert_eq!((excerpt.size, excerpt.truncated), (23, true));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Fails as [`open_file`](Self::open_file) does.
    pub fn read_prefix(&self, path: &str, max: u64) -> Result<Excerpt, PathError> {
        let read = self.open_file(path)?.read_up_to(max);
        read.map_err(|source| PathError::Io {
            path: path.to_owned(),
            source,
        })
    }

    /// Opens a folder for walking; `.` is the workspace itself.
    ///
    /// # Errors
    /// Returns an error if the path leaves the workspace, is denied, does not exist, or is not a
    /// folder.
    pub fn dir(&self, path: &str) -> Result<Dir, PathError> {
        let (fd, real) = self.0.open(path, Purpose::List)?;
        Ok(Dir::new(self.clone(), fd, real))
    }

    /// Lists up to `max` entries of a folder, sorted by name. Denied entries are omitted.
    ///
    /// The limit counts entries, not bytes. If the folder has more entries, those that the system
    /// lists first are returned, and `truncated` is set.
    ///
    /// ```
    /// # use levity_sandbox::Workspace;
    /// # let folder = tempfile::tempdir()?;
    /// let workspace = Workspace::open(folder.path())?;
    /// for name in ["b.txt", "a.txt"] {
    ///     workspace.write(name, b"")?;
    /// }
    /// std::fs::write(folder.path().join(".env"), "TOKEN=1")?;
    ///
    /// let listing = workspace.list(".", 100)?;
    /// let names: Vec<_> = listing.entries.iter().map(|entry| entry.name.as_str()).collect();
    /// assert_eq!(names, ["a.txt", "b.txt"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Fails as [`dir`](Self::dir) does.
    pub fn list(&self, path: &str, max: usize) -> Result<Listing, PathError> {
        self.dir(path)?.entries(max)
    }

    /// Returns the metadata of a file or a folder. A link is followed if it stays inside.
    ///
    /// ```
    /// use levity_sandbox::{EntryKind, Workspace};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// let workspace = Workspace::open(folder.path())?;
    /// workspace.write("a.txt", b"123")?;
    /// let metadata = workspace.metadata("a.txt")?;
    /// assert_eq!((metadata.kind(), metadata.size()), (EntryKind::File, 3));
    /// assert_eq!(workspace.metadata(".")?.kind(), EntryKind::Dir);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if the path leaves the workspace, is denied or does not exist.
    pub fn metadata(&self, path: &str) -> Result<Metadata, PathError> {
        if self.0.check(path)?.is_empty() {
            return sys::stat_handle(&self.0.dir).map_err(|fail| failed(path, Purpose::Pass, fail));
        }
        match self.0.place(
            path,
            ResolveOptions {
                follow: true,
                parents: false,
            },
        ) {
            Ok(place) => match self.entry_metadata(path, &place)? {
                meta if meta.kind == EntryKind::Link => Err(PathError::Busy(path.to_owned())),
                meta => Ok(meta),
            },
            // The path is a link to the workspace itself, or to `..` of something in it.
            Err(PathError::NotAFile(_)) => {
                let (fd, _) = self.0.open(path, Purpose::Pass)?;
                sys::stat_handle(&fd).map_err(|fail| failed(path, Purpose::Pass, fail))
            }
            Err(error) => Err(error),
        }
    }

    /// Creates a folder and its missing parents. An existing folder is left unchanged.
    ///
    /// ```
    /// # use levity_sandbox::{PathError, Workspace};
    /// # let folder = tempfile::tempdir()?;
    /// let workspace = Workspace::open(folder.path())?;
    /// workspace.create_dir("a/b/c")?;
    /// workspace.create_dir("a/b/c")?;
    /// workspace.write("file", b"")?;
    /// assert!(matches!(workspace.create_dir("file"), Err(PathError::Exists(_))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if the workspace is read-only, the path leaves it or is denied, or
    /// something other than a folder has that name.
    pub fn create_dir(&self, path: &str) -> Result<(), PathError> {
        self.writable(path)?;
        if self.0.check(path)?.is_empty() {
            return Ok(());
        }
        let place = self.0.place(
            path,
            ResolveOptions {
                follow: true,
                parents: true,
            },
        )?;
        match sys::make_dir(&place.dir, &place.name) {
            Ok(()) => {
                self.0
                    .listeners
                    .notify(&place.path, ChangeKind::FolderCreated);
                Ok(())
            }
            Err(SysError::Exists) => match self.entry_metadata(path, &place)?.kind {
                EntryKind::Dir => Ok(()),
                _ => Err(PathError::Exists(path.to_owned())),
            },
            Err(fail) => Err(failed(path, Purpose::Pass, fail)),
        }
    }

    /// Removes a file, an empty folder, or a link. The target of a link is not removed.
    ///
    /// ```
    /// # use levity_sandbox::{PathError, Workspace};
    /// # let folder = tempfile::tempdir()?;
    /// let workspace = Workspace::open(folder.path())?;
    /// workspace.create_dir("sub")?;
    /// workspace.write("sub/a.txt", b"")?;
    /// assert!(matches!(workspace.remove("sub"), Err(PathError::NotEmpty(_))));
    /// workspace.remove("sub/a.txt")?;
    /// workspace.remove("sub")?;
    /// assert!(matches!(workspace.metadata("sub"), Err(PathError::NotFound(_))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if the workspace is read-only, the path leaves it, is denied or does not
    /// exist, or the folder is not empty.
    pub fn remove(&self, path: &str) -> Result<(), PathError> {
        self.writable(path)?;
        let place = self.0.place(path, ResolveOptions::default())?;
        let is_dir = self.entry_metadata(path, &place)?.kind == EntryKind::Dir;
        sys::remove(&place.dir, &place.name, is_dir)
            .map_err(|fail| failed(path, Purpose::Pass, fail))?;
        self.0.listeners.notify(&place.path, ChangeKind::Removed);
        Ok(())
    }

    /// Renames a file, a folder or a link, and replaces a file that has the new name. The parent
    /// folder of the new name must exist.
    ///
    /// Neither path is followed if it is a link: the link itself is renamed or replaced. If a rule
    /// of the workspace matches paths and not only names, folders cannot be renamed. Neither can
    /// folders that contain a repository to which a `.git` link or file leads.
    ///
    /// ```
    /// # use levity_sandbox::Workspace;
    /// # let folder = tempfile::tempdir()?;
    /// let workspace = Workspace::open(folder.path())?;
    /// workspace.write("draft.txt", b"new")?;
    /// workspace.write("final.txt", b"old")?;
    /// workspace.rename("draft.txt", "final.txt")?;
    /// assert_eq!(workspace.read("final.txt", 100)?, b"new");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if the workspace is read-only, a path leaves it or is denied, the first
    /// path does not exist, or the second is a folder that is not empty.
    pub fn rename(&self, from: &str, to: &str) -> Result<(), PathError> {
        self.writable(from)?;
        let old = self.0.place(from, ResolveOptions::default())?;
        let new = self.0.place(to, ResolveOptions::default())?;
        let is_fixed = self.0.deny.has_path_rules()
            || self.0.targets.are_below(&old.path)
            || self.0.targets.are_below(&new.path);
        if self.entry_metadata(from, &old)?.kind == EntryKind::Dir && is_fixed {
            return Err(PathError::Denied(from.to_owned()));
        }
        let alone = MOVES.write().unwrap_or_else(PoisonError::into_inner);
        sys::rename(&old.dir, &old.name, &new.dir, &new.name)
            .map_err(|fail| failed(to, Purpose::Pass, fail))?;
        drop(alone);
        self.0.listeners.notify(&old.path, ChangeKind::Removed);
        self.0.listeners.notify(&new.path, ChangeKind::Written);
        Ok(())
    }

    /// Renames a file, unless the new name is taken. If several callers try, one succeeds, and
    /// nothing is replaced. The parent folder of the new name must exist.
    ///
    /// Use this to claim a name among several processes: the one whose call succeeds owns it.
    ///
    /// ```
    /// # use levity_sandbox::{PathError, Workspace};
    /// # let folder = tempfile::tempdir()?;
    /// let workspace = Workspace::open(folder.path())?;
    /// workspace.write("a", b"1")?;
    /// workspace.write("taken", b"2")?;
    /// assert!(matches!(workspace.rename_new("a", "taken"), Err(PathError::Exists(_))));
    /// workspace.rename_new("a", "free")?;
    /// assert_eq!(workspace.read("free", 10)?, b"1");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Fails as [`rename`](Self::rename) does. Returns [`Exists`](PathError::Exists) if the name is
    /// taken, and an error if the first path is not a regular file.
    pub fn rename_new(&self, from: &str, to: &str) -> Result<(), PathError> {
        self.writable(from)?;
        let old = self.0.place(from, ResolveOptions::default())?;
        let new = self.0.place(to, ResolveOptions::default())?;
        if self.entry_metadata(from, &old)?.kind != EntryKind::File {
            return Err(PathError::NotAFile(from.to_owned()));
        }
        sys::rename_new(&old.dir, &old.name, &new.dir, &new.name)
            .map_err(|fail| failed(to, Purpose::Pass, fail))?;
        self.0.listeners.notify(&old.path, ChangeKind::Removed);
        self.0.listeners.notify(&new.path, ChangeKind::Written);
        Ok(())
    }

    /// Waits until the names that lead to `path` are on disk: its own name and those of its parent
    /// folders. Without this call, a power loss may revert a rename, or remove a file together with
    /// a folder that was created for it.
    ///
    /// ```
    /// # use levity_sandbox::{Workspace, WriteOptions};
    /// # let folder = tempfile::tempdir()?;
    /// let workspace = Workspace::open(folder.path())?;
    /// let options = WriteOptions::new().parents().synced();
    /// workspace.write_with("runs/1/state.json", b"{}", options)?;
    /// // Now `runs`, `runs/1` and the file survive a power loss.
    /// workspace.sync_names("runs/1/state.json")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if the path leaves the workspace or is denied, its folder does not exist,
    /// or the disk fails.
    pub fn sync_names(&self, path: &str) -> Result<(), PathError> {
        let ends = path
            .match_indices('/')
            .map(|(at, _)| at)
            .chain([path.len()]);
        for above in ends
            .map(|end| &path[..end])
            .filter(|above| !above.is_empty())
        {
            let place = self.0.place(above, ResolveOptions::default())?;
            sys::sync_dir(&place.dir).map_err(|fail| failed(path, Purpose::Pass, fail))?;
        }
        Ok(())
    }

    fn entry_metadata(&self, requested: &str, place: &Place) -> Result<Metadata, PathError> {
        sys::stat_entry(&place.dir, &place.name)
            .map_err(|fail| failed(requested, Purpose::Pass, fail))
    }

    fn writable(&self, path: &str) -> Result<(), PathError> {
        match self.0.read_only {
            true => Err(PathError::ReadOnly(path.to_owned())),
            false => Ok(()),
        }
    }
}
