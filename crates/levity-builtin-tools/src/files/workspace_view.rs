//! The files of a workspace for an agent: their names, and their versions.
//!
//! The list of names shows a model what exists before its first call. It contains at most 1,000
//! files of at most 100,000 inspected entries, files of a folder before those of its subfolders.
//!
//! The versions show which files a call changed. A version is a hash of the metadata, so nothing is
//! read; only the changed files are read, to hash their content. A workspace with more than 20,000
//! entries has no versions, because each call that may change files lists it twice. A call can
//! write files of any number and size, so only the first 1,000 changes are opened, and files that
//! are too large are not read at all.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use levity_core::{
    CancelToken, ChangeRecorder, FileChange, FileChangeKind, WorkspaceSnapshot, WorkspaceSource,
    WorkspaceView,
};
use levity_sandbox::{Dir, EntryKind, Workspace};

use super::walk::{Filter, Folder};

/// The maximum number of listed files.
const MAX_FILES: usize = 1_000;
/// The maximum number of inspected entries.
const MAX_ENTRIES: usize = 100_000;
/// The maximum number of entries of a snapshot.
const MAX_SNAPSHOT: usize = 20_000;
/// The folder for files that agents produce. Its files count even if `.gitignore` excludes them.
const ARTIFACTS: &str = "artifacts";
/// The maximum size of a file whose content is hashed, and of all files of one call together. The
/// smallest files are hashed first.
const MAX_HASHED: u64 = 8 << 20;
const MAX_HASHED_TOTAL: u64 = 32 << 20;

/// Lists the files that the tools show by default, without hidden, ignored or denied ones.
#[derive(Debug)]
pub(super) struct Files(pub(super) Workspace);

impl WorkspaceSource for Files {
    fn view_now(&self) -> WorkspaceView {
        let mut files = Vec::new();
        let mut remaining = MAX_ENTRIES;
        if let Ok(folder) = Folder::open(&self.0, ".") {
            let cancel = CancelToken::new();
            walk(folder, true, &cancel, &mut remaining, |dir, name| {
                files.push(dir.path_of(name));
                files.len() < MAX_FILES
            });
        }
        files.sort_unstable();
        WorkspaceView::new(self.0.root().to_string_lossy(), files)
    }

    fn snapshot(&self, cancel: &CancelToken) -> Option<WorkspaceSnapshot> {
        let (mut files, mut remaining) = (Vec::new(), MAX_SNAPSHOT);
        for (start, skips_ignored) in [(".", true), (ARTIFACTS, false)] {
            // There may be no folder for artifacts.
            let Ok(folder) = Folder::open(&self.0, start) else {
                continue;
            };
            walk(
                folder,
                skips_ignored,
                cancel,
                &mut remaining,
                |dir, name| {
                    // A file that was removed since it was listed does not count.
                    if let Some(version) = version(dir, name) {
                        files.push((dir.path_of(name), version));
                    }
                    !cancel.is_cancelled()
                },
            );
        }
        let is_complete = remaining > 0 && !cancel.is_cancelled();
        is_complete.then(|| WorkspaceSnapshot::new(files))
    }

    fn changes_since(&self, before: &WorkspaceSnapshot, cancel: &CancelToken) -> Vec<FileChange> {
        let Some(now) = self.snapshot(cancel) else {
            return Vec::new();
        };
        let mut changes = before.changes_to(&now);
        // A file that is denied since then is not listed, but it was not removed.
        changes.retain(|change| {
            change.kind != FileChangeKind::Removed || !self.0.denies(&change.path)
        });
        changes.truncate(ChangeRecorder::MAX_CHANGES);
        let mut written: Vec<(u64, &mut FileChange)> = changes
            .iter_mut()
            .filter(|change| change.kind != FileChangeKind::Removed)
            .take_while(|_| !cancel.is_cancelled())
            .filter_map(|change| Some((self.size(&change.path)?, change)))
            .collect();
        written.sort_by_key(|(size, _)| *size);
        let mut remaining = MAX_HASHED_TOTAL;
        for (size, change) in written {
            let content = match size <= MAX_HASHED.min(remaining) && !cancel.is_cancelled() {
                true => self.content(&change.path, size),
                false => None,
            };
            remaining -= content.as_ref().map_or(0, |bytes| bytes.len() as u64);
            *change = match content {
                Some(bytes) => change.clone().with_content(&bytes),
                None => change.clone().with_size(size),
            };
        }
        changes
    }
}

impl Files {
    fn size(&self, path: &str) -> Option<u64> {
        Some(self.0.open_file(path).ok()?.metadata().size())
    }

    /// Reads a file of at most this size.
    fn content(&self, path: &str, size: u64) -> Option<Vec<u8>> {
        let read = self.0.open_file(path).ok()?.read_up_to(size).ok()?;
        (!read.truncated).then_some(read.bytes)
    }
}

/// Hashes the metadata of a file, which changes with every write.
fn version(dir: &Dir, name: &str) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    dir.metadata(name).ok()?.hash(&mut hasher);
    Some(hasher.finish())
}

/// Passes the files of a folder to `on_file` before those of its subfolders, until it returns
/// `false`, the token is cancelled, or no more entries may be inspected.
fn walk(
    root: Folder,
    skips_ignored: bool,
    cancel: &CancelToken,
    remaining: &mut usize,
    mut on_file: impl FnMut(&Dir, &str) -> bool,
) {
    let filter = Filter {
        no_hidden: true,
        no_ignored: skips_ignored,
        glob: None,
        cancel: cancel.clone(),
    };
    let mut enter = |mut folder: Folder| {
        let entries = folder.list(&filter).unwrap_or_default().entries;
        let mut names = Vec::new();
        for entry in entries {
            *remaining = remaining.checked_sub(1)?;
            match entry.kind {
                EntryKind::Dir => names.push(entry.name),
                EntryKind::File if !on_file(&folder.dir, &entry.name) => return None,
                _ => {}
            }
        }
        names.reverse();
        Some((folder, names))
    };
    // Each folder in the stack is open, so the walk opens a subfolder only when it visits it.
    let mut stack = Vec::new();
    let mut next = Some(root);
    while !cancel.is_cancelled() {
        if let Some(folder) = next.take() {
            let Some(entered) = enter(folder) else { return };
            stack.push(entered);
        }
        let Some((folder, names)) = stack.last_mut() else {
            return;
        };
        let Some(name) = names.pop() else {
            stack.pop();
            continue;
        };
        if folder.may_descend() {
            // The folder may have been removed meanwhile, or may be inaccessible.
            next = folder.enter(&name).ok();
        }
    }
}
