//! The system calls of a workspace. Each takes the handle of a folder and one name in it, and
//! follows no link. Only [`beneath`] takes a path, which the kernel resolves without leaving the
//! folder and without links.
//!
//! Nothing here decides: an error is translated to [`SysError`], and `resolve` gives it a meaning.
//! No call blocks on a pipe or a terminal.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags, RawMode, Stat};
use rustix::io::Errno;

use super::meta::{EntryKind, Metadata};

/// A handle of a folder or a file.
pub(super) type Fd = OwnedFd;

/// The reason why a system call failed, as far as the workspace distinguishes it.
#[derive(Debug)]
pub(super) enum SysError {
    Missing,
    /// The path contains a link.
    Link,
    NotDir,
    IsDir,
    Exists,
    NotEmpty,
    /// The entry can only be opened by a driver or another process.
    Special,
    TooLong,
    /// The kernel does not have the call, or denies its use.
    NoCall,
    Other(io::Error),
}

impl From<Errno> for SysError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT => Self::Missing,
            // BSD returns MLINK where other systems return LOOP.
            Errno::LOOP | Errno::MLINK => Self::Link,
            Errno::NOTDIR => Self::NotDir,
            Errno::ISDIR => Self::IsDir,
            Errno::EXIST => Self::Exists,
            Errno::NOTEMPTY => Self::NotEmpty,
            Errno::NXIO | Errno::NODEV | Errno::OPNOTSUPP => Self::Special,
            Errno::NAMETOOLONG => Self::TooLong,
            Errno::NOSYS => Self::NoCall,
            other => Self::Other(other.into()),
        }
    }
}

type Result<T> = std::result::Result<T, SysError>;

/// The purpose for which a path is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To open entries below a folder.
    Pass,
    /// To list a folder.
    List,
    /// To read a file. Neither a pipe without a writer nor a terminal blocks the call.
    Read,
}

/// Flags for a handle that needs only search permission, if the system supports that.
#[cfg(any(target_os = "linux", target_os = "android"))]
const HANDLE: OFlags = OFlags::PATH;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const HANDLE: OFlags = OFlags::RDONLY;

impl Purpose {
    /// Every handle is closed in child processes, and none follows a link as its last name.
    fn flags(self) -> OFlags {
        let flags = match self {
            Self::Pass => HANDLE.union(OFlags::DIRECTORY),
            Self::List => OFlags::RDONLY.union(OFlags::DIRECTORY),
            Self::Read => OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY),
        };
        flags.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC)
    }
}

/// Opens the folder of a workspace by its path.
pub(super) fn open_root(path: &Path) -> io::Result<Fd> {
    let flags = HANDLE | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(fs::openat(CWD, path, flags, Mode::empty())?)
}

/// Opens a path below a folder in one call, if it contains no link.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn beneath(root: &Fd, path: &str, purpose: Purpose) -> Result<Fd> {
    use rustix::fs::ResolveFlags;

    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let path = if path.is_empty() { "." } else { path };
    fs::openat2(root, path, purpose.flags(), Mode::empty(), resolve).map_err(|errno| match errno {
        // A seccomp filter that does not know the call returns PERM. The kernel returns AGAIN if
        // folders move during the call.
        Errno::PERM | Errno::AGAIN | Errno::XDEV => SysError::NoCall,
        other => other.into(),
    })
}

/// Opens a path below a folder in one call; only Linux supports that.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn beneath(_: &Fd, _: &str, _: Purpose) -> Result<Fd> {
    Err(SysError::NoCall)
}

/// Opens an entry of a folder; `.` opens the folder again.
pub(super) fn open(dir: &Fd, name: &str, purpose: Purpose) -> Result<Fd> {
    Ok(fs::openat(dir, name, purpose.flags(), Mode::empty())?)
}

/// Creates a new file for writing, with `mode` limited by the umask of the process.
pub(super) fn create(dir: &Fd, name: &str, mode: u32) -> Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(fs::openat(dir, name, flags, rights(mode))?.into())
}

