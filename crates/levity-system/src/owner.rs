use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use crate::files;

/// Somebody who owns things that others can see: a file in a folder of owners, locked for as long
/// as the owner lives.
///
/// A process that is killed lets go of its lock, so others find out at once. A process that stands
/// still keeps it.
#[derive(Debug)]
pub struct Owner {
    id: i64,
    path: PathBuf,
    /// Locked until the process ends, however that comes.
    _lock: File,
}

/// The behaviour on file systems without locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithoutLocks {
    /// Nobody can be an owner.
    Fail,
    /// Every owner counts as alive: something else decides, such as a lease that runs out.
    Alive,
}

impl Owner {
    /// Makes a new owner, which others find alive before they can hear of it. `random` gives the
    /// ids to try. Files that killed owners left are removed.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn new(dir: &Path, random: impl Fn() -> u64, without: WithoutLocks) -> io::Result<Self> {
        sweep(dir);
        let mut last = io::Error::other("no name is free");
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
                // Somebody has taken the folder away, which was empty.
                Err(error) if error.kind() == io::ErrorKind::NotFound => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    /// The number by which others know it.
    pub fn id(&self) -> i64 {
        self.id
    }

    /// Returns whether the owner of this number lives; also if that cannot be found out. The file
    /// of one who is gone is removed.
    pub fn is_alive(dir: &Path, id: i64) -> bool {
        files::refuse_link(dir).is_err() || is_locked(&path(dir, id))
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        if let Some(dir) = self.path.parent() {
            // It stays while others have their files in it.
            let _ = fs::remove_dir(dir);
        }
    }
}

fn path(dir: &Path, id: i64) -> PathBuf {
    dir.join(format!("{id:016x}"))
}

/// Makes a file and locks it; `None` when the name is taken, or a sweep came between.
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
        // Nobody finds the file unlocked either.
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
    // Owners make plain files alone.
    if !file.metadata().is_ok_and(|there| there.is_file()) {
        return true;
    }
    if file.try_lock().is_err() {
        return true;
    }
    // While the lock is ours, nobody takes the file for a living owner's.
    let _ = fs::remove_file(path);
    false
}

/// Removes the files of owners who were killed. Files of others stay, also where the folder is none
/// of ours.
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

/// Returns whether an owner makes files of this name.
fn is_name(name: &str) -> bool {
    name.len() == 16
        && name
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}
