//! Files that are added to a workspace while commands run, so that no command can create them.
//!
//! A mount protects an existing file. Git also executes programs named in files that usually do not
//! exist: `commondir`, for instance, names the folder with the settings and hooks. So each missing
//! file is created, protected like the others, and removed when no command of any process uses the
//! folder. A placeholder has a special time of modification, by which every process recognizes it.
//! If a process is killed, its placeholders remain, change nothing for git, and are removed after
//! the next command.
//!
//! The same protects paths that the owner of the workspace reserves, such as settings that do not
//! exist yet. Their placeholders are empty folders: git would add empty files to a commit.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::{
    AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, Stat, Timespec, Timestamps, flock, fstat,
    mkdirat, openat, statat, unlinkat, utimensat,
};
use rustix::io::{Errno, read, write};

use super::hide::{MissingKind, join};
use super::job::{Cover, CoverKind, Identity};
use crate::Workspace;
use crate::workspace::Tree;

/// The path of the file's own folder, in a spelling that no one else would use.
const ITSELF: &[u8] = b"./././.\n";

/// The names of placeholders in a repository.
const IN_REPOSITORY: [&str; 4] = ["hooks", "config", "commondir", "config.worktree"];

/// The maximum number of placeholders in a repository.
pub(super) const MAX_PER_REPOSITORY: usize = IN_REPOSITORY.len();

/// The time of modification by which placeholders are recognized, in seconds since 1970.
///
/// An even number, because some file systems store only every second one.
const MARK: i64 = 1_279_612_488;

/// The maximum number of folders of a command with placeholders for git. Each needs an open file,
/// and a command can create many repositories for the next one. Reserved paths have no such limit,
/// because only the owner of the workspace adds them.
const MAX_FOLDERS: usize = 128;

/// The number of attempts to lock a folder, and the pause after each.
const LOCK_ATTEMPTS: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Endings of files that SQLite keeps next to a database while it is open.
const OF_OPEN_DATABASE: [&str; 2] = ["-wal", "-shm"];

/// The folders with placeholders of running commands.
static HELD: Mutex<Option<HashMap<Identity, Held>>> = Mutex::new(None);

/// A folder with placeholders. They are removed together when no command uses any.
struct Held {
    /// The folder, with a shared lock. As long as another process holds one, its commands may rely
    /// on the same placeholders.
    folder: OwnedFd,
    commands: usize,
    placeholders: BTreeSet<(OsString, Kind)>,
}

/// The content of a placeholder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// An empty folder, which git ignores.
    Folder,
    /// A file without content.
    Empty,
    /// A file that names its own folder.
    CommonDir,
}

/// The folders with placeholders that one command uses.
#[derive(Debug, Default)]
pub(super) struct Placeholders(HashSet<Identity>);

impl Placeholders {
    /// Creates the missing files in repositories, and adds covers for them. A repository to which
    /// nothing can be added is protected as a whole.
    pub(super) fn put_into(
        &mut self,
        workspace: &Workspace,
        repositories: &[Vec<u8>],
        covers: &mut Vec<Cover>,
    ) {
        let root = openat(CWD, workspace.root(), OPEN, Mode::empty());
        let Some(mut tree) = root.ok().map(Tree::new) else {
            return;
        };
        let mut filler = Filler::new(workspace, covers, self);
        filler.max_folders = MAX_FOLDERS;
        for repository in repositories {
            // If it was moved, its other covers are missed as well.
            let Ok(folder) = tree.open(repository) else {
                continue;
            };
            let fits = filler.fits(repository);
            if (!fits || filler.fill(repository, &folder).is_err())
                && let Ok(stat) = fstat(&folder)
            {
                filler.cover(repository, &stat, CoverKind::Fixed);
            }
        }
    }

    /// Creates the missing targets of links that git would follow, and adds covers for them.
    ///
    /// # Errors
    /// Returns an error that names the path if commands could create it nevertheless.
    pub(super) fn put_at(
        &mut self,
        workspace: &Workspace,
        missing: &BTreeMap<Vec<u8>, MissingKind>,
        covers: &mut Vec<Cover>,
    ) -> io::Result<()> {
        if missing.is_empty() {
            return Ok(());
        }
        let mut tree = Tree::new(openat(CWD, workspace.root(), OPEN, Mode::empty())?);
        let mut filler = Filler::new(workspace, covers, self);
        filler.max_folders = MAX_FOLDERS;
        for (path, kind) in missing {
            let put = filler.put_at(&mut tree, path, *kind);
            put.map_err(|error| {
                let error = io::Error::from(error);
                let path = String::from_utf8_lossy(path);
                let path = path.escape_debug();
                let text =
                    format!("cannot protect `{path}`, to which a link of git leads: {error}");
                io::Error::new(error.kind(), text)
            })?;
        }
        Ok(())
    }

