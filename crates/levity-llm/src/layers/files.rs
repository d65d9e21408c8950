//! File operations of layers that write files.
//!
//! Layers write files from async code. The disk may be slow or remote, so the work runs on a
//! blocking thread. A model may also be used without a tokio runtime, for example in a test with a
//! simple executor; then the work runs inline.

use std::fs::{self};
use std::io::{self};
use std::path::Path;

/// Runs blocking work on the runtime's blocking threads, or inline without a runtime.
///
/// Blocking work cannot be cancelled. If the caller is dropped, a started write still finishes, so
/// it leaves a complete file.
pub(super) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    match tokio::runtime::Handle::try_current() {
        Ok(handle) => handle
            .spawn_blocking(work)
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error))),
        Err(_) => work(),
    }
}

/// Removes the oldest files that match `is_ours` until `keep` remain. Names sort by age.
///
/// The order is that of the names, not of modification times: names begin with a timestamp, and
/// copying a folder changes its times. A file that cannot be removed is skipped.
pub(super) fn remove_oldest(
    folder: &Path,
    keep: usize,
    is_ours: impl Fn(&str) -> bool,
) -> io::Result<()> {
    let names =
        fs::read_dir(folder)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| is_ours(name)).collect();
    names.sort_unstable();
    let over = names.len().saturating_sub(keep);
    for name in names.iter().take(over) {
        // Another process may have removed the file already.
        let _ = fs::remove_file(folder.join(name));
    }
    Ok(())
}
