use std::fmt;
use std::time::{Duration, SystemTime};

/// The kind of an entry in a folder.
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    pub(super) kind: EntryKind,
    pub(super) size: u64,
    pub(super) modified: i64,
    pub(super) mode: u32,
    pub(super) links: u64,
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
    pub fn modified(&self) -> SystemTime {
        let seconds = Duration::from_secs(self.modified.unsigned_abs());
        let time = match self.modified < 0 {
            true => SystemTime::UNIX_EPOCH.checked_sub(seconds),
            false => SystemTime::UNIX_EPOCH.checked_add(seconds),
        };
        time.unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// Returns the number of hard links of a file. Some of them may be outside the workspace.
    pub fn links(&self) -> u64 {
        self.links
    }
}