    /// Creates the reserved files that are missing, and adds covers for them.
    ///
    /// # Errors
    /// Returns an error that names the path if commands could create it nevertheless.
    pub(super) fn reserve(
        &mut self,
        workspace: &Workspace,
        covers: &mut Vec<Cover>,
    ) -> io::Result<()> {
        let reserved = workspace.reserved();
        if reserved.is_empty() {
            return Ok(());
        }
        let failed = |path: &str, error: Errno| {
            let error = io::Error::from(error);
            let path = path.escape_debug();
            io::Error::new(error.kind(), format!("cannot reserve `{path}`: {error}"))
        };
        let root = openat(CWD, workspace.root(), LIST, Mode::empty())?;
        let mut filler = Filler::new(workspace, covers, self);
        for path in &reserved {
            filler
                .reserve(&root, path)
                .map_err(|error| failed(path, error))?;
        }
        Ok(())
    }

    /// Starts the use of a folder. Fails if the command uses too many folders: without a lock,
    /// another process could remove their placeholders.
    fn enter(&mut self, folder: &OwnedFd, max_folders: usize) -> Result<(), Errno> {
        let identity = Identity::of(&fstat(folder)?);
        if self.0.contains(&identity) {
            return Ok(());
        }
        if self.0.len() >= max_folders {
            return Err(Errno::MFILE);
        }
        let mut held = held();
        match held.get_or_insert_default().entry(identity) {
            Entry::Occupied(mut known) => known.get_mut().commands += 1,
            Entry::Vacant(new) => {
                // A lock belongs to an open file, so the file must be opened again.
                let folder = openat(folder, c".", LIST, Mode::empty())?;
                share(&folder);
                new.insert(Held {
                    folder,
                    commands: 1,
                    placeholders: BTreeSet::new(),
                });
            }
        }
        self.0.insert(identity);
        Ok(())
    }
}

impl Drop for Placeholders {
    fn drop(&mut self) {
        let mut held = held();
        let all = held.get_or_insert_default();
        for identity in self.0.drain() {
            let Entry::Occupied(mut known) = all.entry(identity) else {
                continue;
            };
            known.get_mut().commands -= 1;
            if known.get().commands == 0 {
                known.remove().remove_placeholders();
            }
        }
    }
}

impl Held {
    /// Removes the placeholders if no other process uses the folder. Otherwise the last process
    /// removes those that it knows.
    fn remove_placeholders(self) {
        if flock(&self.folder, FlockOperation::NonBlockingLockExclusive).is_err() {
            return;
        }
        for (name, kind) in self.placeholders {
            // Another process may have opened the database, and would write to a removed file.
            let database = OF_OPEN_DATABASE
                .iter()
                .find_map(|end| name.to_str()?.strip_suffix(end));
            let is_used =
                database.is_some_and(|name| stat_entry(&self.folder, OsStr::new(name)).is_ok());
            if !is_used && find(&self.folder, &name) == Some(kind) {
                let _ = unlinkat(&self.folder, &name, flags_to_remove(kind));
            }
        }
    }
}

/// Adds placeholders and their covers.
struct Filler<'a> {
    workspace: &'a Workspace,
    covers: &'a mut Vec<Cover>,
    placeholders: &'a mut Placeholders,
    /// The paths that are covered already.
    covered: HashSet<CString>,
    max_folders: usize,
}

impl<'a> Filler<'a> {
    fn new(
        workspace: &'a Workspace,
        covers: &'a mut Vec<Cover>,
        placeholders: &'a mut Placeholders,
    ) -> Self {
        let covered = covers.iter().map(|cover| cover.path.clone()).collect();
        Self {
            workspace,
            covers,
            placeholders,
            covered,
            max_folders: usize::MAX,
        }
    }

