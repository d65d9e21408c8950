//! Private folders of a sandbox: temporary files, an empty home, and files for probes.
//!
//! Every sandbox has its own folder with an unguessable name and mode 0700, in the system's
//! temporary folder. A lock on it tells other processes that it is in use; the system releases the
//! lock when the process dies. So the next sandbox of the same user can remove folders that were
//! left behind, and no others.

use std::collections::hash_map::RandomState;
use std::fs::{self, DirBuilder};
use std::hash::{BuildHasher as _, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};

/// The content of the file that identifies a folder of this kind. No command can change the file.
const CANARY: &str = "nobody reads this";

/// A private folder for the commands of one sandbox, removed with it. If its process is killed, the
/// user's next sandbox removes it.
#[derive(Debug)]
pub(super) struct PrivateFolder {
    root: PathBuf,
    #[cfg(unix)]
    hold: owned::FolderLock,
}

impl PrivateFolder {
    pub(super) fn new() -> io::Result<Self> {
        Self::new_in(&std::env::temp_dir().canonicalize()?)
    }

    fn new_in(base: &Path) -> io::Result<Self> {
        #[cfg(unix)]
        owned::sweep(base);
        let private = Self::create_fresh(base)?;
        for folder in [private.temp(), private.home(), private.empty()] {
            fs::create_dir(folder)?;
        }
        fs::write(private.canary(), CANARY)?;
        Ok(private)
    }

    /// Creates a new folder that only this user can enter.
    #[cfg(unix)]
    fn create_fresh(base: &Path) -> io::Result<Self> {
        loop {
            let root = create(base, owned::PREFIX)?;
            match owned::FolderLock::acquire(&root)? {
                owned::LockResult::Held(hold) => return Ok(Self { root, hold }),
                // Another process mistook it for an abandoned folder.
                owned::LockResult::Lost => {}
                owned::LockResult::NoLocks => {
                    fs::remove_dir(&root)?;
                    let root = create(base, "levity-unlocked-")?;
                    return Ok(Self {
                        hold: owned::FolderLock::without_lock(&root)?,
                        root,
                    });
                }
            }
        }
    }

    #[cfg(not(unix))]
    fn create_fresh(base: &Path) -> io::Result<Self> {
        Ok(Self {
            root: create(base, "levity-sandbox-")?,
        })
    }

    /// Returns the folder for temporary files of commands.
    pub(super) fn temp(&self) -> PathBuf {
        self.root.join("tmp")
    }

    /// Returns the home folder of commands.
    pub(super) fn home(&self) -> PathBuf {
        self.root.join("home")
    }

    /// Creates a new folder for the temporary files of one command.
    #[cfg(target_os = "linux")]
    pub(super) fn run_folder(root: &Path) -> io::Result<RunFolder> {
        create(root, "run-").map(RunFolder)
    }

    /// Restores the user's permissions on the folders, which a command can remove.
    #[cfg(target_os = "linux")]
    pub(super) fn make_accessible(root: &Path) {
        for folder in ["", "tmp", "home", "empty"] {
            owned::make_folder_accessible(&root.join(folder));
        }
    }

    #[cfg(target_os = "linux")]
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the folder that is mounted over a hidden folder.
    pub(super) fn empty(&self) -> PathBuf {
        self.root.join("empty")
    }

    /// Returns a file that commands must not reach, for probes.
    pub(super) fn canary(&self) -> PathBuf {
        self.root.join("canary")
    }

