//! Files that are there whole or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read as _};
use std::path::Path;

use levity_system::{Replace, files};

use super::error::SessionProblem;

/// Runs what blocks where it holds up nobody, if there is such a place.
pub(super) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SessionProblem> + Send + 'static,
) -> Result<T, SessionProblem> {
    match tokio::runtime::Handle::try_current() {
        Ok(handle) => handle
            .spawn_blocking(work)
            .await
            .unwrap_or_else(|gone| Err(io::Error::other(gone).into())),
        Err(_) => work(),
    }
}

/// Replaces a file by what `fill` writes: whoever reads it finds the old one or the new one, also
/// after this process was killed or the power was lost. What models said is private, unless
/// somebody has made the file that is there readable.
pub(super) fn replace(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<File>) -> Result<(), SessionProblem>,
) -> Result<(), SessionProblem> {
    let (folder, _) = parts(path)?;
    // The folders of the day, the month and the year may come from elsewhere.
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

/// Removes what writers of this file left when they were killed.
pub(super) fn tidy(path: &Path) {
    let Ok((folder, name)) = parts(path) else {
        return;
    };
    let begin = format!(".{name}.");
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let left = entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with(&begin) && name.ends_with(Replace::UNFINISHED));
        if left {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Opens a file to read it. A pipe or a device that stands in its place is not waited for.
pub(super) fn open(path: &Path) -> io::Result<File> {
    match fs::metadata(path)?.is_file() {
        true => files::open_without_waiting(path),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a regular file",
        )),
    }
}

/// All bytes of a file that has no more than `most`.
pub(super) fn read(path: &Path, most: u64) -> Result<Vec<u8>, SessionProblem> {
    let file = open(path)?;
    let mut bytes = Vec::new();
    // One more than may be there tells a file that is too large, also one that grows while it is
    // read.
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(SessionProblem::TooLarge { most });
    }
    Ok(bytes)
}
