//! File access with atomic replacement.
//!
//! Session files may hold private data and lie in folders that other programs write to. New files
//! are readable by their owner only, links in place of the day folders are refused, and pipes and
//! devices are never opened for reading.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read as _};
use std::path::Path;

use levity_system::{Replace, files};

use super::error::SessionProblem;

/// Runs blocking work where it delays no other task, if there is a runtime.
pub(super) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SessionProblem> + Send + 'static,
) -> Result<T, SessionProblem> {
    match tokio::runtime::Handle::try_current() {
        Ok(handle) => handle
            .spawn_blocking(work)
            .await
            .unwrap_or_else(|join_error| Err(io::Error::other(join_error).into())),
        Err(_) => work(),
    }
}

/// Replaces a file with the output of `fill`: readers find the old or the new content, even after a
/// kill or a power loss. Model output is private, so a new file is readable by its owner only; an
/// existing file keeps its permissions.
pub(super) fn replace(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<File>) -> Result<(), SessionProblem>,
) -> Result<(), SessionProblem> {
    let (folder, _) = parts(path)?;
    // The folders of the day, the month and the year may come from another program.
    folder
        .ancestors()
        .take(3)
        .try_for_each(files::refuse_link)?;
    files::make_dir(folder)?;
    Replace::new(path).synced().keeping_mode().fill(fill)
}

fn parts(path: &Path) -> io::Result<(&Path, &str)> {
    let name = path.file_name().and_then(|name| name.to_str());
    path.parent()
        .zip(name)
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
}

/// Removes the temporary files of killed writers of this file.
pub(super) fn remove_leftovers(path: &Path) {
    let Ok((folder, name)) = parts(path) else {
        return;
    };
    let prefix = format!(".{name}.");
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_leftover = entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with(&prefix) && name.ends_with(Replace::UNFINISHED));
        if is_leftover {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Opens a file for reading. It does not block on a pipe or a device at the path.
pub(super) fn open(path: &Path) -> io::Result<File> {
    match fs::metadata(path)?.is_file() {
        true => files::open_without_waiting(path),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        )),
    }
}

/// Reads all bytes of a file with at most `max_bytes` bytes.
pub(super) fn read(path: &Path, max_bytes: u64) -> Result<Vec<u8>, SessionProblem> {
    let file = open(path)?;
    let mut bytes = Vec::new();
    // One byte beyond the limit reveals a file that is too large, even one that grows while it is
    // read.
    file.take(max_bytes.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        return Err(SessionProblem::TooLarge { max_bytes });
    }
    Ok(bytes)
}
