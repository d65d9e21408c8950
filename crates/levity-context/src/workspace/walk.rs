//! From the root downwards, one level after the other.

use std::collections::VecDeque;

use levity_core::WorkspaceView;
use levity_sandbox::{FolderEntry, Kind, PathError, Workspace};

use super::FileList;
use super::ignored::{Ignored, MAX_RULES};

/// How many entries are looked at.
const MAX_ENTRIES: usize = 100_000;
/// How deep folders are looked at.
const MAX_DEPTH: usize = 64;

/// A folder that is still to be looked at. It is held by its path: there may be more of them than
/// open files.
struct Folder {
    path: String,
    ignored: Ignored,
    depth: usize,
}

pub(super) fn list(space: &Workspace, max_files: usize) -> Result<FileList, PathError> {
    let root = Folder {
        path: String::new(),
        ignored: Ignored::default(),
        depth: 0,
    };
    let view = WorkspaceView::new(space.root().to_string_lossy(), [""; 0]);
    let listed = FileList {
        view,
        ..FileList::default()
    };
    let mut walk = Walk {
        space,
        max_files,
        left: MAX_ENTRIES,
        rules: MAX_RULES,
        listed,
        queue: VecDeque::new(),
    };
    walk.enter(&root)?;
    while let Some(folder) = walk.queue.pop_front() {
        // A folder may be gone meanwhile, or be closed to us.
        if walk.enter(&folder).is_err() {
            walk.listed.has_more = true;
        }
    }
    walk.listed.view.files.sort_unstable();
    Ok(walk.listed)
}

struct Walk<'a> {
    space: &'a Workspace,
    max_files: usize,
    left: usize,
    /// How many bytes of rules may still be read.
    rules: u64,
    listed: FileList,
    queue: VecDeque<Folder>,
}

impl Walk<'_> {
    fn enter(&mut self, folder: &Folder) -> Result<(), PathError> {
        let path = if folder.path.is_empty() {
            "."
        } else {
            &folder.path
        };
        let dir = self.space.dir(path)?;
        // Somebody has put a link in its place.
        if dir.path() != folder.path {
            return Ok(());
        }
        let listing = dir.entries(self.left)?;
        self.left -= listing.entries.len().min(self.left);
        self.listed.missing += listing.unreadable;
        self.listed.has_more |= listing.truncated;
        let ignored = folder
            .ignored
            .enter(&dir, &listing.entries, &mut self.rules);
        for entry in listing
            .entries
            .iter()
            .filter(|entry| !entry.name.starts_with('.'))
        {
            let path = dir.path_of(&entry.name);
            if !ignored.leaves_out(&path, entry.kind == Kind::Dir) {
                self.take(entry, path, &ignored, folder.depth);
            }
        }
        Ok(())
    }

    fn take(&mut self, entry: &FolderEntry, path: String, ignored: &Ignored, depth: usize) {
        let is_file = match entry.kind {
            Kind::File => true,
            Kind::Link => self
                .space
                .metadata(&path)
                .is_ok_and(|meta| meta.kind() == Kind::File),
            Kind::Dir if depth < MAX_DEPTH => {
                self.queue.push_back(Folder {
                    path,
                    ignored: ignored.clone(),
                    depth: depth + 1,
                });
                return;
            }
            Kind::Dir => {
                self.listed.has_more = true;
                return;
            }
            _ => false,
        };
        match is_file {
            true if self.listed.view.files.len() < self.max_files => {
                self.listed.view.files.push(path);
            }
            true => self.listed.missing += 1,
            false => {}
        }
    }
}
