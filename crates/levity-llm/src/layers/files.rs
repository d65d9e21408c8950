//! Files that a layer writes beside its calls.

use std::fs::{self};
use std::io::{self};
use std::path::Path;

/// Runs what blocks where it holds up nobody, if there is such a place.
pub(super) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    match tokio::runtime::Handle::try_current() {
        Ok(handle) => handle
            .spawn_blocking(work)
            .await
            .unwrap_or_else(|gone| Err(io::Error::other(gone))),
        Err(_) => work(),
    }
}

/// Removes the oldest of the files that `ours` names, so that `keep` are left. Names sort by age.
pub(super) fn thin_out(folder: &Path, keep: usize, ours: impl Fn(&str) -> bool) -> io::Result<()> {
    let names =
        fs::read_dir(folder)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| ours(name)).collect();
    names.sort_unstable();
    let over = names.len().saturating_sub(keep);
    for name in names.iter().take(over) {
        // Another process may have been faster.
        let _ = fs::remove_file(folder.join(name));
    }
    Ok(())
}
