//! The files of a workspace, for the context value of an agent.

use levity_core::{CancelToken, WorkspaceSource, WorkspaceView};
use levity_sandbox::{Kind, Workspace};

use super::walk::{Filter, Folder};

/// How many files are listed.
const MAX_FILES: usize = 1_000;
/// How many entries are looked at.
const MAX_ENTRIES: usize = 100_000;

/// Lists what the tools show by default: nothing that is hidden, ignored or denied.
#[derive(Debug)]
pub(super) struct Files(pub(super) Workspace);

impl WorkspaceSource for Files {
    fn view_now(&self) -> WorkspaceView {
        let mut found = Found {
            files: Vec::new(),
            left: MAX_ENTRIES,
        };
        if let Ok(folder) = Folder::open(&self.0, ".") {
            found.walk(folder);
        }
        found.files.sort_unstable();
        WorkspaceView::new(self.0.root().to_string_lossy(), found.files)
    }
}

struct Found {
    files: Vec<String>,
    left: usize,
}

impl Found {
    /// Takes the files of a folder before those of the folders in it.
    fn walk(&mut self, root: Folder) {
        let mut stack = vec![(root, Vec::new())];
        self.enter(&mut stack);
        while let Some((folder, names)) = stack.last_mut() {
            let Some(name) = names
                .pop()
                .filter(|_| self.left > 0 && self.files.len() < MAX_FILES)
            else {
                stack.pop();
                continue;
            };
            // A folder may be gone meanwhile, or be closed to us.
            if let Some(inner) = folder
                .may_go_deeper()
                .then(|| folder.enter(&name).ok())
                .flatten()
            {
                stack.push((inner, Vec::new()));
                self.enter(&mut stack);
            }
        }
    }

    /// Takes the files of the last folder, and notes the folders in it.
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
            .take(self.left)
        {
            self.left -= 1;
            match entry.kind {
                Kind::Dir => names.push(entry.name),
                Kind::File if self.files.len() < MAX_FILES => {
                    self.files.push(folder.dir.path_of(&entry.name));
                }
                _ => {}
            }
        }
        names.reverse();
    }
}
