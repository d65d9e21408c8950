//! The list of workspace files for the context value of an agent.
//!
//! The list shows a model what exists before its first call. It contains at most 1,000 files of at
//! most 100,000 inspected entries, files of a folder before those of its subfolders.

use levity_core::{CancelToken, WorkspaceSource, WorkspaceView};
use levity_sandbox::{EntryKind, Workspace};

use super::walk::{Filter, Folder};

/// The maximum number of listed files.
const MAX_FILES: usize = 1_000;
/// The maximum number of inspected entries.
const MAX_ENTRIES: usize = 100_000;

/// Lists the files that the tools show by default, without hidden, ignored or denied ones.
#[derive(Debug)]
pub(super) struct Files(pub(super) Workspace);

impl WorkspaceSource for Files {
    fn view_now(&self) -> WorkspaceView {
        let mut list = FileList {
            files: Vec::new(),
            remaining: MAX_ENTRIES,
        };
        if let Ok(folder) = Folder::open(&self.0, ".") {
            list.walk(folder);
        }
        list.files.sort_unstable();
        WorkspaceView::new(self.0.root().to_string_lossy(), list.files)
    }
}

/// The list that is being filled, with the number of entries that may still be inspected.
struct FileList {
    files: Vec<String>,
    remaining: usize,
}

impl FileList {
    /// Adds the files of a folder before those of its subfolders.
    fn walk(&mut self, root: Folder) {
        let mut stack = vec![(root, Vec::new())];
        self.enter(&mut stack);
        while let Some((folder, names)) = stack.last_mut() {
            let Some(name) = names
                .pop()
                .filter(|_| self.remaining > 0 && self.files.len() < MAX_FILES)
            else {
                stack.pop();
                continue;
            };
            // The folder may have been removed meanwhile, or may be inaccessible.
            if let Some(inner) = folder
                .may_descend()
                .then(|| folder.enter(&name).ok())
                .flatten()
            {
                stack.push((inner, Vec::new()));
                self.enter(&mut stack);
            }
        }
    }

    /// Adds the files of the last folder and records its subfolders.
    fn enter(&mut self, stack: &mut [(Folder, Vec<String>)]) {
        let Some((folder, names)) = stack.last_mut() else {
            return;
        };
        let filter = Filter {
            no_hidden: true,
            no_ignored: true,
            glob: None,
            cancel: CancelToken::new(),
        };
        for entry in folder
            .list(&filter)
            .unwrap_or_default()
            .entries
            .into_iter()
            .take(self.remaining)
        {
            self.remaining -= 1;
            match entry.kind {
                EntryKind::Dir => names.push(entry.name),
                EntryKind::File if self.files.len() < MAX_FILES => {
                    self.files.push(folder.dir.path_of(&entry.name));
                }
                _ => {}
            }
        }
        names.reverse();
    }
}
