//! Removes runs from a journal of files.
//!
//! A removal must not delete half of a tree that is in use. So all files are locked and checked
//! before the first one is removed, the children before their parent.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::PathBuf;

use levity_core::{JournalError, JournalErrorKind, RunId};

use super::format::check_header;
use crate::Durability;
use levity_system::files as private;

use super::{FileJournal, failed, sync_dir, try_lock};

/// The maximum number of files locked at the same time; a process can have only so many open.
const MAX_LOCKED: usize = 128;

impl FileJournal {
    /// Removes a run and its children, or none of them if one is being driven.
    pub(super) fn remove_now(&self, run: &RunId) -> Result<bool, JournalError> {
        let own = self.path(run)?;
        // A process that starts a child has this run open, so no child is added while it is locked
        // here.
        let own = held(run, own)?;
        let below = self.files(|other| other != run && other.is_within(run))?;
        let (mut all, many) = (Vec::new(), below.len() > MAX_LOCKED);
        for (other, path) in below {
            match held(&other, path) {
                // A copy, or a file of another program: it is not a run, whatever its name is.
                Err(error) if error.kind() == JournalErrorKind::Damaged => {}
                held => all.extend(held?),
            }
            // Beyond the limit, each file is checked and locked again when it is removed: the
            // driver of the parent run is locked out meanwhile, and no one else drives the
            // children.
            if let Some(last) = all.last_mut().filter(|_| many) {
                last.lock = None;
            }
        }
        // The deepest run is removed first, so that a crash leaves a run that can be removed again.
        all.sort_by_key(|file| std::cmp::Reverse(file.path.as_os_str().len()));
        all.extend(own);
        for LockedFile { run, path, lock } in &all {
            let _again = if lock.is_none() {
                held(run, path.clone())?
            } else {
                None
            };
            super::snapshot::remove(path);
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

/// The file of a run that no other process has open.
struct LockedFile {
    run: RunId,
    path: PathBuf,
    lock: Option<File>,
}

/// A file whose header names another run is not touched: it is a copy or belongs to another
/// program.
fn held(run: &RunId, path: PathBuf) -> Result<Option<LockedFile>, JournalError> {
    let lock = try_lock(&path, run, private::options().read(true).append(true))?;
    let Some(lock) = lock else { return Ok(None) };
    let mut start = Vec::new();
    (&lock)
        .take(4096)
        .read_to_end(&mut start)
        .map_err(|error| failed(&path, "read", error))?;
    let first = start
        .split_inclusive(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default();
    check_header(run, first).map_err(|flaw| flaw.of(&path, 1))?;
    Ok(Some(LockedFile {
        run: run.clone(),
        path,
        lock: Some(lock),
    }))
}
