//! Writes files next to their destination and then moves them there, so no reader sees half a file.
//!
//! The temporary file is in the folder of its destination, since a rename between file systems is
//! not atomic. Its name is unguessable, so no other process can prepare a link there. If the
//! process is killed between the two steps, a file `.levity-*.tmp` remains, and the destination is
//! unchanged.

use std::collections::hash_map::RandomState;
use std::fs::File;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use super::change::ChangeKind;
use super::meta::EntryKind;
use super::resolve::{Place, ResolveOptions, error};
use super::sys::{self, Fd, Purpose, SysError};
use super::{PathError, Workspace};

/// Options for writing a file.
///
/// ```
/// # use levity_sandbox::WriteOptions;
/// let options = WriteOptions::new().parents().synced();
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct WriteOptions {
    parents: bool,
    synced: bool,
}

impl WriteOptions {
    /// Creates the default options: the parent folder must exist, and the call does not wait for
    /// the disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates parent folders that are missing.
    ///
    /// ```
    /// use levity_sandbox::{PathError, Workspace, WriteOptions};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// let workspace = Workspace::open(folder.path())?;
    /// assert!(matches!(workspace.write("a/b.txt", b""), Err(PathError::NotFound(_))));
    /// workspace.write_with("a/b.txt", b"", WriteOptions::new().parents())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn parents(mut self) -> Self {
        self.parents = true;
        self
    }

    /// Waits until the file is on disk. Without this, a crash of the whole machine may lose the
    /// last writes; it never leaves half a file under the name.
    ///
    /// The call then waits for the content of the file and for its name in its folder. It does not
    /// wait for the names of folders above: see [`Workspace::sync_names`].
    pub fn synced(mut self) -> Self {
        self.synced = true;
        self
    }
}

/// The result of writing a file.
///
/// ```
/// use levity_sandbox::Workspace;
///
/// # let folder = tempfile::tempdir()?;
/// let workspace = Workspace::open(folder.path())?;
/// let first = workspace.write("./a.txt", b"1")?;
/// assert_eq!((first.path.as_str(), first.created), ("a.txt", true));
/// assert!(!workspace.write("a.txt", b"2")?.created);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WrittenFile {
    /// The path relative to the workspace, with no link in it.
    pub path: String,
    /// `true` if the file did not exist before.
    pub created: bool,
}

impl Workspace {
    /// Writes a whole file and replaces an existing one. See [`write_with`](Self::write_with).
    ///
    /// # Errors
    /// Fails as [`write_with`](Self::write_with) does.
    pub fn write(&self, path: &str, bytes: &[u8]) -> Result<WrittenFile, PathError> {
        self.write_with(path, bytes, WriteOptions::new())
    }

    /// Writes a whole file and replaces an existing one. Every reader sees either the old file or
    /// the new one.
    ///
    /// The permissions of the old file are preserved; a new file gets those of the process's umask.
    /// A link is followed if it stays inside.
    ///
    /// Extended attributes, the owner and other hard links of the old file are not preserved, since
    /// the file is replaced and not changed.
    ///
    /// # Errors
    /// Returns an error if the workspace is read-only, the path leaves it, is denied or is not a
    /// regular file, or the disk is full. Nothing changes in that case.
    pub fn write_with(
        &self,
        path: &str,
        bytes: &[u8],
        options: WriteOptions,
    ) -> Result<WrittenFile, PathError> {
        self.writable(path)?;
        let place = self.0.place(
            path,
            ResolveOptions {
                follow: true,
                parents: options.parents,
            },
        )?;
        let old = old_mode(path, &place)?;
        let io = |source| PathError::Io {
            path: path.to_owned(),
            source,
        };
        let temporary = Temporary::write(&place.dir, bytes, old, options.synced).map_err(io)?;
        temporary
            .publish(&place.name)
            .map_err(|fail| error(path, Purpose::Pass, fail))?;
        if options.synced {
            sys::sync_dir(&place.dir).map_err(|fail| error(path, Purpose::Pass, fail))?;
        }
        self.0.listeners.notify(&place.path, ChangeKind::Written);
        Ok(WrittenFile {
            path: place.path,
            created: old.is_none(),
        })
    }
}

/// Returns the permissions of the file to replace, if it exists and is writable.
fn old_mode(requested: &str, place: &Place) -> Result<Option<u32>, PathError> {
    let meta = match sys::stat_entry(&place.dir, &place.name) {
        Err(SysError::Missing) => return Ok(None),
        other => other.map_err(|fail| error(requested, Purpose::Pass, fail))?,
    };
    match meta.kind {
        EntryKind::File if meta.mode & 0o222 == 0 => {
            Err(PathError::ReadOnlyFile(requested.to_owned()))
        }
        EntryKind::File => Ok(Some(meta.mode)),
        // The entry was not a link when the path was resolved.
        EntryKind::Link => Err(PathError::Busy(requested.to_owned())),
        EntryKind::Dir | EntryKind::Other => Err(PathError::NotAFile(requested.to_owned())),
    }
}

/// A temporary file with an unguessable name, which is removed unless it is published.
struct Temporary<'a> {
    dir: &'a Fd,
    name: String,
    published: bool,
}

impl<'a> Temporary<'a> {
    /// Writes and closes a temporary file. `mode` is that of the file to replace, or `None` for a
    /// new one.
    fn write(dir: &'a Fd, bytes: &[u8], mode: Option<u32>, synced: bool) -> io::Result<Self> {
        // A replacement for a secret file must be secret while it is written, too.
        let (temporary, mut file) = Self::create(dir, mode.map_or(0o666, |_| 0o600))?;
        file.write_all(bytes)?;
        if let Some(mode) = mode {
            sys::set_mode(&file, mode).map_err(to_io_error)?;
        }
        if synced {
            file.sync_all()?;
        }
        Ok(temporary)
    }

    /// Creates an empty file under an unused name, with at most 100 attempts.
    fn create(dir: &'a Fd, mode: u32) -> io::Result<(Self, File)> {
        for _ in 0..100 {
            let name = format!(".levity-{:016x}{:016x}.tmp", random(), random());
            match sys::create(dir, &name, mode) {
                Ok(file) => {
                    return Ok((
                        Self {
                            dir,
                            name,
                            published: false,
                        },
                        file,
                    ));
                }
                // A collision by chance, or another process knows the generator's keys. The next
                // name differs.
                Err(SysError::Exists) => {}
                Err(fail) => return Err(to_io_error(fail)),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Moves the file to its destination in one step; afterwards, dropping it removes nothing.
    fn publish(mut self, name: &str) -> Result<(), SysError> {
        sys::rename(self.dir, &self.name, self.dir, name)?;
        self.published = true;
        Ok(())
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.published {
            let _ = sys::remove(self.dir, &self.name, false);
        }
    }
}

fn to_io_error(fail: SysError) -> io::Error {
    match fail {
        SysError::Other(source) => source,
        SysError::Missing => io::ErrorKind::NotFound.into(),
        _ => io::ErrorKind::Other.into(),
    }
}

/// Returns an unpredictable number: a hash under keys that the system chose.
fn random() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u64(COUNT.fetch_add(1, Ordering::Relaxed));
    hasher.finish()
}
