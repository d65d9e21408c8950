//! A breadth-first walk from the root of the workspace.
//!
//! The walk is breadth-first, so that files near the root come first if the limit is reached.
//! Folders are opened through the workspace, one at a time, and a folder that turned into a link
//! meanwhile is skipped. Limits on entries, depth and rules bound the work on a hostile or huge
//! folder.

use std::collections::VecDeque;

use levity_core::WorkspaceView;
use levity_sandbox::{EntryKind, FolderEntry, PathError, Workspace};

use super::FileList;
use super::ignore_rules::{IgnoreRules, MAX_RULES};

/// The maximum number of entries that are read.
const MAX_ENTRIES: usize = 100_000;
/// The maximum depth of folders that are read.
const MAX_DEPTH: usize = 64;

/// A folder in the queue. It is stored by its path, because there may be more folders than open
/// files allowed.
struct Folder {
    path: String,
    ignore_rules: IgnoreRules,
    depth: usize,
}

/// The files are sorted by path, after the walk, so that the output does not depend on the file
/// system.
///
/// # Errors
/// Fails only if the root cannot be listed. Other unreadable folders set `has_more`.
pub(super) fn list(space: &Workspace, max_files: usize) -> Result<FileList, PathError> {
    let root = Folder {
        path: String::new(),
        ignore_rules: IgnoreRules::default(),
        depth: 0,
    };
    let view = WorkspaceView::new(space.root().to_string_lossy(), [""; 0]);
    let list = FileList {
        view,
        ..FileList::default()
    };
    let mut walk = Walk {
        space,
        max_files,
        remaining: MAX_ENTRIES,
        rules: MAX_RULES,
        list,
        queue: VecDeque::new(),
    };
    walk.enter(&root)?;
    while let Some(folder) = walk.queue.pop_front() {
        // The folder may have been removed meanwhile, or may be inaccessible.
        if walk.enter(&folder).is_err() {
            walk.list.has_more = true;
        }
    }
    walk.list.view.files.sort_unstable();
    Ok(walk.list)
}

/// The state of one walk: the remaining limits, the result and the queue.
struct Walk<'a> {
    space: &'a Workspace,
    max_files: usize,
    remaining: usize,
    /// The number of bytes of rules that may still be read.
    rules: u64,
    list: FileList,
    queue: VecDeque<Folder>,
}

impl Walk<'_> {
    /// Lists one folder, reads its rules and takes its entries.
    fn enter(&mut self, folder: &Folder) -> Result<(), PathError> {
        let path = if folder.path.is_empty() {
            "."
        } else {
            &folder.path
        };
        let dir = self.space.dir(path)?;
        // The folder was replaced by a link.
        if dir.path() != folder.path {
            return Ok(());
        }
        let listing = dir.entries(self.remaining)?;
        self.remaining -= listing.entries.len().min(self.remaining);
        self.list.missing += listing.unreadable;
        self.list.has_more |= listing.truncated;
        let ignore_rules = folder
            .ignore_rules
            .enter(&dir, &listing.entries, &mut self.rules);
        for entry in listing
            .entries
            .iter()
            .filter(|entry| !entry.name.starts_with('.'))
        {
            let path = dir.path_of(&entry.name);
            if !ignore_rules.excludes(&path, entry.kind == EntryKind::Dir) {
                self.take(entry, path, &ignore_rules, folder.depth);
            }
        }
        Ok(())
    }

    /// Adds a file, queues a folder, or ignores the entry. A link counts if its target is a file
    /// inside of the workspace.
    fn take(
        &mut self,
        entry: &FolderEntry,
        path: String,
        ignore_rules: &IgnoreRules,
        depth: usize,
    ) {
        let is_file = match entry.kind {
            EntryKind::File => true,
            EntryKind::Link => self
                .space
                .metadata(&path)
                .is_ok_and(|meta| meta.kind() == EntryKind::File),
            EntryKind::Dir if depth < MAX_DEPTH => {
                self.queue.push_back(Folder {
                    path,
                    ignore_rules: ignore_rules.clone(),
                    depth: depth + 1,
                });
                return;
            }
            EntryKind::Dir => {
                self.list.has_more = true;
                return;
            }
            _ => false,
        };
        match is_file {
            true if self.list.view.files.len() < self.max_files => self.list.view.files.push(path),
            true => self.list.missing += 1,
            false => {}
        }
    }
}
