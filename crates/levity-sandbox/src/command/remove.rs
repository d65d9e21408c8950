//! Removes folders that a command filled, no matter how deep they are or which modes they have.
//!
//! There is no recursion: the entries of a folder move to the top before they are listed. So the
//! stack stays small, and at most two descriptors are open besides that of the top. Links are never
//! followed.

use std::collections::hash_map::RandomState;
use std::ffi::CStr;
use std::hash::{BuildHasher as _, Hasher as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, fchmod, openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;

/// Removes everything in a folder, or up to `limit` entries. Returns `true` if nothing remains.
pub(super) fn clear(top: OwnedFd, limit: u64) -> bool {
    let Ok(mut entries) = Dir::new(top) else {
        return false;
    };
    let name = RandomState::new().build_hasher().finish();
    let mut removal = Removal {
        name,
        lifted: 0,
        changes: 0,
        limit,
    };
    // On some file systems, a handle lists the entries at the time it was opened or rewound.
    entries.rewind();
    loop {
        let before = removal.changes;
        let Some(had_entries) = removal.pass(&mut entries, Removal::folder) else {
            return false;
        };
        if !had_entries {
            return true;
        }
        if removal.changes == before || removal.is_at_limit() {
            return false;
        }
        entries.rewind();
    }
}

struct Removal {
    /// The prefix of the names of moved folders at the top; a number follows it.
    name: u64,
    lifted: u64,
    /// The number of entries that were removed or moved.
    changes: u64,
    limit: u64,
}

impl Removal {
    fn is_at_limit(&self) -> bool {
        self.changes >= self.limit
    }

    /// Iterates over a folder once: removes files, and calls `folder` for folders. Returns `true`
    /// if there were any entries.
    fn pass(
        &mut self,
        entries: &mut Dir,
        mut folder: impl FnMut(&mut Self, BorrowedFd<'_>, &CStr),
    ) -> Option<bool> {
        let mut any = false;
        while let Some(entry) = entries.read() {
            let entry = entry.ok()?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            any = true;
            if self.is_at_limit() {
                break;
            }
            let fd = entries.fd().ok()?;
            if is_folder(fd, name, entry.file_type()) {
                folder(self, fd, name);
            } else if unlinkat(fd, name, AtFlags::empty()).is_ok() {
                self.changes += 1;
            }
        }
        Some(any)
    }

    /// Removes a folder of the top; its subfolders are moved to the top.
    fn folder(&mut self, top: BorrowedFd<'_>, name: &CStr) {
        if self.remove_empty(top, name) {
            return;
        }
        if let Ok(fd) = open(top, name)
            && let Ok(mut entries) = Dir::new(fd)
        {
            loop {
                let before = self.changes;
                let had_entries = self.pass(&mut entries, |removal, folder, name| {
                    if !removal.remove_empty(folder, name) {
                        removal.lift(folder, name, top);
                    }
                });
                if had_entries != Some(true) || self.changes == before || self.is_at_limit() {
                    break;
                }
                entries.rewind();
            }
        }
        self.remove_empty(top, name);
    }

    fn remove_empty(&mut self, folder: BorrowedFd<'_>, name: &CStr) -> bool {
        let removed = unlinkat(folder, name, AtFlags::REMOVEDIR).is_ok();
        self.changes += u64::from(removed);
        removed
    }

    /// Moves a folder to the top.
    fn lift(&mut self, folder: BorrowedFd<'_>, name: &CStr, top: BorrowedFd<'_>) {
        self.lifted += 1;
        let to = format!("{:016x}-{}", self.name, self.lifted);
        let mut moved = renameat(folder, name, top, to.as_str());
        if moved.is_err() {
            // Moving a folder changes the folder itself, whose mode may forbid that.
            make_accessible(folder, name);
            moved = renameat(folder, name, top, to.as_str());
        }
        self.changes += u64::from(moved.is_ok());
    }
}

/// Opens a folder for listing, and ensures that its entries can be removed.
fn open(parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = match openat(parent, name, flags, Mode::empty()) {
        Err(Errno::ACCESS | Errno::PERM) => {
            make_accessible(parent, name);
            openat(parent, name, flags, Mode::empty())?
        }
        opened => opened?,
    };
    let _ = fchmod(&fd, Mode::RWXU);
    Ok(fd)
}

/// Gives the owner of a folder all permissions on it.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn make_accessible(parent: BorrowedFd<'_>, name: impl rustix::path::Arg) {
    use std::os::fd::AsRawFd as _;

    // A folder that cannot be opened for reading can still be opened as a path, and changed by its
    // name in `/proc`. A link is excluded by both flags.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if let Ok(fd) = openat(parent, name, flags, Mode::empty()) {
        let _ = rustix::fs::chmod(
            format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()),
            Mode::RWXU,
        );
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn make_accessible(parent: BorrowedFd<'_>, name: impl rustix::path::Arg) {
    let _ = rustix::fs::chmodat(parent, name, Mode::RWXU, AtFlags::SYMLINK_NOFOLLOW);
}

fn is_folder(fd: BorrowedFd<'_>, name: &CStr, kind: FileType) -> bool {
    let kind = match kind {
        FileType::Unknown => statat(fd, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_or(FileType::Unknown, |stat| {
                FileType::from_raw_mode(stat.st_mode)
            }),
        kind => kind,
    };
    kind == FileType::Directory
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;

    /// On Btrfs, a folder that was empty when it was opened also lists nothing later.
    #[test]
    fn clear_rereads_folder_that_was_listed_before() {
        let folder = tempfile::tempdir().unwrap();
        let root = CString::new(folder.path().as_os_str().as_encoded_bytes()).unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = openat(rustix::fs::CWD, &root, flags, Mode::empty()).unwrap();
        std::fs::write(folder.path().join("a"), "").unwrap();
        let mut room = Vec::with_capacity(4096);
        let mut entries = rustix::fs::RawDir::new(&fd, room.spare_capacity_mut());
        while entries.next().is_some() {}
        assert!(clear(fd, u64::MAX));
        assert_eq!(folder.path().read_dir().unwrap().count(), 0);
    }
}
