//! File access: atomic reads, atomic replacement and locks.
//!
//! Nothing here follows a link or waits for a pipe, since the folder may come from someone else.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _};
use std::path::Path;
use std::time::{Duration, SystemTime};

use levity_core::Timestamp;

use crate::Durability;
use levity_system::Replace;
use levity_system::files as private;
use levity_system::files::is_at;

/// The maximum size of a file that is read; larger conversations need another store.
pub(super) const MAX_FILE_BYTES: u64 = 1 << 30;

/// The time to wait for other programs that write. It is long, because a polling waiter may find
/// the lock taken many times in a row.
const LOCK_TIMEOUT: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 30_000 });
const LOCK_POLL: Duration = Duration::from_millis(1);

/// The metadata that shows whether a file has changed.
///
/// Two writes within the resolution of the clock normally differ in the inode, because each save
/// creates a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    file_number: u64,
    len: u64,
    modified: Option<SystemTime>,
}

impl Stamp {
    fn of(metadata: &fs::Metadata) -> Self {
        Self {
            file_number: file_number(metadata),
            len: metadata.len(),
            modified: metadata.modified().ok(),
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Returns the time of the last change.
    pub(super) fn modified(&self) -> Timestamp {
        let since = self
            .modified
            .and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
        Timestamp::default().after(since.unwrap_or_default())
    }
}

#[cfg(unix)]
fn file_number(metadata: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

#[cfg(not(unix))]
fn file_number(_: &fs::Metadata) -> u64 {
    0
}

/// Returns the stamp of the file at a path; `None` if there is none. Anything but a regular file,
/// such as a link, is an error.
pub(super) fn stamp(path: &Path) -> io::Result<Option<Stamp>> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_file() => Ok(Some(Stamp::of(&metadata))),
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens a regular file; `None` if there is none.
///
/// The name is checked before and after opening, so that a file replaced in between is not mixed up
/// with its successor.
fn open(path: &Path) -> io::Result<Option<(File, Stamp)>> {
    // Another program may replace the file between the two checks, but not forever.
    for _ in 0..100 {
        if stamp(path)?.is_none() {
            return Ok(None);
        }
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        if is_at(&file, path) {
            let stamp = Stamp::of(&file.metadata()?);
            return Ok(Some((file, stamp)));
        }
    }
    Err(io::Error::other(
        "the file was replaced repeatedly while it was opened; retry later",
    ))
}

/// Reads a whole file; `None` if there is none.
pub(super) fn read(path: &Path) -> io::Result<Option<(Vec<u8>, Stamp)>> {
    let Some((file, stamp)) = open(path)? else {
        return Ok(None);
    };
    if stamp.len > MAX_FILE_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "the file is larger than 1 GiB",
        ));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(stamp.len).unwrap_or_default());
    file.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
    Ok(Some((bytes, stamp)))
}

/// Reads the first bytes of a file.
pub(super) fn read_start(path: &Path, limit: u64) -> io::Result<Option<(Vec<u8>, Stamp)>> {
    let Some((file, stamp)) = open(path)? else {
        return Ok(None);
    };
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(Some((bytes, stamp)))
}

/// Replaces a file atomically: readers find the old or the new content, even if this process is
/// killed.
pub(super) fn replace(
    path: &Path,
    temp: &Path,
    bytes: &[u8],
    durability: Durability,
) -> io::Result<Option<Stamp>> {
    let new = Replace::new(path).through(temp).keeping_mode();
    let new = if durability == Durability::Synced {
        new.synced()
    } else {
        new
    };
    new.write(bytes)?;
    stamp(path)
}

/// Removes a file, and returns `true` if it existed.
pub(super) fn remove(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes the creation or removal of a name durable.
pub(super) fn sync_name(path: &Path, durability: Durability) -> io::Result<()> {
    if durability == Durability::Synced {
        levity_system::sync_name(path)
    } else {
        Ok(())
    }
}

/// Waits for the lock of a file, and creates the file if it does not exist. Dropping the returned
/// file releases the lock.
pub(super) fn lock(path: &Path) -> io::Result<File> {
    if let Some(dir) = path.parent() {
        private::make_own_dir(dir)?;
    }
    let file = private::open(
        path,
        private::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false),
    )?;
    for _ in 0..LOCK_TIMEOUT.as_millis() / LOCK_POLL.as_millis() {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_POLL),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(io::Error::new(
        io::ErrorKind::ResourceBusy,
        "another program holds the lock",
    ))
}
