//! Who drives runs: each journal that opens some is an owner, and holds the lock of a file for as long as it
//! lives.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use levity_core::World;

use super::writer::Writer;
use crate::files::is_at;
use levity_system::files as private;

/// This journal, as others see it.
pub(super) struct Owner {
    pub(super) id: i64,
    path: PathBuf,
    /// Locked until the process ends, however that comes.
    _lock: File,
}

impl Owner {
    /// A new owner, which others find alive before they can hear of it.
    pub(super) fn new(dir: &Path, world: &dyn World, writer: &Arc<Writer>) -> io::Result<Self> {
        sweep(dir);
        let mut last = io::Error::other("no name is free");
        for _ in 0..100 {
            let id = (world.random() >> 1).cast_signed();
            let path = path(dir, id);
            match lock(dir, &path) {
                Ok(Some(lock)) => {
                    in_process().push((id, Arc::downgrade(writer)));
                    return Ok(Self { id, path, _lock: lock });
                }
                Ok(None) => {}
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        in_process().retain(|(id, _)| *id != self.id);
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
fn lock(dir: &Path, path: &Path) -> io::Result<Option<File>> {
    private::make_own_dir(dir)?;
    let file = match private::options().read(true).write(true).create_new(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
        other => other?,
    };
    match file.try_lock() {
        // Where there are no locks, nobody finds it unlocked either, and the lease decides.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(is_at(&file, path, None).then_some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
    }
}

/// Whether the owner still lives. When that cannot be found out, its lease decides. The file of one who is
/// gone is taken away.
pub(super) fn is_alive(dir: &Path, id: i64) -> bool {
    private::refuse_link(dir).is_err() || is_locked(&path(dir, id))
}

fn is_locked(path: &Path) -> bool {
    let file = match private::options().read(true).write(true).open(path) {
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

/// Takes away what owners left who were killed. Files of others stay, also where the folder is none of ours.
fn sweep(dir: &Path) {
    if private::refuse_link(dir).is_err() {
        return;
    }
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_str().is_some_and(is_name) {
            is_locked(&entry.path());
        }
    }
}

/// Returns whether an owner makes files of this name.
fn is_name(name: &str) -> bool {
    name.len() == 16 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The owners of this process.
static OWNERS: Mutex<Vec<(i64, Weak<Writer>)>> = Mutex::new(Vec::new());

fn in_process() -> MutexGuard<'static, Vec<(i64, Weak<Writer>)>> {
    OWNERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The writer of an owner, if it is in this process.
pub(super) fn in_this_process(owner: i64) -> Option<Arc<Writer>> {
    in_process().iter().find(|(id, _)| *id == owner)?.1.upgrade()
}
