//! The files that are hidden from the commands that are currently running.
//!
//! A running command can move a folder while another command searches for denied files, from an
//! unsearched place to a searched one. So a search must find every file that was hidden from a
//! command that ran meanwhile, by every name: no command can remove one, as it is covered.

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::fstat;

use super::hide::{SearchResult, open_found};
use super::job::{CoverKind, Identity};

/// The maximum number of denied files that are held open, to check whether they still exist.
/// Further files are assumed to exist.
const MAX_OPEN: usize = 128;

static RUNNING: Mutex<Running> = Mutex::new(Running {
    scans: 0,
    time: 0,
    next: 0,
    commands: Vec::new(),
});

struct Running {
    scans: usize,
    /// A counter of scan starts and command ends.
    time: u64,
    next: u64,
    commands: Vec<RunningCommand>,
}

/// The files that are hidden from a command.
struct RunningCommand {
    number: u64,
    /// The time at which it ended, while a scan was running that it may have disturbed.
    ended: Option<u64>,
    root: PathBuf,
    files: Vec<File>,
}

/// A file or folder that is hidden or protected.
struct File {
    identity: Identity,
    /// The number of names by which it was found.
    names: u64,
    /// `true` for a folder that could not be searched.
    is_unknown: bool,
    /// An open handle, to check whether the file still exists.
    open: Option<Arc<OwnedFd>>,
}

fn running() -> MutexGuard<'static, Running> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A running scan for denied files, and the time of its start.
pub(super) struct ScanMark(u64);

impl ScanMark {
    pub(super) fn begin() -> Self {
        let mut running = running();
        running.scans += 1;
        running.time += 1;
        Self(running.time)
    }

    /// Records the files that are hidden from a command, for as long as the result is held; `None`
    /// if the search missed something.
    pub(super) fn end(self, root: &Path, found: &SearchResult) -> Option<CommandMark> {
        let mut names: HashMap<Identity, u64> = HashMap::new();
        let hidden = || {
            found
                .covers
                .iter()
                .filter(|cover| cover.kind != CoverKind::Pinned)
        };
        for cover in hidden() {
            *names.entry(cover.identity).or_default() += 1;
        }
        let mut running = running();
        // A command that had ended before the scan started did not disturb it.
        let disturbs = |known: &&RunningCommand| {
            known.root == root && known.ended.is_none_or(|end| end > self.0)
        };
        let mut known = running
            .commands
            .iter()
            .filter(disturbs)
            .flat_map(|it| &it.files);
        if known.any(|file| file.is_missing(&names, &found.searched)) {
            return None;
        }
        let mut open = HashMap::new();
        for file in running.commands.iter().flat_map(|known| &known.files) {
            open.extend(file.open.clone().map(|fd| (file.identity, fd)));
        }
        let mut files = Vec::new();
        for cover in hidden() {
            // The first of its names represents all.
            let Some(names) = names.remove(&cover.identity) else {
                continue;
            };
            let identity = cover.identity;
            if !open.contains_key(&identity) && open.len() < MAX_OPEN {
                open.extend(open_found(cover).map(|fd| (identity, Arc::new(fd))));
            }
            let is_unknown = cover.kind == CoverKind::Unknown;
            files.push(File {
                identity,
                names,
                is_unknown,
                open: open.get(&identity).cloned(),
            });
        }
        running.next += 1;
        let number = running.next;
        running.commands.push(RunningCommand {
            number,
            ended: None,
            root: root.to_owned(),
            files,
        });
        Some(CommandMark(number))
    }
}

impl File {
    /// Returns `true` if a search did not find the file by all its names, although it still has
    /// them.
    fn is_missing(&self, found: &HashMap<Identity, u64>, searched: &HashSet<Identity>) -> bool {
        // A folder that was inaccessible may be accessible now, and is searched then.
        if self.is_unknown && searched.contains(&self.identity) {
            return false;
        }
        let found = found.get(&self.identity).copied().unwrap_or(0);
        found < self.names && self.open.as_ref().is_none_or(|file| names_of(file) > found)
    }
}

impl Drop for ScanMark {
    fn drop(&mut self) {
        let mut running = running();
        running.scans -= 1;
        running.forget();
    }
}

/// The mark of a running command; dropping it records that the command ended.
pub(super) struct CommandMark(u64);

impl Drop for CommandMark {
    fn drop(&mut self) {
        let mut running = running();
        running.time += 1;
        let time = running.time;
        for known in running
            .commands
            .iter_mut()
            .filter(|known| known.number == self.0)
        {
            known.ended = Some(time);
        }
        running.forget();
    }
}

impl Running {
    fn forget(&mut self) {
        if self.scans == 0 {
            self.commands.retain(|known| known.ended.is_none());
        }
    }
}

/// Returns the number of names of an open file. A folder has several as long as it exists.
#[allow(
    clippy::useless_conversion,
    clippy::unnecessary_cast,
    reason = "the type differs between machines"
)]
fn names_of(file: &OwnedFd) -> u64 {
    fstat(file).map_or(u64::MAX, |stat| stat.st_nlink as u64)
}

#[cfg(test)]
mod tests {
    use super::super::hide;
    use super::*;
    use crate::Workspace;

    #[test]
    fn command_disturbs_only_scans_started_before_its_end() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(".env"), "").unwrap();
        let workspace = Workspace::open(folder.path()).unwrap();
        let (root, nothing) = (workspace.root(), SearchResult::default());
        let found = hide::search(
            &workspace,
            &crate::command::linux::search_limit::unlimited(),
        )
        .unwrap();
        // This scan runs all the time, so that nothing is forgotten.
        let _other = ScanMark::begin();
        let command = ScanMark::begin().end(root, &found).unwrap();
        let (during, across) = (ScanMark::begin(), ScanMark::begin());
        assert!(during.end(root, &nothing).is_none());
        drop(command);
        assert!(across.end(root, &nothing).is_none());
        assert!(ScanMark::begin().end(root, &nothing).is_some());
    }
}