    /// Returns a socket that commands must not reach, for probes.
    #[cfg(target_os = "linux")]
    pub(super) fn socket(&self) -> PathBuf {
        self.root.join("socket")
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        #[cfg(unix)]
        self.hold.remove(&self.root);
        #[cfg(not(unix))]
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// A folder for the temporary files of one command, removed when it is dropped.
#[cfg(target_os = "linux")]
#[derive(Debug)]
pub(super) struct RunFolder(PathBuf);

#[cfg(target_os = "linux")]
impl RunFolder {
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

#[cfg(target_os = "linux")]
impl Drop for RunFolder {
    fn drop(&mut self) {
        owned::remove(&self.0);
    }
}

/// Creates a folder with an unused name.
fn create(base: &Path, prefix: &str) -> io::Result<PathBuf> {
    #[cfg_attr(not(unix), expect(unused_mut, reason = "only Unix has modes"))]
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    loop {
        let name = RandomState::new().build_hasher().finish();
        let path = base.join(format!("{prefix}{name:016x}"));
        match builder.create(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// Ownership of folders. A live process holds a lock on its folder, which the system releases when
/// the process dies.
#[cfg(unix)]
mod owned {
    use std::fs;
    use std::io;
    use std::os::fd::{AsFd as _, OwnedFd};
    use std::path::Path;

    use rustix::fs::{
        AtFlags, CWD, FlockOperation, Mode, OFlags, Stat, fchmod, flock, fstat, openat, statat,
    };
    use rustix::io::{Errno, fcntl_dupfd_cloexec, read};

    use super::CANARY;
    use crate::command::remove::{clear, make_accessible};

    /// The prefix of folders that are locked while in use. No other folder is removed.
    pub(super) const PREFIX: &str = "levity-sandbox-";

    /// The maximum number of names that are checked in the folder for temporary files.
    const MAX_NAMES: usize = 100_000;
    /// The maximum number of entries that one sandbox removes for others; the next sandbox removes
    /// more.
    const MAX_SWEPT: u64 = 100_000;

    /// A lock on a folder.
    #[derive(Debug)]
    pub(super) struct FolderLock {
        /// The folder, and two spare descriptors that are released for its removal: no others may
        /// be available then.
        open: Option<(OwnedFd, [OwnedFd; 2])>,
    }

    /// The result of a request for a lock.
    pub(super) enum LockResult {
        Held(FolderLock),
        /// Another process owns the folder, or has removed it.
        Lost,
        /// The file system does not support locks.
        NoLocks,
    }

    impl FolderLock {
        pub(super) fn acquire(root: &Path) -> io::Result<LockResult> {
            let fd = match open(root) {
                Err(Errno::NOENT) => return Ok(LockResult::Lost),
                opened => opened?,
            };
            match flock(&fd, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) if is_at(&fd, root) => Ok(LockResult::Held(Self::of(fd)?)),
                Ok(()) | Err(Errno::WOULDBLOCK) => Ok(LockResult::Lost),
                Err(_) => Ok(LockResult::NoLocks),
            }
        }

        pub(super) fn without_lock(root: &Path) -> io::Result<Self> {
            Self::of(open(root)?)
        }

        fn of(fd: OwnedFd) -> io::Result<Self> {
            let spare = [fcntl_dupfd_cloexec(&fd, 3)?, fcntl_dupfd_cloexec(&fd, 3)?];
            Ok(Self {
                open: Some((fd, spare)),
            })
        }

        #[cfg(test)]
        pub(super) fn release(&mut self) {
            self.open = None;
        }

        /// Removes the folder. This needs little stack and no new descriptors, so it may happen
        /// wherever a sandbox is dropped.
        pub(super) fn remove(&mut self, root: &Path) {
            let Some((fd, spare)) = self.open.take() else {
                return;
            };
            drop(spare);
            // A command may have changed its mode.
            let _ = fchmod(&fd, Mode::RWXU);
            if clear(fd, u64::MAX) {
                let _ = fs::remove_dir(root);
            }
        }
    }

    /// Makes a folder of this user accessible, if it is not.
    #[cfg(target_os = "linux")]
    pub(super) fn make_folder_accessible(folder: &Path) {
        // The path may end in a slash, which would follow a link.
        let folder: std::path::PathBuf = folder.components().collect();
        let shut = |stat: &Stat| stat.st_mode & 0o700 != 0o700;
        let is_shut = statat(CWD, &folder, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| shut(&stat));
        if let (true, Some(above), Some(name)) = (is_shut, folder.parent(), folder.file_name())
            && let Ok(above) = open(above)
        {
            make_accessible(above.as_fd(), name);
        }
    }

    /// Removes a folder and everything in it.
    #[cfg(target_os = "linux")]
    pub(super) fn remove(folder: &Path) {
        if open(folder).is_ok_and(|fd| fchmod(&fd, Mode::RWXU).is_ok() && clear(fd, u64::MAX)) {
            let _ = fs::remove_dir(folder);
        }
    }

    fn open(root: &Path) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(CWD, root, flags, Mode::empty())
    }

    /// Returns `true` if the path still leads to the folder.
    fn is_at(fd: &OwnedFd, root: &Path) -> bool {
        let same = |a: &Stat, b: &Stat| (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino);
        match (fstat(fd), statat(CWD, root, AtFlags::SYMLINK_NOFOLLOW)) {
            (Ok(held), Ok(there)) => same(&held, &there),
            _ => false,
        }
    }

    /// Removes the folders of this user that no process holds any more.
    pub(super) fn sweep(base: &Path) {
        let Ok(entries) = fs::read_dir(base) else {
            return;
        };
        for entry in entries.flatten().take(MAX_NAMES) {
            if entry.file_name().to_str().is_some_and(has_our_prefix) {
                sweep_one(&entry.path());
            }
        }
    }

    fn has_our_prefix(name: &str) -> bool {
        let digits = name.strip_prefix(PREFIX).unwrap_or_default();
        digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    }

    /// Returns `true` if it is a folder of this user, whatever its mode: a command of the user can
    /// change that. A command of root can also give the folder to another user, so root checks only
    /// the canary.
    fn is_own(root: &Path) -> bool {
        let user = rustix::process::geteuid();
        let is_own = |stat: Stat| user.is_root() || stat.st_uid == user.as_raw();
        statat(CWD, root, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(is_own)
    }

    /// Returns `true` if it contains the file that every such folder has, and that no command can
    /// create.
    fn has_canary(fd: &OwnedFd) -> bool {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(file) = openat(fd, "canary", flags, Mode::empty()) else {
            return false;
        };
        let mut text = [0; CANARY.len() + 1];
        read(file, &mut text).is_ok_and(|length| &text[..length] == CANARY.as_bytes())
    }

    fn sweep_one(root: &Path) {
        if !is_own(root) {
            return;
        }
        let opened = open(root).or_else(|error| match (error, root.file_name()) {
            (Errno::ACCESS, Some(name)) => {
                let base = open(root.parent().unwrap_or(Path::new("/")))?;
                make_accessible(base.as_fd(), name);
                open(root)
            }
            _ => Err(error),
        });
        let Ok(fd) = opened else { return };
        if flock(&fd, FlockOperation::NonBlockingLockExclusive).is_err() {
            return;
        }
        // If its process died before the file existed, the folder is empty.
        if has_canary(&fd) && fchmod(&fd, Mode::RWXU).is_ok() {
            clear(fd, MAX_SWEPT);
        }
        let _ = fs::remove_dir(root);
    }
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn shut(path: &Path) {
        fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
    }

    fn names(base: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(base)
            .unwrap()
            .map(|it| it.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Creates nested folders, deeper than a path can express.
    fn nest(folder: &Path, depth: usize) {
        use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};

        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut here = openat(CWD, folder, flags, Mode::empty()).unwrap();
        for _ in 0..depth {
            mkdirat(&here, "nested", Mode::RWXU).unwrap();
            here = openat(&here, "nested", flags, Mode::empty()).unwrap();
        }
    }

    #[test]
    fn drop_removes_deep_and_inaccessible_folders_on_small_stack() {
        let base = tempfile::tempdir().unwrap();
        let outside = base.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "").unwrap();
        let private = PrivateFolder::new_in(base.path()).unwrap();
        nest(&private.temp(), 2000);
        let home = private.home();
        fs::create_dir_all(home.join("a/b/c")).unwrap();
        fs::write(home.join("a/b/c/file"), "").unwrap();
        symlink(&outside, home.join("a/link")).unwrap();
        symlink(&outside, home.join("a/b/c/link")).unwrap();
        for path in ["a/b/c", "a/b", "a"] {
            shut(&home.join(path));
        }
        shut(&private.temp());
        let stack = 32 << 10;
        std::thread::Builder::new()
            .stack_size(stack)
            .spawn(move || drop(private))
            .unwrap()
            .join()
            .unwrap();
        assert_eq!(names(base.path()), ["outside"]);
        assert_eq!(names(&outside), ["kept"]);
    }

    #[test]
    fn new_sandbox_removes_only_unlocked_private_folders() {
        let base = tempfile::tempdir().unwrap();
        let live = PrivateFolder::new_in(base.path()).unwrap();
        let abandoned = PrivateFolder::new_in(base.path()).unwrap();
        nest(&abandoned.temp(), 300);
        fs::create_dir(abandoned.home().join("shut")).unwrap();
        fs::write(abandoned.home().join("shut/file"), "").unwrap();
        shut(&abandoned.home().join("shut"));
        let abandoned_root = abandoned.root.clone();
        let outside = base.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "").unwrap();
        let link = base
            .path()
            .join(format!("{}0123456789abcdef", owned::PREFIX));
        symlink(&outside, &link).unwrap();
        // Folders that their creators do not lock, or that are of another kind.
        let others = [
            "levity-0123456789abcdef",
            "levity-sandbox-01234567",
            "levity-sandbox-0123456789abcdeg",
            "levity-unlocked-0123456789abcdef",
        ];
        for name in others {
            fs::create_dir(base.path().join(name)).unwrap();
        }
        let public = base
            .path()
            .join(format!("{}fedcba9876543210", owned::PREFIX));
        fs::create_dir(&public).unwrap();
        fs::write(public.join("kept"), "").unwrap();
        fs::set_permissions(&public, fs::Permissions::from_mode(0o755)).unwrap();
        // Commands of the user can change modes.
        fs::set_permissions(&abandoned_root, fs::Permissions::from_mode(0o755)).unwrap();
        let mut shut = std::mem::ManuallyDrop::new(PrivateFolder::new_in(base.path()).unwrap());
        let shut_root = shut.root.clone();
        fs::set_permissions(&shut_root, fs::Permissions::from_mode(0o000)).unwrap();
        let unfinished = base
            .path()
            .join(format!("{}00000000000000ff", owned::PREFIX));
        fs::create_dir(&unfinished).unwrap();
        // A command of root can give the folder to another user.
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&abandoned_root, Some(65_534), None).unwrap();
        }
        // A process that dies releases its locks and removes nothing.
        let mut abandoned = std::mem::ManuallyDrop::new(abandoned);
        abandoned.hold.release();
        shut.hold.release();
        let new = PrivateFolder::new_in(base.path()).unwrap();
        assert!(!abandoned_root.exists() && !shut_root.exists() && !unfinished.exists());
        assert!(live.canary().exists() && new.canary().exists() && public.exists());
        assert_eq!(names(&outside), ["kept"]);
        assert!(link.is_symlink() && others.iter().all(|name| base.path().join(name).exists()));
    }
}
