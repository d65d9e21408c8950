//! Files that a denied name points to.
//!
//! `.env -> settings` marks `settings` as a secret, whatever its own name. So it is denied as well,
//! by its path and by its identity, for as long as the workspace is open. Removing the link does
//! not make the file public.
//!
//! Two facts identify a target. Its path denies it before it is opened, and hides it in listings.
//! Its inode denies it after it was renamed, or when a hard link gives it another name. An inode
//! number can be reused once a file is removed, so up to 128 files are held open, which keeps their
//! numbers taken.
//!
//! Most workspaces have no such link. An atomic flag then makes all checks free of locks.

use std::collections::HashMap;
#[cfg(any(target_os = "linux", test))]
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::Errno;

use super::Inner;
use super::path::{child, split};
use super::repository::{self, is_name_of_git, os_path};
use super::tree::Tree;

/// The maximum number of entries that are checked when a workspace is opened. The search before a
/// command checks all of them.
const MAX_ENTRIES: usize = 200_000;

/// The maximum number of files that are held open, so that no other file reuses their inode number.
/// Further files are known by their number alone.
const MAX_OPEN: usize = 128;

/// The time limit for following links when a workspace is opened. A path in a link may lead through
/// thousands of folders and 40 more links, so a few thousand links can take minutes.
const LINK_TIME: Duration = Duration::from_secs(5);

const TOO_SLOW: &str = "the links in it whose names are denied take too long to follow; remove \
    those that lead through many folders or other links";

/// Version control folders, which are not searched for links with denied names.
const VERSION_CONTROL: [&str; 5] = [".git", ".hg", ".svn", ".jj", ".bzr"];

/// The identity of a file or folder, independent of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    pub(crate) device: u64,
    pub(crate) ino: u64,
}

impl Identity {
    #[allow(
        clippy::unnecessary_cast,
        clippy::useless_conversion,
        reason = "the types differ between machines"
    )]
    pub(crate) fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev as u64,
            ino: stat.st_ino as u64,
        }
    }
}

/// The callers to which a target is denied, in ascending order of strength.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DeniedTo {
    /// A repository: its files are denied to file tools, and working trees in it are not.
    FileToolsInPart,
    /// Denied to file tools only: git needs its repository, wherever `.git` points.
    FileTools,
    /// Denied to commands and to file tools.
    All,
}

impl DeniedTo {
    fn is_whole(self) -> bool {
        self != Self::FileToolsInPart
    }
}

/// The known targets of denied names.
///
/// Targets are only added, except for files that were removed.
#[derive(Debug, Default)]
pub(super) struct Targets {
    /// `any` is set if there are targets, `folders` if there are folders among them.
    any: AtomicBool,
    folders: AtomicBool,
    known: RwLock<KnownTargets>,
}

#[derive(Debug, Default)]
struct KnownTargets {
    paths: HashMap<String, DeniedTo>,
    files: HashMap<Identity, DeniedTo>,
    /// Files that are held open.
    open: Vec<(Identity, OwnedFd)>,
    /// The number of files that were not held open because of the limit.
    not_opened: usize,
}

