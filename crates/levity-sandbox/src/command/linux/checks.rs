//! Checks that the mounts over hidden and protected paths are in place while a command runs.
//!
//! Another program can replace a file under a mount: it renames another file over it, or renames it
//! away and creates a new one. The kernel then removes the mount, or moves it along with the old
//! file. The check looks up each name in its folder, whose descriptor was opened before the command
//! started. So it does not depend on the path of the folder, which a command may have moved.
//!
//! This runs in a copy of a process with many threads, so nothing here allocates, except for
//! [`CoverChecks::new`], which the host calls.

use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Stat, StatxAttributes, StatxFlags, fstat, openat, statx,
};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::job::{Cover, CoverKind};
use crate::command::launch::{self, Sys};

/// The number of covers that are checked at each tick.
const SLICE: usize = 256;

/// The folder and the name of each cover, by its index.
#[derive(Default)]
pub(super) struct CoverChecks {
    places: Vec<Place>,
    /// Open folders. Consecutive covers share one.
    folders: Vec<OwnedFd>,
    /// The next cover to check.
    next: usize,
}

struct Place {
    path: CString,
    name: CString,
    /// The index of the open folder.
    folder: Option<usize>,
}

/// The state of the path of a cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CoverState {
    InPlace,
    /// There is a file without a mount.
    Replaced,
    Missing,
}

impl CoverChecks {
    /// Prepares the checks, with all memory that they need.
    pub(super) fn new(covers: &[Cover]) -> Self {
        let places = covers.iter().filter_map(|cover| {
            let path = Path::new(OsStr::from_bytes(cover.path.as_bytes()));
            Some(Place {
                path: CString::new(path.parent()?.as_os_str().as_bytes()).ok()?,
                name: CString::new(path.file_name()?.as_bytes()).ok()?,
                folder: None,
            })
        });
        let places: Vec<_> = places.collect();
        // A cover of the root has no folder; no workspace has one.
        let is_complete = places.len() == covers.len();
        Self {
            folders: Vec::with_capacity(places.len()),
            places: if is_complete { places } else { Vec::new() },
            next: 0,
        }
    }

    /// Opens the folders. The limit on descriptors is raised as far as possible.
    pub(super) fn open(&mut self) -> Sys<()> {
        let limit = getrlimit(Resource::Nofile);
        let raised = Rlimit {
            current: limit.maximum,
            ..limit
        };
        let _ = setrlimit(Resource::Nofile, raised);
        for at in 0..self.places.len() {
            let (before, rest) = self.places.split_at_mut(at);
            let place = &mut rest[0];
            let last = before.last().filter(|last| last.path == place.path);
            if let Some(last) = last {
                place.folder = last.folder;
                continue;
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let folder = openat(CWD, &*place.path, flags, Mode::empty())?;
            place.folder = Some(self.folders.len());
            self.folders.push(folder);
        }
        Ok(())
    }

    /// Adds the open descriptors to a list that has room for them.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = i32> {
        self.folders.iter().map(AsRawFd::as_raw_fd)
    }

    /// Closes the folders, in a process that does not check.
    pub(super) fn close(&mut self) {
        self.folders.clear();
    }

    /// Returns the covers to check at a tick: each in turn.
    pub(super) fn slice(&mut self) -> std::ops::Range<usize> {
        let start = if self.next < self.places.len() {
            self.next
        } else {
            0
        };
        let end = (start + SLICE).min(self.places.len());
        self.next = end;
        start..end
    }

    /// Returns the indices of all covers.
    pub(super) fn all(&self) -> std::ops::Range<usize> {
        0..self.places.len()
    }

    /// Returns what is at the path of a cover. Everything that cannot be inspected counts as
    /// replaced.
    pub(super) fn state(&self, at: usize) -> CoverState {
        let Some((folder, name)) = self.place(at) else {
            return CoverState::Replaced;
        };
        let root = StatxAttributes::MOUNT_ROOT;
        match statx(
            folder,
            name,
            AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT,
            StatxFlags::empty(),
        ) {
            // A kernel before 5.8 cannot tell.
            Ok(found) if !found.stx_attributes_mask.contains(root) => CoverState::InPlace,
            Ok(found) if found.stx_attributes.contains(root) => CoverState::InPlace,
            Err(Errno::NOENT) => CoverState::Missing,
            _ => CoverState::Replaced,
        }
    }

    /// Covers the new file at the path.
    pub(super) fn cover_again(&self, at: usize, kind: CoverKind, empty: &CStr) -> Sys<()> {
        let (folder, name) = self.place(at).ok_or(Errno::BADF)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let target = openat(folder, name, flags, Mode::empty())?;
        let stat = fstat(&target)?;
        mount_over(&target, &stat, kind, empty)
    }

    fn place(&self, at: usize) -> Option<(BorrowedFd<'_>, &CStr)> {
        let place = self.places.get(at)?;
        let folder = self.folders.get(place.folder?)?;
        Some((folder.as_fd(), &place.name))
    }
}

/// Mounts something over an open path, which hides or protects it.
pub(super) fn mount_over(target: &OwnedFd, stat: &Stat, kind: CoverKind, empty: &CStr) -> Sys<()> {
    let alone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let itself = alone | OpenTreeFlags::AT_EMPTY_PATH | OpenTreeFlags::AT_RECURSIVE;
    let kind_of_file = FileType::from_raw_mode(stat.st_mode);
    let tree = match kind {
        CoverKind::Pinned | CoverKind::Anchored => open_tree(target, c"", itself)?,
        // A link can only be protected.
        _ if !kind.hides() || kind_of_file == FileType::Symlink => {
            let tree = open_tree(target, c"", itself)?;
            launch::restrict_mount(tree.as_fd(), launch::MOUNT_READ_ONLY)?;
            tree
        }
        _ if kind_of_file == FileType::Directory => {
            let tree = open_tree(CWD, empty, alone)?;
            launch::restrict_mount(tree.as_fd(), launch::MOUNT_QUIET)?;
            tree
        }
        _ => {
            let tree = open_tree(CWD, c"/dev/null", alone)?;
            // A device on a mount without devices cannot be opened. If this fails, it can be
            // opened, and is empty.
            let _ = launch::restrict_mount(tree.as_fd(), launch::MOUNT_QUIET);
            tree
        }
    };
    let by_descriptor =
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(tree, c"", target, c"", by_descriptor)
}
