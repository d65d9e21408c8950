//! Removing runs.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::PathBuf;

use levity_core::{JournalError, RunId};

use super::{Durability, FileJournal, failed, sync_dir, try_lock};

impl FileJournal {
    /// Removes a run and those below it: none of them, if one is driven.
    pub(super) fn remove_now(&self, run: &RunId) -> Result<bool, JournalError> {
        let own = self.path(run)?;
        // Whoever makes a run below has this one open, so none comes while it is locked here.
        let own = held(run, own)?;
        let below = self.files(|other| other != run && other.is_within(run))?;
        let mut all = Vec::new();
        for (other, path) in below {
            all.extend(held(&other, path)?);
        }
        // The deepest first: what a crash leaves is a run that can be removed again.
        all.sort_by_key(|file| std::cmp::Reverse(file.path.as_os_str().len()));
        all.extend(own);
        for Held { path, .. } in &all {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(failed(path, "removed", error));
                }
                _ => {}
            }
        }
        if !all.is_empty() && self.durability == Durability::Synced {
            sync_dir(&self.dir).map_err(|error| failed(&self.dir, "synced", error))?;
        }
        Ok(!all.is_empty())
    }
}

/// A file that nobody else has open.
struct Held {
    path: PathBuf,
    _lock: File,
}

fn held(run: &RunId, path: PathBuf) -> Result<Option<Held>, JournalError> {
    let lock = try_lock(&path, run, OpenOptions::new().read(true).append(true))?;
    Ok(lock.map(|lock| Held { path, _lock: lock }))
}
