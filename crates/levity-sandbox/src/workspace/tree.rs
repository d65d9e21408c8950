//! Opens the folders of a tree, each relative to a folder above it that is already open.
//!
//! Opening a folder by its path from the top costs the kernel one step for each name, which is most
//! of the work in a deep tree. Here a search that continues with a folder close to the last one
//! pays only for the names between the two.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

/// The maximum number of open folders, apart from the top.
const MAX_OPEN: usize = 64;

const LIST: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// The folders of a tree. No link in it is followed.
///
/// Paths are bytes relative to the top, without a leading `/`. At most 64 folders are open at once,
/// so a deep tree does not use up the descriptors of the process.
#[derive(Debug)]
pub(crate) struct Tree {
    top: OwnedFd,
    /// Open folders, each above the next one, with their paths from the top.
    open: Vec<(Vec<u8>, OwnedFd)>,
}

impl Tree {
    pub(crate) fn new(top: OwnedFd) -> Self {
        Self {
            top,
            open: Vec::new(),
        }
    }

    #[cfg(all(feature = "commands", target_os = "linux"))]
    pub(crate) fn top(&self) -> BorrowedFd<'_> {
        self.top.as_fd()
    }

    /// Opens a folder to list it; the empty path is the top.
    pub(crate) fn open(&mut self, folder: &[u8]) -> Result<OwnedFd, Errno> {
        if folder.is_empty() {
            self.open.clear();
            return openat(&self.top, c".", LIST, Mode::empty());
        }
        while self
            .open
            .last()
            .is_some_and(|(path, _)| !is_above(path, folder))
        {
            self.open.pop();
        }
        let parent = folder.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        self.open_down_to(&folder[..parent])?;
        let name = folder[parent..]
            .strip_prefix(b"/")
            .unwrap_or(&folder[parent..]);
        openat(self.last().1, name, LIST, Mode::empty())
    }

    /// Returns the lowest open folder, and the length of its path.
    fn last(&self) -> (usize, BorrowedFd<'_>) {
        self.open
            .last()
            .map_or((0, self.top.as_fd()), |(path, fd)| (path.len(), fd.as_fd()))
    }

    /// Opens the folders on the way down to this one.
    ///
    /// Missing folders between the lowest open one and `folder` are opened one by one; those far
    /// above in one call, since a search hardly returns there.
    fn open_down_to(&mut self, folder: &[u8]) -> Result<(), Errno> {
        let start = |length: usize| if length == 0 { 0 } else { length + 1 };
        let (above, _) = self.last();
        if above == folder.len() {
            return Ok(());
        }
        let mut ends: Vec<usize> = (start(above)..folder.len())
            .filter(|at| folder[*at] == b'/')
            .collect();
        ends.push(folder.len());
        // The search returns through the lower folders, so those stay open. The upper ones are
        // passed in one call.
        let far = ends.len().saturating_sub(MAX_OPEN / 2);
        if far > 1 {
            let (length, from) = self.last();
            if let Some(fd) = open_many(from, &folder[start(length)..ends[far - 1]])? {
                self.open.push((folder[..ends[far - 1]].to_vec(), fd));
                ends.drain(..far);
            }
        }
        for end in ends {
            let (length, from) = self.last();
            let fd = openat(
                from,
                &folder[start(length)..end],
                search_flags(),
                Mode::empty(),
            )?;
            if self.open.len() >= MAX_OPEN {
                self.open.drain(..MAX_OPEN / 2);
            }
            self.open.push((folder[..end].to_vec(), fd));
        }
        Ok(())
    }
}

/// Returns `true` if `above` is the path of a folder above `path`.
fn is_above(above: &[u8], path: &[u8]) -> bool {
    path.strip_prefix(above)
        .is_some_and(|rest| rest.first() == Some(&b'/'))
}

/// Returns the flags for a folder that is opened only to reach its entries.
fn search_flags() -> OFlags {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    return OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    return LIST;
}

/// Opens a path of many names in one call; returns `None` if the kernel does not support that.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn open_many(from: BorrowedFd<'_>, path: &[u8]) -> Result<Option<OwnedFd>, Errno> {
    use rustix::fs::{ResolveFlags, openat2};

    match openat2(
        from,
        path,
        search_flags(),
        Mode::empty(),
        ResolveFlags::NO_SYMLINKS,
    ) {
        Ok(fd) => Ok(Some(fd)),
        // A seccomp filter that does not know the call returns PERM.
        Err(Errno::NOSYS | Errno::PERM) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn open_many(_: BorrowedFd<'_>, _: &[u8]) -> Result<Option<OwnedFd>, Errno> {
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use rustix::fs::{CWD, fstat, stat};

    use super::*;

    fn top(root: &Path) -> Tree {
        Tree::new(openat(CWD, root, LIST, Mode::empty()).unwrap())
    }

    #[test]
    fn tree_opens_folders_in_any_order_with_few_handles() {
        let root = tempfile::tempdir().unwrap();
        let deep = vec!["d"; 300].join("/");
        fs::create_dir_all(root.path().join(&deep)).unwrap();
        fs::create_dir_all(root.path().join("a/b")).unwrap();
        fs::create_dir_all(root.path().join("a/bc/d")).unwrap();
        let mut tree = top(root.path());
        let levels = |count: usize| vec!["d"; count].join("/");
        let down = (0..300).map(levels);
        let up = (0..300).rev().step_by(7).map(levels);
        let others = ["a/bc/d", "a/b", "", "a", "a/bc", "d/d", "a/b"].map(str::to_owned);
        for path in down.chain(others).chain(up).chain([deep]) {
            let fd = tree.open(path.as_bytes()).unwrap();
            let expected = stat(root.path().join(&path)).unwrap();
            assert_eq!(fstat(&fd).unwrap().st_ino, expected.st_ino, "{path}");
            assert!(tree.open.len() <= MAX_OPEN);
        }
    }

    #[test]
    fn tree_does_not_follow_links() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("a/b")).unwrap();
        std::os::unix::fs::symlink("a", root.path().join("link")).unwrap();
        let mut tree = top(root.path());
        for path in ["link", "link/b"] {
            assert!(tree.open(path.as_bytes()).is_err(), "{path}");
        }
        assert!(tree.open(b"a/b").is_ok());
    }
}
