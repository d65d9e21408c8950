//! Metadata of entries, in a form that is the same on all systems.
//!
//! Times have a resolution of one second. Modes are not public: only `write` needs them, to
//! preserve those of the file that it replaces.

use std::fmt;
use std::time::{Duration, SystemTime};

/// The kind of an entry in a folder.
///
/// ```
/// use levity_sandbox::EntryKind;
///
/// assert_eq!(EntryKind::Dir.to_string(), "folder");
/// assert_eq!(EntryKind::Other.to_string(), "other");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EntryKind {
    /// A regular file with some content.
    File,
    /// A folder that may contain entries.
    Dir,
    /// A symbolic link, whatever its target.
    Link,
    /// A device, a pipe or a socket, which cannot be opened.
    Other,
}

impl fmt::Display for EntryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File => "file",
            Self::Dir => "folder",
            Self::Link => "link",
            Self::Other => "other",
        })
    }
}

/// The metadata of a file or a folder.
///
/// Two values of one path are equal if the entry was not changed in between. They then have the
/// same inode and the same time of the last change of the inode, which no program can set.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use levity_sandbox::{EntryKind, Workspace};
///
/// # let folder = tempfile::tempdir()?;
/// let workspace = Workspace::open(folder.path())?;
/// workspace.write("a.txt", b"hello")?;
/// let metadata = workspace.metadata("a.txt")?;
/// assert_eq!((metadata.kind(), metadata.size(), metadata.links()), (EntryKind::File, 5, 1));
/// assert!(metadata.modified() > SystemTime::UNIX_EPOCH + Duration::from_secs(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Metadata {
    pub(super) kind: EntryKind,
    pub(super) size: u64,
    pub(super) modified: i64,
    pub(super) mode: u32,
    pub(super) links: u64,
    pub(super) inode: u64,
    /// The time of the last change of the inode, in seconds and nanoseconds.
    pub(super) inode_changed: (i64, i64),
}

impl Metadata {
    /// Returns the kind of the entry.
    pub fn kind(&self) -> EntryKind {
        self.kind
    }

    /// Returns the size in bytes; meaningful for files only.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the time of the last change, to the second.
    ///
    /// A time that this system cannot represent is returned as the Unix epoch.
    pub fn modified(&self) -> SystemTime {
        let seconds = Duration::from_secs(self.modified.unsigned_abs());
        let time = match self.modified < 0 {
            true => SystemTime::UNIX_EPOCH.checked_sub(seconds),
            false => SystemTime::UNIX_EPOCH.checked_add(seconds),
        };
        time.unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// Returns the number of hard links of a file. Some of them may be outside the workspace.
    ///
    /// A file with more than one link is refused by default: see
    /// [`allow_hard_links`](crate::WorkspaceBuilder::allow_hard_links).
    pub fn links(&self) -> u64 {
        self.links
    }
}
