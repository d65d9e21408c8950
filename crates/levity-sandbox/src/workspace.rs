mod builder;
mod change;
mod deny;
#[cfg_attr(
    not(unix),
    allow(unreachable_code, reason = "nothing can be opened there")
)]
mod dir;
mod error;
mod file;
mod fold;
mod meta;
mod path;
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
use deny::Deny;
pub use dir::{Dir, FolderEntry, Listing};
pub use error::PathError;
pub use file::{Excerpt, OpenFile};
pub use meta::{Kind, Metadata};
use resolve::{Place, Way, error as failed};
use sys::{Fail, Fd, Want};
use targets::Targets;
#[cfg(all(feature = "commands", target_os = "linux"))]
pub(crate) use targets::{Identity, real_path};
#[cfg(all(feature = "commands", target_os = "linux"))]
pub(crate) use tree::Tree;
pub use write::{WriteOptions, WrittenFile};

/// A folder whose files may be touched, and no others. Cloning costs nothing.
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
/// - Nothing outside the folder is read, written, listed, looked at or revealed to exist: not by
///   `..`, absolute paths, links, links to links, files with several hard links, devices or pipes,
///   and not by what somebody changes meanwhile.
/// - What is denied ([`WorkspaceBuilder::deny`]) is neither touched nor revealed to exist, by
///   whatever way it is reached.
/// - A file that is written is there whole, or as it was.
/// - No call waits for another process, and none holds more than it was allowed to.
///
/// # Paths
/// Relative to the folder, with `/` between the names. `.` is the folder itself; `a/../b` is `b`,
/// whatever `a` is. An absolute path that begins with [`root`](Self::root) is taken as relative to
/// it.
#[derive(Clone, Debug)]
pub struct Workspace(Arc<Inner>);

/// Held for reading by whoever searches a workspace, and for writing by whoever moves a folder: it
/// would be passed over if it came from where the search has not been to where it has.
pub(crate) static MOVES: RwLock<()> = RwLock::new(());

#[derive(Debug)]
struct Inner {
    /// The folder, for people and for comparing text. Files are opened by `dir` alone.
    root: PathBuf,
    /// The same as it was given.
    given: PathBuf,
    dir: Arc<Fd>,
    read_only: bool,
    hard_links: bool,
    /// Whether the kernel is asked to resolve paths.
    kernel: bool,
    deny: Deny,
    targets: Targets,
    listeners: Listeners,
}

impl Workspace {
    /// Opens a folder for reading and writing, with the usual secrets denied.
    ///
    /// # Errors
    /// When it is not there, or is no folder.
    pub fn open(root: impl AsRef<Path>) -> Result<Self, PathError> {
        Self::builder(root).build()
    }

    /// Opens a folder with other settings.
    pub fn builder(root: impl AsRef<Path>) -> WorkspaceBuilder {
        WorkspaceBuilder::new(root.as_ref())
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.0.root
    }

    /// Whether nothing in it may be changed.
    pub fn is_read_only(&self) -> bool {
        self.0.read_only
    }

    /// Whether a path, relative to the folder, is one that nobody may touch. One that leads out is,
    /// too.
    ///
    /// This looks at the text alone: a link may still lead to what is denied. Whatever is opened by
    /// the workspace is looked at on the way as well.
    pub fn denies(&self, path: &str) -> bool {
        self.0.check(path).is_err()
    }

    /// Returns whether a rule denies the entry `name` of the folder `dir`, which itself is not
    /// denied.
    #[cfg(all(feature = "commands", target_os = "linux"))]
    pub(crate) fn denies_entry(&self, dir: &str, name: &str) -> bool {
        self.0.deny.denies_entry(dir, name)
    }

    /// Notes the target of a link whose name is denied, by its real path, and returns what it is.
    #[cfg(all(feature = "commands", target_os = "linux"))]
    pub(crate) fn note_target(&self, real: &Path) -> std::io::Result<Option<Identity>> {
        self.0.note_real_target(real, targets::Kept::FromAll)
    }

    /// Notes the repository that a `.git` leads to which is no folder, and returns what it is.
    #[cfg(all(feature = "commands", target_os = "linux"))]
    pub(crate) fn note_repository(&self, git: &Path) -> Option<Identity> {
        self.0.note_repository(git)
    }