impl Targets {
    /// Returns the known targets, or `None` without taking a lock if there are none.
    fn read(&self) -> Option<RwLockReadGuard<'_, KnownTargets>> {
        let any = self.any.load(Ordering::Acquire);
        any.then(|| self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns `true` if a path, or a folder above it, is a target.
    pub(super) fn deny(&self, path: &str) -> bool {
        let ends = || {
            path.match_indices('/')
                .map(|(at, _)| at)
                .chain([path.len()])
        };
        self.read()
            .is_some_and(|known| ends().any(|end| known.deny(&path[..end])))
    }

    /// Returns `true` if the path itself is a target.
    pub(super) fn deny_step(&self, path: &str) -> bool {
        self.read().is_some_and(|known| known.deny(path))
    }

    /// Returns `true` if an open file or folder is a target, whatever its name.
    pub(super) fn deny_opened(&self, fd: &OwnedFd) -> bool {
        self.read()
            .is_some_and(|known| known.denied_to(fd).is_some_and(DeniedTo::is_whole))
    }

    /// Returns `true` if the entry `name` of an open folder is a file of a repository, whatever the
    /// name of the folder.
    pub(super) fn deny_in(&self, folder: &OwnedFd, name: &str) -> bool {
        self.have_folders()
            && is_name_of_git(name)
            && self
                .read()
                .is_some_and(|known| known.denied_to(folder) == Some(DeniedTo::FileToolsInPart))
    }

    /// Returns `true` if a target that git uses is below a folder, so that another folder in its
    /// place would also replace the target.
    pub(super) fn are_below(&self, folder: &str) -> bool {
        let is_below = |(path, denied_to): (&String, &DeniedTo)| {
            let rest = path.strip_prefix(folder);
            *denied_to != DeniedTo::All
                && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.read()
            .is_some_and(|known| known.paths.iter().any(is_below))
    }

    /// Returns `true` if a target is a folder, so that every folder on the way to a file must be
    /// checked.
    pub(super) fn have_folders(&self) -> bool {
        self.folders.load(Ordering::Acquire)
    }

    /// Returns the identities and paths of the targets that are denied to commands.
    #[cfg(all(feature = "commands", target_os = "linux"))]
    pub(super) fn denied_to_commands(&self) -> (Vec<Identity>, Vec<String>) {
        let Some(known) = self.read() else {
            return Default::default();
        };
        let files = known
            .files
            .iter()
            .filter(|(_, denied_to)| **denied_to == DeniedTo::All);
        let paths = known
            .paths
            .iter()
            .filter(|(_, denied_to)| **denied_to == DeniedTo::All);
        (
            files.map(|(identity, _)| *identity).collect(),
            paths.map(|(path, _)| path.clone()).collect(),
        )
    }

    /// Adds the path of a target that file tools cannot reach, which may not exist.
    fn add_path(&self, path: String) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let denied_to = known.paths.entry(path).or_insert(DeniedTo::FileTools);
        *denied_to = DeniedTo::FileTools.max(*denied_to);
        drop(known);
        self.any.store(true, Ordering::Release);
    }

    /// The flags are set after the entry is stored, so a reader that sees a flag finds the entry.
    fn add(&self, path: String, fd: OwnedFd, stat: &Stat, denied_to: DeniedTo) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.add(path, fd, Identity::of(stat), denied_to);
        drop(known);
        self.any.store(true, Ordering::Release);
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            self.folders.store(true, Ordering::Release);
        }
    }
}

impl KnownTargets {
    /// Returns `true` if the path itself is a target, or a file of a repository.
    fn deny(&self, path: &str) -> bool {
        let denied_to = |path: &str| self.paths.get(path);
        let (folder, name) = split(path);
        denied_to(path).is_some_and(|it| it.is_whole())
            || denied_to(folder) == Some(&DeniedTo::FileToolsInPart) && is_name_of_git(name)
    }

    fn denied_to(&self, fd: &OwnedFd) -> Option<DeniedTo> {
        let stat = fstat(fd).ok()?;
        self.files.get(&Identity::of(&stat)).copied()
    }

    /// A target that is recorded twice is never denied to fewer callers than before.
    fn add(&mut self, path: String, fd: OwnedFd, identity: Identity, denied_to: DeniedTo) {
        let is_kept = |old: Option<&DeniedTo>| old.is_some_and(|old| *old >= denied_to);
        if is_kept(self.files.get(&identity)) && is_kept(self.paths.get(&path)) {
            return;
        }
        // There may be many targets, so once the limit is reached the open ones are checked only
        // occasionally.
        if self.open.len() < MAX_OPEN || self.not_opened.is_multiple_of(MAX_OPEN) {
            self.close_removed();
        }
        if !self.files.contains_key(&identity) {
            match self.open.len() < MAX_OPEN {
                true => self.open.push((identity, fd)),
                false => self.not_opened += 1,
            }
        }
        for old in [
            self.files.entry(identity).or_insert(denied_to),
            self.paths.entry(path).or_insert(denied_to),
        ] {
            *old = denied_to.max(*old);
        }
    }

    /// Closes files that no longer exist: their number may now belong to another file.
    fn close_removed(&mut self) {
        let files = &mut self.files;
        self.open.retain(|(identity, fd)| {
            let is_there = fstat(fd).is_ok_and(|stat| stat.st_nlink > 0);
            if !is_there {
                files.remove(identity);
            }
            is_there
        });
    }
}

impl Inner {
    /// Records the target of a link whose name is denied, or anything else that a denied name
    /// points to. Returns its identity if it is in the workspace and no rule allows it by its own
    /// name.
    ///
    /// `pointer` is the path of the link. Targets outside the workspace give `None`: file tools
    /// cannot reach them.
    pub(super) fn record_target(
        &self,
        pointer: &Path,
        denied_to: DeniedTo,
    ) -> io::Result<Option<Identity>> {
        let real = real_path(pointer)?;
        self.record_real_target(&real, denied_to)
    }

