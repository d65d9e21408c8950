//! The system calls of a workspace. Each takes a handle of a folder and one name in it, and follows
//! no link; [`beneath`] alone takes a path, which the kernel resolves without leaving the folder
//! and without links.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags, RawMode, Stat};
use rustix::io::Errno;

use super::meta::{Kind, Metadata};

/// A handle of a folder or a file.
pub(super) type Fd = OwnedFd;

/// Why a system call failed, as far as it matters here.
#[derive(Debug)]
pub(super) enum Fail {
    Missing,
    /// A link is in the way.
    Link,
    NotDir,
    IsDir,
    Exists,
    NotEmpty,
    /// It can only be opened by a driver or another process.
    Special,
    TooLong,
    /// The kernel has no such call, or does not let us use it.
    NoCall,
    Other(io::Error),
}

impl From<Errno> for Fail {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT => Self::Missing,
            // BSD says MLINK where others say LOOP.
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

type Result<T> = std::result::Result<T, Fail>;

/// What a path is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// To open what is below a folder.
    Pass,
    /// To list a folder.
    List,
    /// To read a file. Neither a pipe without a writer nor a terminal makes this wait.
    Read,
}

/// A handle that needs no right but to pass, where there is such a thing.
#[cfg(any(target_os = "linux", target_os = "android"))]
const HANDLE: OFlags = OFlags::PATH;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const HANDLE: OFlags = OFlags::RDONLY;

impl Want {
    fn flags(self) -> OFlags {
        let flags = match self {
            Self::Pass => HANDLE.union(OFlags::DIRECTORY),
            Self::List => OFlags::RDONLY.union(OFlags::DIRECTORY),
            Self::Read => OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY),
        };
        flags.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC)
    }
}

/// Opens the folder of a workspace, wherever it is.
pub(super) fn open_root(path: &Path) -> io::Result<Fd> {
    let flags = HANDLE | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(fs::openat(CWD, path, flags, Mode::empty())?)
}

/// Opens a path below a folder in one call, if there is no link in it.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn beneath(root: &Fd, path: &str, want: Want) -> Result<Fd> {
    use rustix::fs::ResolveFlags;

    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let path = if path.is_empty() { "." } else { path };
    fs::openat2(root, path, want.flags(), Mode::empty(), resolve).map_err(|errno| match errno {
        // A filter that does not know the call says PERM; the kernel says AGAIN when folders move
        // meanwhile.
        Errno::PERM | Errno::AGAIN | Errno::XDEV => Fail::NoCall,
        other => other.into(),
    })
}

/// Opens a path below a folder in one call; only Linux can.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn beneath(_: &Fd, _: &str, _: Want) -> Result<Fd> {
    Err(Fail::NoCall)
}

/// Opens an entry of a folder; `.` opens the folder again.
pub(super) fn open(dir: &Fd, name: &str, want: Want) -> Result<Fd> {
    Ok(fs::openat(dir, name, want.flags(), Mode::empty())?)
}

/// Makes a file that was not there, for writing; with `mode` as far as the process gives it away.
pub(super) fn create(dir: &Fd, name: &str, mode: u32) -> Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(fs::openat(dir, name, flags, rights(mode))?.into())
}

#[allow(clippy::unnecessary_cast, reason = "the type differs between systems")]
fn rights(mode: u32) -> Mode {
    Mode::from_raw_mode((mode & 0o777) as RawMode)
}

/// What a link says, or nothing if the entry is no link.
pub(super) fn read_link(dir: &Fd, name: &str) -> Result<Option<Vec<u8>>> {
    match fs::readlinkat(dir, name, Vec::new()) {
        Ok(target) => Ok(Some(target.into_bytes())),
        Err(Errno::INVAL) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Looks at an entry.
pub(super) fn look(dir: &Fd, name: &str) -> Result<Metadata> {
    Ok(metadata(&fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?))
}

/// Looks at what was opened.
pub(super) fn look_at(fd: &Fd) -> Result<Metadata> {
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
    }
}

fn kind(kind: FileType) -> Kind {
    match kind {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Dir,
        FileType::Symlink => Kind::Link,
        _ => Kind::Other,
    }
}

/// Hands the entries of a folder to `each`, in no order, until it returns false. The kind is
/// unknown on some file systems.
pub(super) fn entries(dir: &Fd, mut each: impl FnMut(&[u8], Option<Kind>) -> bool) -> Result<()> {
    for entry in fs::Dir::new(open(dir, ".", Want::List)?)? {
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

/// Makes a folder.
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

/// Gives an entry another name; what had that name is replaced.
pub(super) fn rename(from: &Fd, name: &str, to: &Fd, new: &str) -> Result<()> {
    Ok(fs::renameat(from, name, to, new)?)
}

/// Gives a file another name, unless that is taken.
pub(super) fn rename_new(from: &Fd, name: &str, to: &Fd, new: &str) -> Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
    match fs::renameat_with(from, name, to, new, fs::RenameFlags::NOREPLACE) {
        // The file system, or the kernel, cannot do it in one go.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
        other => return Ok(other?),
    }
    fs::linkat(from, name, to, new, AtFlags::empty())?;
    Ok(fs::unlinkat(from, name, AtFlags::empty())?)
}

/// Sets who may do what with a file.
pub(super) fn set_mode(file: &File, mode: u32) -> Result<()> {
    Ok(fs::fchmod(file, rights(mode))?)
}

/// Waits until the names in a folder are on disk.
pub(super) fn sync_dir(dir: &Fd) -> Result<()> {
    Ok(fs::fsync(open(dir, ".", Want::List)?)?)
}

/// The handle as a file of the standard library.
pub(super) fn into_file(fd: Fd) -> File {
    fd.into()
}
