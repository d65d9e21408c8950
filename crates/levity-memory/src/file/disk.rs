//! Files: read whole or not at all, replaced whole or not at all.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _};
use std::path::Path;
use std::time::{Duration, SystemTime};

use levity_core::Timestamp;

use crate::Durability;
use levity_system::Replace;
use levity_system::files as private;
use levity_system::files::is_at;

/// A file larger than this is not read: whoever has so much to say needs another store.
pub(super) const LARGEST: u64 = 1 << 30;

/// How long to wait for other programs that write. Long, since whoever polls may find the lock
/// taken many times in a row.
const PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 30_000 });
const PAUSE: Duration = Duration::from_millis(1);

/// What tells whether a file is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    number: u64,
    len: u64,
    modified: Option<SystemTime>,
}

impl Stamp {
    fn of(there: &fs::Metadata) -> Self {
        Self {
            number: number(there),
            len: there.len(),
            modified: there.modified().ok(),
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// When the file was changed.
    pub(super) fn modified(&self) -> Timestamp {
        let since = self
            .modified
            .and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
        Timestamp::default().after(since.unwrap_or_default())
    }
}

#[cfg(unix)]
fn number(there: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(there)
}

#[cfg(not(unix))]
fn number(_: &fs::Metadata) -> u64 {
    0
}

/// What stands at a path; `None` when nothing does. What is no plain file, such as a link, is
/// refused.
pub(super) fn stamp(path: &Path) -> io::Result<Option<Stamp>> {
    match fs::symlink_metadata(path) {
        Ok(there) if there.is_file() => Ok(Some(Stamp::of(&there))),
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a plain file",
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens a plain file; `None` when there is none.
fn open(path: &Path) -> io::Result<Option<(File, Stamp)>> {
    // Somebody may replace it between a look and the next, and does not do so for ever.
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
    Err(io::Error::other("it is replaced again and again"))
}

/// All that is in a file; `None` when there is none.
pub(super) fn read(path: &Path) -> io::Result<Option<(Vec<u8>, Stamp)>> {
    let Some((file, stamp)) = open(path)? else {
        return Ok(None);
    };
    if stamp.len > LARGEST {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "it is larger than 1 GiB",
        ));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(stamp.len).unwrap_or_default());
    file.take(LARGEST).read_to_end(&mut bytes)?;
    Ok(Some((bytes, stamp)))
}

/// The first bytes of a file.
pub(super) fn read_start(path: &Path, most: u64) -> io::Result<Option<(Vec<u8>, Stamp)>> {
    let Some((file, stamp)) = open(path)? else {
        return Ok(None);
    };
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(Some((bytes, stamp)))
}

/// Replaces a file: whoever reads it finds the old one or the new one, also after this process was
/// killed.
pub(super) fn replace(
    path: &Path,
    beside: &Path,
    bytes: &[u8],
    durability: Durability,
) -> io::Result<Option<Stamp>> {
    let new = Replace::new(path).through(beside).keeping_mode();
    let new = if durability == Durability::Synced {
        new.synced()
    } else {
        new
    };
    new.write(bytes)?;
    stamp(path)
}

/// Removes a file, and says whether there was one.
pub(super) fn remove(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes a name, or that there is none any more, last.
pub(super) fn sync_name(path: &Path, durability: Durability) -> io::Result<()> {
    if durability == Durability::Synced {
        levity_system::sync_name(path)
    } else {
        Ok(())
    }
}

/// Waits for the lock of a file, which is made if it is not there. It is let go of with what is
/// returned.
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
    for _ in 0..PATIENCE.as_millis() / PAUSE.as_millis() {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(io::Error::new(
        io::ErrorKind::ResourceBusy,
        "another program keeps it locked",
    ))
}