    /// Records a target by its real path.
    pub(super) fn record_real_target(
        &self,
        real: &Path,
        denied_to: DeniedTo,
    ) -> io::Result<Option<Identity>> {
        let Ok(below) = real.strip_prefix(&self.root) else {
            return Ok(None);
        };
        let path = below.to_string_lossy().into_owned();
        // The workspace itself is denied only in part.
        let is_open = match path.is_empty() {
            true => denied_to.is_whole(),
            false => self.deny.allows(&path),
        };
        if is_open {
            return Ok(None);
        }
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = openat(CWD, real, flags, Mode::empty())?;
        let stat = fstat(&fd)?;
        self.targets.add(path, fd, &stat, denied_to);
        Ok(Some(Identity::of(&stat)))
    }

    /// Denies a real path to file tools, whether it exists or not.
    pub(super) fn deny_path(&self, real: &Path) {
        if let Ok(below) = real.strip_prefix(&self.root)
            && let path = below.to_string_lossy().into_owned()
            && !path.is_empty()
            && !self.deny.denies(&path)
            && !self.deny.allows(&path)
        {
            self.targets.add_path(path);
        }
    }

    /// Searches for links with denied names. Folders that cannot be read are skipped: file tools
    /// cannot read them either.
    ///
    /// # Errors
    /// Returns an error if following the links takes longer than `time`: unknown targets cannot be
    /// denied.
    pub(super) fn find_targets(&self) -> io::Result<()> {
        self.find_targets_within(LINK_TIME)
    }

