//! Scans the files of a folder.

use std::fs::{self, Metadata};
use std::io;
use std::path::Path;
use std::time::SystemTime;

/// The maximum number of files in a folder.
const MAX_FILES: usize = 1_000;

/// A file that may contain tools.
pub(super) struct FoundFile {
    pub(super) name: String,
    pub(super) seen: FileVersion,
    /// `true` if its tools depend on another file too.
    pub(super) depends: bool,
}

/// The properties that reveal a change of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileVersion {
    len: u64,
    modified: Option<SystemTime>,
    changed: (i64, i64, u64),
    mode: u32,
}

/// Returns the files of a folder that are not private, by name.
pub(super) fn scan(folder: &Path) -> io::Result<Vec<FoundFile>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        // A file that was removed meanwhile will be missing in the next scan, too.
        let Ok(about) = fs::metadata(entry.path()) else {
            continue;
        };
        if name.starts_with(['_', '.']) || !about.is_file() {
            continue;
        }
        if found.len() == MAX_FILES {
            return Err(io::Error::other(format!(
                "it has more than {MAX_FILES} files; use a folder that contains only tools"
            )));
        }
        let depends = name.ends_with(".tool.json");
        found.push(FoundFile {
            name,
            seen: FileVersion::of(&about),
            depends,
        });
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

impl FileVersion {
    #[cfg(unix)]
    fn of(about: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt as _;
        let changed = (about.ctime(), about.ctime_nsec(), about.ino());
        Self {
            len: about.len(),
            modified: about.modified().ok(),
            changed,
            mode: about.mode(),
        }
    }

    #[cfg(not(unix))]
    fn of(about: &Metadata) -> Self {
        Self {
            len: about.len(),
            modified: about.modified().ok(),
            changed: (0, 0, 0),
            mode: 0,
        }
    }
}
