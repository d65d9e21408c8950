//! Files that a layer writes beside its calls.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Runs what blocks where it holds up nobody, if there is such a place.
pub(super) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    match tokio::runtime::Handle::try_current() {
        Ok(handle) => handle.spawn_blocking(work).await.unwrap_or_else(|gone| Err(io::Error::other(gone))),
        Err(_) => work(),
    }
}

/// How the file ends that a text is written to before it gets its name.
pub(super) const UNFINISHED: &str = ".tmp";

/// Writes a file so that others see either what was there before or all that is new.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let Some((folder, name)) = path.parent().zip(path.file_name()) else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    };
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let unfinished = format!(".{}.{}-{next}{UNFINISHED}", name.to_string_lossy(), std::process::id());
    let unfinished = folder.join(unfinished);
    let written = private(&unfinished).and_then(|mut file| file.write_all(bytes));
    let named = written.and_then(|()| fs::rename(&unfinished, path));
    if named.is_err() {
        // It is of no use to anybody.
        let _ = fs::remove_file(&unfinished);
    }
    named
}

/// Makes a folder that only its owner can look into, and those above it that are missing.
pub(super) fn make_dir(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Makes a new file that only its owner can read, where the system can do that: prompts are private.
pub(super) fn private(path: &Path) -> io::Result<fs::File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Removes the oldest of the files that `ours` names, so that `keep` are left. Names sort by age.
pub(super) fn thin_out(folder: &Path, keep: usize, ours: impl Fn(&str) -> bool) -> io::Result<()> {
    let names = fs::read_dir(folder)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| ours(name)).collect();
    names.sort_unstable();
    let over = names.len().saturating_sub(keep);
    for name in names.iter().take(over) {
        // Another process may have been faster.
        let _ = fs::remove_file(folder.join(name));
    }
    Ok(())
}