#[allow(clippy::unnecessary_cast, reason = "the type differs between systems")]
fn rights(mode: u32) -> Mode {
    Mode::from_raw_mode((mode & 0o777) as RawMode)
}

/// Returns the target of a link, or `None` if the entry is not a link.
pub(super) fn read_link(dir: &Fd, name: &str) -> Result<Option<Vec<u8>>> {
    match fs::readlinkat(dir, name, Vec::new()) {
        Ok(target) => Ok(Some(target.into_bytes())),
        Err(Errno::INVAL) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Returns the metadata of an entry.
pub(super) fn stat_entry(dir: &Fd, name: &str) -> Result<Metadata> {
    Ok(metadata(&fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?))
}

/// Returns the metadata of an open handle.
pub(super) fn stat_handle(fd: &Fd) -> Result<Metadata> {
    Ok(metadata(&fs::fstat(fd)?))
}

#[allow(clippy::unnecessary_cast, reason = "the types differ between systems")]
fn metadata(stat: &Stat) -> Metadata {
    Metadata {
        kind: kind(FileType::from_raw_mode(stat.st_mode)),
        size: u64::try_from(stat.st_size).unwrap_or(0),
        modified: stat.st_mtime as i64,
        mode: stat.st_mode as u32 & 0o777,
        links: stat.st_nlink as u64,
        inode: stat.st_ino as u64,
        inode_changed: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
    }
}

fn kind(kind: FileType) -> EntryKind {
    match kind {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Dir,
        FileType::Symlink => EntryKind::Link,
        _ => EntryKind::Other,
    }
}

/// Passes the entries of a folder to `each`, in no particular order, until it returns false. Some
/// file systems do not report the kind.
pub(super) fn entries(
    dir: &Fd,
    mut each: impl FnMut(&[u8], Option<EntryKind>) -> bool,
) -> Result<()> {
    for entry in fs::Dir::new(open(dir, ".", Purpose::List)?)? {
        let entry = entry?;
        let known = match entry.file_type() {
            FileType::Unknown => None,
            known => Some(kind(known)),
        };
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." && !each(name, known) {
            break;
        }
    }
    Ok(())
}

/// Creates a new folder.
pub(super) fn make_dir(dir: &Fd, name: &str) -> Result<()> {
    Ok(fs::mkdirat(dir, name, rights(0o777))?)
}

/// Removes a file, a link, or an empty folder.
pub(super) fn remove(dir: &Fd, name: &str, is_dir: bool) -> Result<()> {
    let flags = if is_dir {
        AtFlags::REMOVEDIR
    } else {
        AtFlags::empty()
    };
    Ok(fs::unlinkat(dir, name, flags)?)
}

/// Renames an entry, and replaces an entry that has the new name.
pub(super) fn rename(from: &Fd, name: &str, to: &Fd, new: &str) -> Result<()> {
    Ok(fs::renameat(from, name, to, new)?)
}

/// Renames a file, unless the new name is taken.
///
/// If the system has no such call, a hard link is created and the old name removed. The new name is
/// then still never replaced, but a crash in between leaves both names.
pub(super) fn rename_new(from: &Fd, name: &str, to: &Fd, new: &str) -> Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
    match fs::renameat_with(from, name, to, new, fs::RenameFlags::NOREPLACE) {
        // The file system, or the kernel, cannot rename without replacing in one call.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
        other => return Ok(other?),
    }
    fs::linkat(from, name, to, new, AtFlags::empty())?;
    Ok(fs::unlinkat(from, name, AtFlags::empty())?)
}

/// Sets the permission bits of a file.
pub(super) fn set_mode(file: &File, mode: u32) -> Result<()> {
    Ok(fs::fchmod(file, rights(mode))?)
}

/// Waits until the names in a folder are on disk.
pub(super) fn sync_dir(dir: &Fd) -> Result<()> {
    Ok(fs::fsync(open(dir, ".", Purpose::List)?)?)
}

/// Converts the handle to a file of the standard library.
pub(super) fn into_file(fd: Fd) -> File {
    fd.into()
}