    /// What denied names were ever seen to point to, and the paths of it.
    #[cfg(all(feature = "commands", target_os = "linux"))]
    pub(crate) fn targets(&self) -> (Vec<Identity>, Vec<String>) {
        self.0.targets.kept_from_commands()
    }

    /// Whether a rule looks at more than the last name of a path.
    #[cfg(all(feature = "commands", target_os = "linux"))]
    pub(crate) fn denies_by_path(&self) -> bool {
        self.0.deny.looks_at_paths()
    }

    /// Calls `listener` after each change that is made through this workspace or a clone of it, on
    /// the thread that made it. What others change in the folder, commands for instance, is not
    /// noticed.
    pub fn on_change(&self, listener: impl Fn(&Change) + Send + Sync + 'static) {
        self.0.listeners.add(listener);
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// When the path leaves the workspace, is denied, not there, or no regular file.
    pub fn open_file(&self, path: &str) -> Result<OpenFile, PathError> {
        let (fd, real) = match self.0.open(path, Want::Read) {
            Err(PathError::NotADirectory(path)) => return Err(PathError::NotFound(path)),
            other => other?,
        };
        OpenFile::new(&self.0, fd, path, real)
    }

    /// Reads a whole file.
    ///
    /// # Errors
    /// As [`open_file`](Self::open_file); and [`TooLarge`](PathError::TooLarge) when it is longer
    /// than `max` bytes.
    pub fn read(&self, path: &str, max: u64) -> Result<Vec<u8>, PathError> {
        let excerpt = self.read_start(path, max)?;
        match excerpt.truncated {
            true => Err(PathError::TooLarge {
                path: path.to_owned(),
                size: excerpt.size,
                max,
            }),
            false => Ok(excerpt.bytes),
        }
    }

    /// Reads up to `max` bytes of a file, and says how long it is.
    ///
    /// # Errors
    /// As [`open_file`](Self::open_file).
    pub fn read_start(&self, path: &str, max: u64) -> Result<Excerpt, PathError> {
        let read = self.open_file(path)?.read_to(max);
        read.map_err(|source| PathError::Io {
            path: path.to_owned(),
            source,
        })
    }

    /// Opens a folder for walking; `.` is the workspace itself.
    ///
    /// # Errors
    /// When the path leaves the workspace, is denied, not there, or no folder.
    pub fn dir(&self, path: &str) -> Result<Dir, PathError> {
        let (fd, real) = self.0.open(path, Want::List)?;
        Ok(Dir::new(self.clone(), fd, real))
    }

    /// Lists up to `max` entries of a folder, by name; what is denied is left out.
    ///
    /// # Errors
    /// As [`dir`](Self::dir).
    pub fn list(&self, path: &str, max: usize) -> Result<Listing, PathError> {
        self.dir(path)?.entries(max)
    }

    /// Looks at a file or a folder; a link is followed if it stays inside.
    ///
    /// # Errors
    /// When the path leaves the workspace, is denied or not there.
    pub fn metadata(&self, path: &str) -> Result<Metadata, PathError> {
        if self.0.check(path)?.is_empty() {
            return sys::look_at(&self.0.dir).map_err(|fail| failed(path, Want::Pass, fail));
        }
        match self.0.place(
            path,
            Way {
                follow: true,
                parents: false,
            },
        ) {
            Ok(place) => match self.look(path, &place)? {
                meta if meta.kind == Kind::Link => Err(PathError::Busy(path.to_owned())),
                meta => Ok(meta),
            },
            // A link to the workspace itself, or to `..` of something in it.
            Err(PathError::NotAFile(_)) => {
                let (fd, _) = self.0.open(path, Want::Pass)?;
                sys::look_at(&fd).map_err(|fail| failed(path, Want::Pass, fail))
            }
            Err(error) => Err(error),
        }
    }

    /// Makes a folder, and those above it that are missing. One that is there is left as it is.
    ///
    /// # Errors
    /// When the workspace is read-only, the path leaves it or is denied, or something else is in
    /// the way.
    pub fn create_dir(&self, path: &str) -> Result<(), PathError> {
        self.writable(path)?;
        if self.0.check(path)?.is_empty() {
            return Ok(());
        }
        let place = self.0.place(
            path,
            Way {
                follow: true,
                parents: true,
            },
        )?;
        match sys::make_dir(&place.dir, &place.name) {
            Ok(()) => {
                self.0.listeners.tell(&place.path, ChangeKind::FolderMade);
                Ok(())
            }
            Err(Fail::Exists) => match self.look(path, &place)?.kind {
                Kind::Dir => Ok(()),
                _ => Err(PathError::Exists(path.to_owned())),
            },
            Err(fail) => Err(failed(path, Want::Pass, fail)),
        }
    }

    /// Removes a file, an empty folder, or a link, but not what that leads to.
    ///
    /// # Errors
    /// When the workspace is read-only, the path leaves it, is denied or not there, or the folder
    /// is not empty.
    pub fn remove(&self, path: &str) -> Result<(), PathError> {
        self.writable(path)?;
        let place = self.0.place(path, Way::default())?;
        let is_dir = self.look(path, &place)?.kind == Kind::Dir;
        sys::remove(&place.dir, &place.name, is_dir)
            .map_err(|fail| failed(path, Want::Pass, fail))?;
        self.0.listeners.tell(&place.path, ChangeKind::Removed);
        Ok(())
    }

    /// Gives a file, a folder or a link another name; a file that has that name is replaced. The
    /// folder of the new name must be there.
    ///
    /// # Errors
    /// When the workspace is read-only, a path leaves it or is denied, the first is not there, or
    /// the second is a folder that is not empty.
    pub fn rename(&self, from: &str, to: &str) -> Result<(), PathError> {
        self.writable(from)?;
        let old = self.0.place(from, Way::default())?;
        let new = self.0.place(to, Way::default())?;
        if self.look(from, &old)?.kind == Kind::Dir && self.0.deny.looks_at_paths() {
            return Err(PathError::Denied(from.to_owned()));
        }
        let alone = MOVES.write().unwrap_or_else(PoisonError::into_inner);
        sys::rename(&old.dir, &old.name, &new.dir, &new.name)
            .map_err(|fail| failed(to, Want::Pass, fail))?;
        drop(alone);
        self.0.listeners.tell(&old.path, ChangeKind::Removed);
        self.0.listeners.tell(&new.path, ChangeKind::Written);
        Ok(())
    }

    /// Gives a file another name, unless something has that name already: of several who try, one
    /// succeeds, and nothing is replaced. The folder of the new name must be there.
    ///
    /// # Errors
    /// As [`rename`](Self::rename); [`Exists`](PathError::Exists) when the name is taken; and when
    /// the first is no regular file.
    pub fn rename_new(&self, from: &str, to: &str) -> Result<(), PathError> {
        self.writable(from)?;
        let old = self.0.place(from, Way::default())?;
        let new = self.0.place(to, Way::default())?;
        if self.look(from, &old)?.kind != Kind::File {
            return Err(PathError::NotAFile(from.to_owned()));
        }
        sys::rename_new(&old.dir, &old.name, &new.dir, &new.name)
            .map_err(|fail| failed(to, Want::Pass, fail))?;
        self.0.listeners.tell(&old.path, ChangeKind::Removed);
        self.0.listeners.tell(&new.path, ChangeKind::Written);
        Ok(())
    }

    /// Waits until the names that lead to `path` are on disk: its own, and those of the folders
    /// above it. Without it, a loss of power may give a file back the name that it had before, or
    /// take it away with a folder that was made for it.
    ///
    /// # Errors
    /// When the path leaves the workspace or is denied, its folder is not there, or the disk fails.
    pub fn sync_names(&self, path: &str) -> Result<(), PathError> {
        let ends = path
            .match_indices('/')
            .map(|(at, _)| at)
            .chain([path.len()]);
        for above in ends
            .map(|end| &path[..end])
            .filter(|above| !above.is_empty())
        {
            let place = self.0.place(above, Way::default())?;
            sys::sync_dir(&place.dir).map_err(|fail| failed(path, Want::Pass, fail))?;
        }
        Ok(())
    }

    fn look(&self, asked: &str, place: &Place) -> Result<Metadata, PathError> {
        sys::look(&place.dir, &place.name).map_err(|fail| failed(asked, Want::Pass, fail))
    }

    fn writable(&self, path: &str) -> Result<(), PathError> {
        match self.0.read_only {
            true => Err(PathError::ReadOnly(path.to_owned())),
            false => Ok(()),
        }
    }
}
