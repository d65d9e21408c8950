//! An open folder, for walks that must not be redirected.
//!
//! A walk by paths resolves every folder from the top again, and a folder that moves in between
//! leads somewhere else. A [`Dir`] holds the folder open instead, and opens entries by name
//! relative to it. Rules still apply to the path at the time of opening.

use super::meta::{EntryKind, Metadata};
use super::path;
use super::resolve::error;
use super::sys::{self, Fd, Purpose, SysError};
use super::{OpenFile, PathError, Workspace};

/// An open folder of a workspace, for walking a tree.
///
/// Entries are opened by name, in this folder, even if it has been moved since it was opened. No
/// link is followed. Denied entries are neither listed nor opened.
///
/// ```
/// use levity_sandbox::{Dir, EntryKind, PathError, Workspace};
///
/// fn count_files(dir: &Dir) -> Result<usize, PathError> {
///     let mut count = 0;
///     for entry in dir.entries(1000)?.entries {
///         count += match entry.kind {
///             EntryKind::File => 1,
///             EntryKind::Dir => count_files(&dir.dir(&entry.name)?)?,
///             _ => 0,
///         };
///     }
///     Ok(count)
/// }
///
/// # let folder = tempfile::tempdir()?;
/// let workspace = Workspace::open(folder.path())?;
/// workspace.create_dir("src/bin")?;
/// workspace.write("src/lib.rs", b"")?;
/// workspace.write("src/bin/main.rs", b"")?;
/// assert_eq!(count_files(&workspace.dir(".")?)?, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Dir {
    space: Workspace,
    fd: Fd,
    path: String,
}

/// An entry of a folder.
///
/// The kind is that of the entry itself: a link to a folder is a link. Query [`Dir::metadata`] for
/// its size.
///
/// ```
/// use levity_sandbox::{EntryKind, Workspace};
///
/// # let folder = tempfile::tempdir()?;
/// let workspace = Workspace::open(folder.path())?;
/// workspace.create_dir("src")?;
/// let entry = workspace.list(".", 10)?.entries.remove(0);
/// assert_eq!((entry.name.as_str(), entry.kind), ("src", EntryKind::Dir));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FolderEntry {
    /// The name of the entry.
    pub name: String,
    /// The kind of the entry.
    pub kind: EntryKind,
}

/// The entries of a folder.
///
/// ```
/// use levity_sandbox::Workspace;
///
/// # let folder = tempfile::tempdir()?;
/// let workspace = Workspace::open(folder.path())?;
/// for n in 0..5 {
///     workspace.write(&format!("{n}.txt"), b"")?;
/// }
/// let listing = workspace.list(".", 3)?;
/// assert_eq!((listing.entries.len(), listing.truncated, listing.unreadable), (3, true, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listing {
    /// The entries that are not denied, sorted by name.
    pub entries: Vec<FolderEntry>,
    /// `true` if the folder has more entries than the limit.
    pub truncated: bool,
    /// The number of entries that are omitted because their name is not UTF-8.
    pub unreadable: usize,
}

impl Dir {
    pub(super) fn new(space: Workspace, fd: Fd, path: String) -> Self {
        Self { space, fd, path }
    }

    /// Returns the path at the time of opening, relative to the workspace; empty for the workspace
    /// itself.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the path of an entry, whether it exists or not.
    ///
    /// ```
    /// # use levity_sandbox::Workspace;
    /// # let folder = tempfile::tempdir()?;
    /// let workspace = Workspace::open(folder.path())?;
    /// workspace.create_dir("src")?;
    /// assert_eq!(workspace.dir("src")?.path_of("new.rs"), "src/new.rs");
    /// assert_eq!(workspace.dir(".")?.path_of("new.rs"), "new.rs");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn path_of(&self, name: &str) -> String {
        path::child(&self.path, name)
    }

    /// Lists up to `max` entries, sorted by name.
    ///
    /// # Errors
    /// Returns an error if the operating system refuses.
    pub fn entries(&self, max: usize) -> Result<Listing, PathError> {
        let mut listing = Listing::default();
        let listed = sys::entries(&self.fd, |name, kind| {
            let Ok(name) = std::str::from_utf8(name) else {
                listing.unreadable += 1;
                return true;
            };
            if self.denies(name) {
                return true;
            }
            listing.truncated = listing.entries.len() >= max;
            if listing.truncated {
                return false;
            }
            if let Some(kind) = kind.or_else(|| self.kind(name)) {
                listing.entries.push(FolderEntry {
                    name: name.to_owned(),
                    kind,
                });
            }
            true
        });
        listed.map_err(|fail| self.error(fail, Purpose::List, "."))?;
        listing.entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(listing)
    }

    /// Queries the kind of an entry if the file system does not list it with the name.
    fn kind(&self, name: &str) -> Option<EntryKind> {
        sys::stat_entry(&self.fd, name).ok().map(|meta| meta.kind)
    }

    /// Returns the metadata of an entry; a link is not followed.
    ///
    /// # Errors
    /// Returns an error if the entry is denied or does not exist.
    pub fn metadata(&self, name: &str) -> Result<Metadata, PathError> {
        self.check(name)?;
        sys::stat_entry(&self.fd, name).map_err(|fail| self.error(fail, Purpose::Pass, name))
    }

    /// Opens a subfolder of this folder.
    ///
    /// # Errors
    /// Returns an error if the entry is denied, does not exist, or is not a folder. A link to a
    /// folder is not a folder.
    pub fn dir(&self, name: &str) -> Result<Self, PathError> {
        self.check(name)?;
        let fd = sys::open(&self.fd, name, Purpose::List)
            .map_err(|fail| self.error(fail, Purpose::List, name))?;
        if self.space.0.targets.deny_opened(&fd) {
            return Err(PathError::Denied(self.path_of(name)));
        }
        Ok(Self::new(self.space.clone(), fd, self.path_of(name)))
    }

    /// Opens a file in this folder for reading.
    ///
    /// # Errors
    /// Returns an error if the entry is denied, does not exist, or is not a regular file. A link to
    /// a file is not a regular file.
    pub fn file(&self, name: &str) -> Result<OpenFile, PathError> {
        self.check(name)?;
        let fd = sys::open(&self.fd, name, Purpose::Read)
            .map_err(|fail| self.error(fail, Purpose::Read, name))?;
        let path = self.path_of(name);
        OpenFile::new(&self.space.0, fd, &path.clone(), path)
    }

    /// Refuses a text that is more than one name, and names that are denied in this folder.
    fn check(&self, name: &str) -> Result<(), PathError> {
        path::name(name)?;
        match self.denies(name) {
            true => Err(PathError::Denied(self.path_of(name))),
            false => Ok(()),
        }
    }

    fn denies(&self, name: &str) -> bool {
        let space = &self.space.0;
        space.denies_entry(&self.path, name) || space.targets.deny_in(&self.fd, name)
    }

    /// Converts a failed system call. A link is no race here, since entries are never followed: it
    /// is simply not the requested kind.
    fn error(&self, fail: SysError, purpose: Purpose, name: &str) -> PathError {
        let path = self.path_of(name);
        match (fail, purpose) {
            (SysError::Link, Purpose::Read) => PathError::NotAFile(path),
            (SysError::Link, _) => PathError::NotADirectory(path),
            (fail, purpose) => error(&path, purpose, fail),
        }
    }
}