    /// Returns `true` if the paths of all placeholders in a repository can be mounted on.
    fn fits(&self, repository: &[u8]) -> bool {
        let root = self.workspace.root().as_os_str().len();
        let longest = IN_REPOSITORY.iter().map(|name| name.len()).max();
        root + repository.len() + longest.unwrap_or(0) + 3 <= libc::PATH_MAX as usize
    }

    fn put_at(&mut self, tree: &mut Tree, path: &[u8], kind: MissingKind) -> Result<(), Errno> {
        let at = path.iter().rposition(|byte| *byte == b'/');
        let (folder, name) = at.map_or((&b""[..], path), |at| (&path[..at], &path[at + 1..]));
        let kind = match kind {
            MissingKind::Folder => Kind::Folder,
            MissingKind::File => Kind::Empty,
        };
        let folder = tree.open(folder)?;
        let stat = match self.add(&folder, OsStr::from_bytes(name), kind) {
            // Commands cannot write there either.
            Err(error) if is_out_of_reach(&folder, error) => return Ok(()),
            added => added?,
        };
        self.cover(path, &stat, CoverKind::Fixed);
        Ok(())
    }

    fn fill(&mut self, repository: &[u8], folder: &OwnedFd) -> Result<(), Errno> {
        for name in IN_REPOSITORY {
            let kind = match name {
                "hooks" => Kind::Folder,
                "commondir" => Kind::CommonDir,
                _ => Kind::Empty,
            };
            let stat = self.add(folder, OsStr::new(name), kind)?;
            self.cover(&join(repository, name.as_bytes()), &stat, CoverKind::Fixed);
        }
        Ok(())
    }

    /// Reserves a path: its file if the folder exists, else the first missing folder. A placeholder
    /// is a folder too, because git ignores it; only SQLite needs files.
    fn reserve(&mut self, root: &OwnedFd, path: &str) -> Result<(), Errno> {
        let mut folder = root.try_clone().map_err(|_| Errno::MFILE)?;
        let mut above = Vec::new();
        let mut names = path.split('/').filter(|name| !name.is_empty()).peekable();
        while let Some(name) = names.next() {
            let is_last = names.peek().is_none();
            let is_of_database = OF_OPEN_DATABASE.iter().any(|end| name.ends_with(end));
            let kind = match is_last && is_of_database {
                true => Kind::Empty,
                false => Kind::Folder,
            };
            let stat = match self.add(&folder, OsStr::new(name), kind) {
                // Commands cannot write there either.
                Err(error) if is_out_of_reach(&folder, error) => return Ok(()),
                added => added?,
            };
            let below = join(&above, name.as_bytes());
            if is_last || find(&folder, OsStr::new(name)) == Some(kind) {
                self.cover(&below, &stat, CoverKind::Reserved);
                return Ok(());
            }
            // Its target is reserved separately; no command may replace the link.
            if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
                self.cover(&below, &stat, CoverKind::Fixed);
                return Ok(());
            }
            folder = openat(&folder, name, LIST, Mode::empty())?;
            above = below;
        }
        Ok(())
    }

    /// Creates a placeholder if nothing has the name, and returns the metadata of what is there.
    fn add(&mut self, folder: &OwnedFd, name: &OsStr, kind: Kind) -> Result<Stat, Errno> {
        let stat = stat_entry(folder, name);
        let is_missing = matches!(stat, Err(Errno::NOENT));
        if !is_missing && find(folder, name) != Some(kind) {
            return stat;
        }
        // The lock must precede the file, so that no other process removes it.
        self.placeholders.enter(folder, self.max_folders)?;
        if make(folder, name, kind)? || find(folder, name) == Some(kind) {
            let identity = Identity::of(&fstat(folder)?);
            let mut held = held();
            if let Some(held) = held.get_or_insert_default().get_mut(&identity) {
                held.placeholders.insert((name.to_owned(), kind));
            }
        }
        stat_entry(folder, name)
    }

    fn cover(&mut self, path: &[u8], stat: &Stat, kind: CoverKind) {
        let path = self.workspace.root().join(OsStr::from_bytes(path));
        let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
            return;
        };
        if self.covered.insert(path.clone()) {
            self.covers.push(Cover {
                kind,
                path,
                identity: Identity::of(stat),
            });
        } else if kind == CoverKind::Fixed {
            // A folder that could only not be moved can now only be read.
            let known = self.covers.iter_mut().filter(|it| it.path == path);
            known
                .filter(|it| matches!(it.kind, CoverKind::Pinned | CoverKind::Anchored))
                .for_each(|it| it.kind = kind);
        } else if kind == CoverKind::Reserved {
            // The file exists and is denied. If it disappears, no command may create it.
            let known = self.covers.iter_mut().filter(|it| it.path == path);
            known
                .filter(|it| it.kind.hides())
                .for_each(|it| it.kind = kind);
        }
    }
}

