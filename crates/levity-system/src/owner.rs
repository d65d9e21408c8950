//! Owners: how a process shows others that it lives.
//!
//! The lock on a file is the proof of life, because the system releases it however the process
//! ends. A file without a lock is removed by whoever finds it.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use crate::files;

/// An owner of resources that other processes can see: a file in a folder of owners, locked while
/// the owner lives.
///
/// A killed process releases its lock, so others detect its end immediately. A process that hangs
/// keeps it.
///
/// ```
/// use levity_core::World as _;
/// use levity_system::{Owner, SystemWorld, WithoutLocks};
///
/// let folder = tempfile::tempdir()?;
/// let owners = folder.path().join("owners");
/// let owner = Owner::new(&owners, || SystemWorld.random(), WithoutLocks::Alive)?;
/// let id = owner.id();
/// assert!(Owner::is_alive(&owners, id));
/// drop(owner);
/// assert!(!Owner::is_alive(&owners, id));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Owner {
    id: i64,
    path: PathBuf,
    /// The lock, held until the process ends for any reason.
    _lock: File,
}

/// The behaviour on file systems without locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithoutLocks {
    /// Creating an owner fails.
    Fail,
    /// Every owner counts as alive; another mechanism decides, such as a lease that expires.
    Alive,
}

impl Owner {
    /// Creates an owner, which is alive before others can learn its id. `random` returns the ids to
    /// try. Files of killed owners are removed.
    ///
    /// # Errors
    /// Returns an error if the file cannot be created.
    pub fn new(dir: &Path, random: impl Fn() -> u64, without: WithoutLocks) -> io::Result<Self> {
        sweep(dir);
        let mut last = io::Error::other("no unused file name was found");
        for _ in 0..100 {
            let id = (random() >> 1).cast_signed();
            let path = path(dir, id);
            match lock(dir, &path, without) {
                Ok(Some(lock)) => {
                    return Ok(Self {
                        id,
                        path,
                        _lock: lock,
                    });
                }
                Ok(None) => {}
                // Another process removed the folder, which was empty.
                Err(error) if error.kind() == io::ErrorKind::NotFound => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    /// Returns the number that identifies it to others.
    pub fn id(&self) -> i64 {
        self.id
    }

    /// Returns `true` if the owner of this number lives, or if that cannot be determined. Removes
    /// the file of a dead owner.
    pub fn is_alive(dir: &Path, id: i64) -> bool {
        files::refuse_link(dir).is_err() || is_locked(&path(dir, id))
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        if let Some(dir) = self.path.parent() {
            // The folder stays while others have files in it.
            let _ = fs::remove_dir(dir);
        }
    }
}

fn path(dir: &Path, id: i64) -> PathBuf {
    dir.join(format!("{id:016x}"))
}

/// Creates a file and locks it; returns `None` if the name exists, or a sweep interfered.
fn lock(dir: &Path, path: &Path, without: WithoutLocks) -> io::Result<Option<File>> {
    files::make_own_dir(dir)?;
    let file = match files::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(path)
    {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
        other => other?,
    };
    match file.try_lock() {
        Ok(()) => Ok(files::is_at(&file, path).then_some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        // No other process finds the file unlocked either.
        Err(TryLockError::Error(_)) if without == WithoutLocks::Alive => {
            Ok(files::is_at(&file, path).then_some(file))
        }
        Err(TryLockError::Error(error)) => {
            let _ = fs::remove_file(path);
            Err(error)
        }
    }
}

fn is_locked(path: &Path) -> bool {
    let file = match files::options().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(error) => return error.kind() != io::ErrorKind::NotFound,
    };
    // Owners create only regular files.
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return true;
    }
    if file.try_lock().is_err() {
        return true;
    }
    // While this process has the lock, no one treats the file as that of a living owner.
    let _ = fs::remove_file(path);
    false
}

/// Removes the files of killed owners. Other files stay, even if the folder does not belong to
/// levity.
fn sweep(dir: &Path) {
    if files::refuse_link(dir).is_err() {
        return;
    }
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for entry in entries.flatten() {
        if entry.file_name().to_str().is_some_and(is_name) {
            is_locked(&entry.path());
        }
    }
}

/// Returns `true` if an owner creates files of this name.
fn is_name(name: &str) -> bool {
    name.len() == 16
        && name
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}
