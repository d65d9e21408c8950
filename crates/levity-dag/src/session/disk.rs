//! Files that are there whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read as _, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use levity_runtime::__private::refuse_link;

use super::error::SessionProblem;

/// How the file ends that is written before it gets its name.
const UNFINISHED: &str = ".tmp";

/// Runs what blocks where it holds up nobody, if there is such a place.
pub(super) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SessionProblem> + Send + 'static,
) -> Result<T, SessionProblem> {
    match tokio::runtime::Handle::try_current() {
        Ok(handle) => {
            handle.spawn_blocking(work).await.unwrap_or_else(|gone| Err(io::Error::other(gone).into()))
        }
        Err(_) => work(),
    }
}

/// Replaces a file by what `fill` writes: whoever reads it finds the old one or the new one, also after this process was
/// killed or the power was lost.
pub(super) fn replace(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<File>) -> Result<(), SessionProblem>,
) -> Result<(), SessionProblem> {
    let unfinished = beside(path)?;
    let named = write(path, &unfinished, fill).and_then(|()| Ok(fs::rename(&unfinished, path)?));
    if named.is_err() {
        // It is of no use to anybody.
        let _ = fs::remove_file(&unfinished);
    }
    named?;
    match path.parent() {
        Some(folder) if cfg!(unix) => Ok(File::open(folder)?.sync_all()?),
        _ => Ok(()),
    }
}

/// A name in the same folder that nobody else uses, since a file of two writers would be torn.
fn beside(path: &Path) -> io::Result<PathBuf> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let (folder, name) = parts(path)?;
    // The folders of the day, the month and the year may come from elsewhere.
    folder.ancestors().take(3).try_for_each(refuse_link)?;
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)?;
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    Ok(folder.join(format!(".{name}.{}-{next}{UNFINISHED}", std::process::id())))
}

fn parts(path: &Path) -> io::Result<(&Path, &str)> {
    let name = path.file_name().and_then(|name| name.to_str());
    path.parent().zip(name).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
}

fn write(
    path: &Path,
    unfinished: &Path,
    fill: impl FnOnce(&mut BufWriter<File>) -> Result<(), SessionProblem>,
) -> Result<(), SessionProblem> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    // What models said is private, unless somebody has made the file that is there readable.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(unfinished)?;
    if let Ok(there) = fs::metadata(path) {
        file.set_permissions(there.permissions())?;
    }
    let mut file = BufWriter::with_capacity(1 << 16, file);
    fill(&mut file)?;
    file.flush()?;
    Ok(file.get_ref().sync_all()?)
}

/// Removes what writers of this file left when they were killed.
pub(super) fn tidy(path: &Path) {
    let Ok((folder, name)) = parts(path) else { return };
    let begin = format!(".{name}.");
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let left = entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with(&begin) && name.ends_with(UNFINISHED));
        if left {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Opens a file to read it. A pipe or a device that stands in its place is not waited for.
pub(super) fn open(path: &Path) -> io::Result<File> {
    match fs::metadata(path)?.is_file() {
        true => crate::files::open(path),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

/// All bytes of a file that has no more than `most`.
pub(super) fn read(path: &Path, most: u64) -> Result<Vec<u8>, SessionProblem> {
    let file = open(path)?;
    let mut bytes = Vec::new();
    // One more than may be there tells a file that is too large, also one that grows while it is read.
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(SessionProblem::TooLarge { most });
    }
    Ok(bytes)
}