const OPEN: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const LIST: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Takes a shared lock. A process that removes placeholders holds an exclusive one for a moment.
///
/// Without the lock, another process may remove a placeholder, and the watcher then ends the
/// command.
fn share(folder: &OwnedFd) {
    for _ in 0..LOCK_ATTEMPTS {
        match flock(folder, FlockOperation::NonBlockingLockShared) {
            Err(Errno::AGAIN) => std::thread::sleep(LOCK_PAUSE),
            _ => return,
        }
    }
}

fn held() -> MutexGuard<'static, Option<HashMap<Identity, Held>>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

fn stat_entry(folder: &OwnedFd, name: &OsStr) -> Result<Stat, Errno> {
    statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
}

/// Returns `true` if a command cannot create a file in the folder, like this process. The owner of
/// a folder could make it writable.
fn is_out_of_reach(folder: &OwnedFd, error: Errno) -> bool {
    let user = rustix::process::geteuid().as_raw();
    let is_own = fstat(folder).map_or(true, |stat| stat.st_uid == user);
    matches!(error, Errno::ROFS | Errno::PERM) || error == Errno::ACCESS && !is_own
}

/// Creates a placeholder; returns `false` if the name is taken.
fn make(folder: &OwnedFd, name: &OsStr, kind: Kind) -> Result<bool, Errno> {
    let made = match kind {
        Kind::Folder => mkdirat(folder, name, Mode::from_raw_mode(0o755)),
        _ => {
            let flags =
                OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let text = if kind == Kind::CommonDir { ITSELF } else { b"" };
            // Git's files have the usual mode; others may hold secrets.
            let mode = if is_of_git(name) { 0o644 } else { 0o600 };
            // Such a short text is written in one call.
            openat(folder, name, flags, Mode::from_raw_mode(mode))
                .and_then(|file| write(file, text).map(drop))
        }
    };
    match made {
        Ok(()) => mark(folder, name, kind).map(|()| true),
        Err(Errno::EXIST) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Sets the time by which a placeholder is recognized. Without it, the file could never be removed.
fn mark(folder: &OwnedFd, name: &OsStr, kind: Kind) -> Result<(), Errno> {
    let time = Timespec {
        tv_sec: MARK,
        tv_nsec: 0,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    utimensat(folder, name, &times, AtFlags::SYMLINK_NOFOLLOW).inspect_err(|_| {
        let _ = unlinkat(folder, name, flags_to_remove(kind));
    })
}

/// Returns the flags for removing a placeholder. A folder that is not empty is not removed.
fn flags_to_remove(kind: Kind) -> AtFlags {
    match kind {
        Kind::Folder => AtFlags::REMOVEDIR,
        _ => AtFlags::empty(),
    }
}

/// Returns the kind of a placeholder, perhaps of another process; `None` for any other file.
fn find(folder: &OwnedFd, name: &OsStr) -> Option<Kind> {
    let stat = stat_entry(folder, name).ok()?;
    let is_marked = stat.st_mtime == MARK;
    match (FileType::from_raw_mode(stat.st_mode), stat.st_size) {
        (FileType::Directory, _) => is_marked.then_some(Kind::Folder),
        (FileType::RegularFile, 0) => is_marked.then_some(Kind::Empty),
        // No one else writes this text.
        (FileType::RegularFile, _) if name == "commondir" => {
            let text = text(folder, name, ITSELF.len() + 1)?;
            (text == ITSELF).then_some(Kind::CommonDir)
        }
        _ => None,
    }
}

fn is_of_git(name: &OsStr) -> bool {
    IN_REPOSITORY.iter().any(|of_git| name == *of_git)
}

/// Reads the beginning of a regular file.
fn text(folder: &OwnedFd, name: &OsStr, max: usize) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(folder, name, flags, Mode::empty()).ok()?;
    let mut text = vec![0; max];
    let mut length = 0;
    while length < max {
        match read(&file, &mut text[length..]) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    text.truncate(length);
    Some(text)
}
