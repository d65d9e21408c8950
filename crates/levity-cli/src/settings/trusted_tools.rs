//! The tools of a trusted folder, in a process that runs for long.
//!
//! A server or a conversation may run for days while somebody changes the folder of tools. The
//! agreement of the user covers the files as they were, so levity loads the tools from a private
//! copy of these files, and executes the programs of that copy. A changed or added file is reported
//! and takes effect in this process only after the user has run `levity trust` again.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use levity::core::{Tool, ToolSource};
use levity::tools::FolderTools;

use super::control::{Contents, MAX_FILES, plain};
use super::trust::{Agreement, changes, current_folder};
use crate::terminal::note;

/// The tools of a private copy, which follows the folder as far as the user trusts it.
pub(crate) struct TrustedTools {
    /// The folder as the settings name it.
    named: PathBuf,
    /// The folder of the settings, to which the agreement belongs.
    folder: PathBuf,
    copy: PathBuf,
    tools: FolderTools,
    state: Mutex<State>,
}

/// The last comparison of the folder with the agreement of the user.
struct State {
    /// The hashes of the files in the copy.
    files: BTreeMap<String, String>,
    /// The properties of the folder and the agreement when they were compared.
    seen: Vec<Seen>,
    problems: Vec<String>,
    version: u64,
}

/// The properties that reveal a change of a file.
type Seen = (PathBuf, u64, Option<SystemTime>, (i64, i64, u64));

impl TrustedTools {
    /// Returns the tools of a copy, which has the files with these hashes.
    pub(super) fn new(
        named: &Path,
        copy: &Path,
        files: BTreeMap<String, String>,
        tools: FolderTools,
    ) -> Result<Self, String> {
        let state = State {
            files,
            seen: Vec::new(),
            problems: Vec::new(),
            version: 0,
        };
        Ok(Self {
            named: named.to_owned(),
            folder: current_folder()?,
            copy: copy.to_owned(),
            tools,
            state: Mutex::new(state),
        })
    }

    /// Returns the state, after a comparison if the folder or the agreement may have changed.
    fn current(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut seen = Vec::new();
        look(&self.named, &mut seen);
        if let Ok(agreement) = Agreement::path(&self.folder) {
            look(&agreement, &mut seen);
        }
        if seen != state.seen {
            state.seen = seen;
            let problems = self.compare(&mut state);
            problems
                .iter()
                .filter(|problem| !state.problems.contains(problem))
                .for_each(|problem| note(problem));
            state.problems = problems;
            state.version += 1;
        }
        state
    }

    /// Copies the files of the folder if the user trusts all of them, and otherwise returns the
    /// changes, which have no effect.
    fn compare(&self, state: &mut State) -> Vec<String> {
        let mut contents = Contents::default();
        if let Err(problem) = contents.add(&self.named) {
            return vec![format!("{problem}; the tools stay as they were")];
        }
        let now = contents.hashes();
        let changes = changes(&state.files, &now);
        if changes.is_empty() {
            return Vec::new();
        }
        if !self.is_trusted(&now) {
            let problem = |(path, verb): (String, &str)| {
                format!(
                    "`{}` {verb} and has no effect; run `levity trust` to see and accept it",
                    plain(&path)
                )
            };
            return changes.into_iter().map(problem).collect();
        }
        match contents.write(&self.named, &self.copy) {
            Ok(()) => {
                state.files = now;
                self.tools.reload();
                Vec::new()
            }
            Err(problem) => vec![problem],
        }
    }

    /// Returns `true` if the stored agreement has exactly these files of the folder.
    fn is_trusted(&self, now: &BTreeMap<String, String>) -> bool {
        let Some(mut agreement) = Agreement::stored(&self.folder) else {
            return false;
        };
        let is_below = |path: &String| Path::new(path).starts_with(&self.named);
        agreement.files.retain(|path, _| is_below(path));
        agreement.files == *now
    }
}

impl ToolSource for TrustedTools {
    /// Returns the name of the folder as the settings have it, not that of the copy.
    fn name(&self) -> &str {
        self.named.to_str().unwrap_or_default()
    }

    /// Returns the tools of the copy, after a comparison with the folder.
    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        drop(self.current());
        self.tools.tools()
    }

    /// Returns a number that changes with the tools and with the problems.
    fn version(&self) -> u64 {
        // Both numbers only increase, so their sum changes with each of them.
        self.current().version + self.tools.version()
    }

    /// Returns the files that differ from the agreement, and problems of the tools themselves.
    fn problems(&self) -> Vec<String> {
        let mut problems = self.current().problems.clone();
        problems.extend(self.tools.problems());
        problems
    }
}

/// Adds the properties of a file, or of all files below a folder.
fn look(path: &Path, seen: &mut Vec<Seen>) {
    let is_full = seen.len() > MAX_FILES;
    let found = (fs::symlink_metadata(path), fs::metadata(path));
    let (Ok(link), Ok(target)) = found else {
        return;
    };
    if is_full {
        return;
    }
    seen.push(properties(path, &link));
    if link.is_symlink() {
        seen.push(properties(path, &target));
    }
    if link.is_dir() || target.is_dir() && seen.len() <= 2 {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
        paths.sort_unstable();
        paths.iter().for_each(|path| look(path, seen));
    }
}

#[cfg(unix)]
fn properties(path: &Path, found: &Metadata) -> Seen {
    use std::os::unix::fs::MetadataExt as _;

    let changed = (found.ctime(), found.ctime_nsec(), found.ino());
    let modified = found.modified().ok();
    (path.to_owned(), found.len(), modified, changed)
}

#[cfg(not(unix))]
fn properties(path: &Path, found: &Metadata) -> Seen {
    let modified = found.modified().ok();
    (path.to_owned(), found.len(), modified, (0, 0, 0))
}
