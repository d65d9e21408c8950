//! Files that are open for reading.
//!
//! All checks happen on the open handle: its kind, its identity and its number of hard links. The
//! path can change afterwards without effect. Reads are bounded by the caller's limit, not by the
//! size that the file system reports: a file in `/proc` or a growing log reports a wrong one.

use std::fs::File;
use std::io::{self, Read};

use super::meta::{EntryKind, Metadata};
use super::resolve::error;
use super::sys::{self, Fd, Purpose};
use super::{Inner, PathError};

/// A regular file of a workspace, open for reading.
///
/// ```
/// use std::io::{Read, Seek, SeekFrom};
/// use levity_sandbox::Workspace;
///
/// # let folder = tempfile::tempdir()?;
/// let workspace = Workspace::open(folder.path())?;
/// workspace.write("data.bin", b"0123456789")?;
/// let open = workspace.open_file("data.bin")?;
/// assert_eq!(open.metadata().size(), 10);
///
/// let mut file = open.into_file();
/// file.seek(SeekFrom::Start(7))?;
/// let mut rest = Vec::new();
/// file.read_to_end(&mut rest)?;
/// assert_eq!(rest, b"789");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct OpenFile {
    file: File,
    path: String,
    meta: Metadata,
}

impl OpenFile {
    /// Rejects anything that is not a regular file, or may be shared with a place outside.
    pub(super) fn new(
        space: &Inner,
        fd: Fd,
        requested: &str,
        path: String,
    ) -> Result<Self, PathError> {
        let meta = sys::stat_handle(&fd).map_err(|fail| error(requested, Purpose::Read, fail))?;
        if meta.kind != EntryKind::File {
            return Err(PathError::NotAFile(requested.to_owned()));
        }
        if space.targets.deny_opened(&fd) {
            return Err(PathError::Denied(requested.to_owned()));
        }
        if meta.links > 1 && !space.hard_links {
            return Err(PathError::HardLink(requested.to_owned()));
        }
        Ok(Self {
            file: sys::into_file(fd),
            path,
            meta,
        })
    }

    /// Returns the path relative to the workspace, with no link in it.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the metadata at the time of opening.
    pub fn metadata(&self) -> &Metadata {
        &self.meta
    }

    /// Returns the file of the standard library, for seeking or memory mapping.
    pub fn into_file(self) -> File {
        self.file
    }

    /// Reads up to `max` bytes. The file may grow during the read, but no more than `max` bytes are
    /// buffered.
    ///
    /// Reading continues at the current position. `truncated` is set if at least one more byte
    /// follows.
    ///
    /// # Errors
    /// Returns the error of the operating system, for example if a network disk is gone.
    pub fn read_up_to(&mut self, max: u64) -> io::Result<Excerpt> {
        let bytes = read_up_to(&mut self.file, self.meta.size, max.saturating_add(1))?;
        Ok(Excerpt::new(bytes, self.meta.size, max))
    }
}

impl Read for OpenFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read(buffer)
    }
}

/// The beginning of a file, as it was read.
///
/// Its `Debug` shows lengths and no contents, so it may appear in a log.
///
/// ```
/// use levity_sandbox::Workspace;
///
/// # let folder = tempfile::tempdir()?;
/// let workspace = Workspace::open(folder.path())?;
/// workspace.write("a.txt", b"secret text")?;
/// let excerpt = workspace.read_prefix("a.txt", 6)?;
/// assert_eq!((&excerpt.bytes[..], excerpt.size, excerpt.truncated), (&b"secret"[..], 11, true));
/// assert!(!format!("{excerpt:?}").contains("secret"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Excerpt {
    /// The bytes from the beginning of the file.
    pub bytes: Vec<u8>,
    /// The size of the whole file in bytes.
    pub size: u64,
    /// `true` if the file is longer than `bytes`.
    pub truncated: bool,
}

impl Excerpt {
    /// `bytes` contains one byte more than `max` if the file is longer; that byte is dropped here.
    fn new(mut bytes: Vec<u8>, size: u64, max: u64) -> Self {
        let read = bytes.len() as u64;
        let truncated = read > max;
        if truncated {
            bytes.truncate(usize::try_from(max).unwrap_or(usize::MAX));
        }
        Self {
            bytes,
            size: size.max(read),
            truncated,
        }
    }
}

// A file may contain data that must not appear in a log.
impl std::fmt::Debug for Excerpt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let held = self.bytes.len();
        f.debug_struct("Excerpt")
            .field("bytes", &held)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

/// Reads until the end or `limit`. A file that reports its size is read in one call.
///
/// The first buffer has room for one byte more than `size`, so the end of a stable file is noticed
/// without a second call. A file that is longer than it reports doubles the buffer, up to `limit`.
fn read_up_to(file: &mut File, size: u64, limit: u64) -> io::Result<Vec<u8>> {
    /// The minimum and maximum buffer size before anything is read.
    const ROOM: (u64, u64) = (64, 16 << 20);
    let first = size.saturating_add(1).clamp(ROOM.0, ROOM.1).min(limit);
    let mut bytes = vec![0; usize::try_from(first).unwrap_or(0)];
    let mut filled = 0;
    loop {
        let room = bytes.len() - filled;
        let count = match file.read(&mut bytes[filled..]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        filled += count;
        let is_whole = count < room && filled as u64 >= size;
        if count == 0 || is_whole || filled as u64 >= limit {
            break;
        }
        if filled == bytes.len() {
            let grown = (filled as u64).saturating_mul(2).min(limit);
            bytes.resize(usize::try_from(grown).unwrap_or(usize::MAX), 0);
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}
