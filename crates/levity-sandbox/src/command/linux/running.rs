//! Which denied files the commands that run now were kept from.
//!
//! A command that runs can move a folder while another looks for denied files, from where it has not looked yet to where it
//! has. So a scan must find every denied file that was known to a command that ran meanwhile: none of them can remove
//! one, as it is covered.

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::fs::fstat;

use super::hide::open_found;
use super::job::{Cover, CoverKind, Identity};

/// How many denied files are held open, to know whether they are still there. More are taken to be there.
const MOST_OPEN: usize = 128;

static RUNNING: Mutex<Running> = Mutex::new(Running { scans: 0, next: 0, commands: Vec::new() });

struct Running {
    scans: usize,
    next: u64,
    commands: Vec<Known>,
}

/// What a command is kept from.
struct Known {
    number: u64,
    /// It has ended, while a scan went on that it may have disturbed.
    ended: bool,
    root: PathBuf,
    files: Vec<(Identity, Option<Arc<OwnedFd>>)>,
}

fn running() -> MutexGuard<'static, Running> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A scan for denied files that goes on.
pub(super) struct ScanMark;

impl ScanMark {
    pub(super) fn begin() -> Self {
        running().scans += 1;
        Self
    }

    /// Notes what a command is kept from, for as long as the result is held; `None` when the scan missed something.
    pub(super) fn end(self, root: &Path, covers: &[Cover]) -> Option<CommandMark> {
        let mut running = running();
        let denied = |cover: &&Cover| matches!(cover.kind, CoverKind::File | CoverKind::Folder);
        let found: HashSet<Identity> = covers.iter().filter(denied).map(|cover| cover.identity).collect();
        let commands = running.commands.iter().filter(|known| known.root == root);
        let mut missed = commands.flat_map(|known| &known.files).filter(|(file, _)| !found.contains(file));
        if missed.any(|(_, open)| open.as_ref().is_none_or(|open| is_there(open))) {
            return None;
        }
        let mut open = HashMap::new();
        for (file, fd) in running.commands.iter().flat_map(|known| &known.files) {
            open.extend(fd.as_ref().map(|fd| (*file, Arc::downgrade(fd))));
        }
        let mut count = open.len();
        let mut files = Vec::new();
        for cover in covers.iter().filter(denied) {
            let mut fd = open.get(&cover.identity).and_then(Weak::upgrade);
            if fd.is_none() && count < MOST_OPEN {
                fd = open_found(cover).map(Arc::new);
                count += 1;
            }
            files.push((cover.identity, fd));
        }
        running.next += 1;
        let number = running.next;
        running.commands.push(Known { number, ended: false, root: root.to_owned(), files });
        Some(CommandMark(number))
    }
}

impl Drop for ScanMark {
    fn drop(&mut self) {
        let mut running = running();
        running.scans -= 1;
        running.forget();
    }
}

/// A command that runs.
pub(super) struct CommandMark(u64);

impl Drop for CommandMark {
    fn drop(&mut self) {
        let mut running = running();
        for known in running.commands.iter_mut().filter(|known| known.number == self.0) {
            known.ended = true;
        }
        running.forget();
    }
}

impl Running {
    fn forget(&mut self) {
        if self.scans == 0 {
            self.commands.retain(|known| !known.ended);
        }
    }
}

/// Whether a file that is held open still has a name.
fn is_there(file: &OwnedFd) -> bool {
    fstat(file).map_or(true, |stat| stat.st_nlink > 0)
}