    /// The search stops silently after 200,000 entries, but fails if links take too long: a slow
    /// tree of links is an attack, and a large tree is not.
    fn find_targets_within(&self, time: Duration) -> io::Result<()> {
        if self.deny.is_empty() {
            return Ok(());
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "only a real clock measures the time that the file system takes"
        )]
        let start = Instant::now();
        let Ok(top) = openat(
            &self.dir,
            c".",
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        ) else {
            return Ok(());
        };
        let mut tree = Tree::new(top);
        // Pending folders, each with a flag that is set if the folder itself is denied.
        let mut pending = vec![(Vec::new(), false)];
        let mut remaining = MAX_ENTRIES;
        let check = || match start.elapsed() > time {
            true => Err(io::Error::other(TOO_SLOW)),
            false => Ok(()),
        };
        if repository::is_bare(&self.root) && self.deny.denies(".git") {
            let _ = self.record_real_target(&self.root, DeniedTo::FileToolsInPart);
            self.record_repository(&self.root, &check)?;
        }
        while let Some((folder, denied)) = pending.pop() {
            let Ok(fd) = tree.open(&folder) else { continue };
            let text = String::from_utf8_lossy(&folder).into_owned();
            let Ok(entries) = Dir::read_from(&fd) else {
                continue;
            };
            for entry in entries.flatten() {
                let name = entry.file_name().to_bytes();
                if matches!(name, b"." | b"..") {
                    continue;
                }
                let Some(rest) = remaining.checked_sub(1) else {
                    return Ok(());
                };
                remaining = rest;
                let lossy = String::from_utf8_lossy(name);
                let denied = denied || self.deny.denies_entry(&text, &lossy);
                let kind = match entry.file_type() {
                    FileType::Unknown => statat(&fd, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)
                        .map_or(FileType::Unknown, |stat| {
                            FileType::from_raw_mode(stat.st_mode)
                        }),
                    kind => kind,
                };
                let path = match folder.is_empty() {
                    true => name.to_vec(),
                    false => [&folder, &b"/"[..], name].concat(),
                };
                let absolute = || self.root.join(os_path(&path));
                let is_link = kind == FileType::Symlink || lossy == ".git";
                if denied && is_link {
                    check()?;
                }
                match kind {
                    FileType::Directory if !VERSION_CONTROL.contains(&&*lossy) => {
                        pending.push((path, denied));
                    }
                    FileType::Directory if denied && lossy == ".git" => {
                        self.record_repository(&absolute(), &check)?;
                    }
                    _ if denied && lossy == ".git" => {
                        for repository in self.record_git(&absolute(), &check)?.repositories {
                            self.record_repository(&repository, &check)?;
                        }
                    }
                    FileType::Symlink if denied => {
                        _ = self.record_target(&absolute(), DeniedTo::All);
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Returns `true` if the entry `name` of the folder `dir` is denied.
    pub(super) fn denies_entry(&self, dir: &str, name: &str) -> bool {
        self.deny.denies_entry(dir, name)
            || (self.has_targets() && self.targets.deny_step(&child(dir, name)))
    }

    fn has_targets(&self) -> bool {
        self.targets.any.load(Ordering::Acquire)
    }
}

/// Returns the path of a file or folder without links.
///
/// On Linux the kernel finds it in one call. `canonicalize` makes a call for every folder on the
/// way, each of which walks through all folders before it.
pub(crate) fn real_path(path: &Path) -> io::Result<PathBuf> {
    #[cfg(target_os = "linux")]
    if let Some(real) = real_path_by_kernel(path)? {
        return Ok(real);
    }
    path.canonicalize()
}

/// Returns `None` if the system does not show the paths of open files, or shows an outdated one.
#[cfg(target_os = "linux")]
fn real_path_by_kernel(path: &Path) -> io::Result<Option<PathBuf>> {
    use std::os::fd::AsRawFd as _;

    let fd = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let real = match fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())) {
        Ok(real) if real.is_absolute() => real,
        Err(error) if error.raw_os_error() == Some(Errno::NAMETOOLONG.raw_os_error()) => {
            return Err(error);
        }
        _ => return Ok(None),
    };
    let same = match rustix::fs::lstat(&real) {
        Ok(stat) => Identity::of(&stat) == Identity::of(&fstat(&fd)?),
        Err(_) => false,
    };
    Ok(same.then_some(real))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(known: &mut KnownTargets, path: &Path, denied_to: DeniedTo) -> Identity {
        let fd = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let identity = Identity::of(&fstat(&fd).unwrap());
        known.add(path.to_string_lossy().into_owned(), fd, identity, denied_to);
        identity
    }

    #[test]
    fn removed_targets_are_closed_and_open_files_are_limited() {
        let folder = tempfile::tempdir().unwrap();
        let mut known = KnownTargets::default();
        let note = |range: std::ops::Range<usize>, known: &mut KnownTargets| -> Vec<Identity> {
            let one = |n| {
                let path = folder.path().join(format!("{n}"));
                fs::write(&path, "").unwrap();
                add(known, &path, DeniedTo::All)
            };
            range.map(one).collect()
        };
        let first = note(0..100, &mut known);
        (0..50).for_each(|n| fs::remove_file(folder.path().join(format!("{n}"))).unwrap());
        note(100..101, &mut known);
        assert!(first[..50].iter().all(|it| !known.files.contains_key(it)));
        assert!(first[50..].iter().all(|it| known.files.contains_key(it)));
        let more = note(101..1000, &mut known);
        assert_eq!((known.files.len(), known.open.len()), (950, MAX_OPEN));
        (50..100).for_each(|n| fs::remove_file(folder.path().join(format!("{n}"))).unwrap());
        note(1000..1000 + 2 * MAX_OPEN, &mut known);
        assert!(
            known
                .open
                .iter()
                .all(|(_, fd)| fstat(fd).unwrap().st_nlink > 0)
        );
        assert!(more.iter().all(|it| known.files.contains_key(it)) && known.open.len() == MAX_OPEN);
    }

    #[test]
    fn real_path_equals_canonical_path() {
        use std::os::unix::fs::symlink;

        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/file"), "").unwrap();
        symlink("a", root.join("to-a")).unwrap();
        symlink("to-a/../to-a/b/file", root.join("to-file")).unwrap();
        symlink("nothing", root.join("broken")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        for path in [
            "",
            "a/b",
            "to-a",
            "to-a/b/..",
            "to-file",
            "broken",
            "loop",
            "none",
        ] {
            let path = root.join(path);
            let (real, canonical) = (real_path(&path), path.canonicalize());
            assert_eq!(real.ok(), canonical.ok(), "{path:?}");
        }
    }

    #[test]
    fn open_fails_when_links_take_too_long() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("settings"), "").unwrap();
        let open = || super::super::Workspace::open(folder.path()).unwrap();
        assert!(open().0.find_targets_within(Duration::ZERO).is_ok());
        std::os::unix::fs::symlink("settings", folder.path().join(".env")).unwrap();
        let error = open().0.find_targets_within(Duration::ZERO).unwrap_err();
        assert!(
            error.to_string().contains("take too long to follow"),
            "{error}"
        );
        assert!(open().0.find_targets().is_ok());
    }

    #[test]
    fn target_recorded_twice_never_becomes_less_denied() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, "").unwrap();
        let mut known = KnownTargets::default();
        for (denied_to, expected) in [
            (DeniedTo::FileTools, DeniedTo::FileTools),
            (DeniedTo::FileTools, DeniedTo::FileTools),
            (DeniedTo::All, DeniedTo::All),
            (DeniedTo::FileTools, DeniedTo::All),
        ] {
            let identity = add(&mut known, &path, denied_to);
            assert_eq!((known.files[&identity], known.open.len()), (expected, 1));
            assert_eq!(known.paths[&*path.to_string_lossy()], expected);
        }
    }
}
