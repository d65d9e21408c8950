//! Files whose names look like options, so that a pattern of the shell may become one.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// How many entries of folders are looked at for one command line.
const MAX_ENTRIES: usize = 10_000;

/// The folders that were searched for one command line.
#[derive(Debug, Default)]
pub(super) struct OptionSearch {
    entries: usize,
    /// By folder, whether it has an entry whose name looks like an option, or may have.
    found: HashMap<String, bool>,
}

impl OptionSearch {
    /// Returns whether a folder below `root` has an entry, or may, whose name looks like an option.
    pub(super) fn has_option(&mut self, root: &Path, folder: &str) -> bool {
        if let Some(known) = self.found.get(folder) {
            return *known;
        }
        let found = self.look_into(&root.join(folder));
        self.found.insert(folder.to_owned(), found);
        found
    }

    fn look_into(&mut self, folder: &Path) -> bool {
        let Ok(entries) = fs::read_dir(folder) else { return false };
        entries.flatten().any(|entry| {
            self.entries += 1;
            let name = entry.file_name();
            self.entries > MAX_ENTRIES || matches!(name.as_encoded_bytes().first(), Some(b'-' | b'@'))
        })
    }
}
