//! Files that are added to a workspace while commands run, so that no command can create them.
//!
//! A mount protects an existing file. Git also executes programs named in files that usually do not
//! exist: `commondir`, for instance, names the folder with the settings and hooks. So each missing
//! file is created, protected like the others, and removed when the last command of this process
//! has ended. If that process is killed, they remain, and change nothing for git.
//!
//! The same protects paths that the owner of the workspace reserves, such as settings that do not
//! exist yet.

use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, fstat, mkdirat, openat, statat, unlinkat};
use rustix::io::{Errno, read, write};

use super::hide::join;
use super::job::{Cover, CoverKind, Identity};
use crate::Workspace;
use crate::workspace::Tree;

/// The path of the file's own folder, in a spelling that no one else would use.
const ITSELF: &[u8] = b"./././.\n";

/// The maximum number of placeholders in a repository.
pub(super) const MAX_PER_REPOSITORY: usize = 4;

/// The maximum length of settings that are inspected.
const MAX_CONFIG: usize = 64 << 10;

/// The placeholders for running commands, and the number of commands that use each.
static HELD: Mutex<Option<HashMap<Key, usize>>> = Mutex::new(None);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    workspace: PathBuf,
    /// The folder, relative to the workspace.
    repository: Vec<u8>,
    name: String,
}

/// The placeholders that were added to repositories for one command.
#[derive(Debug, Default)]
pub(super) struct Placeholders(Vec<Key>);

impl Placeholders {
    /// Creates the missing files in repositories, and adds covers for them. A repository to which
    /// nothing can be added is protected as a whole.
    pub(super) fn put_into(
        &mut self,
        workspace: &Workspace,
        repositories: &[Vec<u8>],
    ) -> Vec<Cover> {
        let mut covers = Vec::new();
        let Some(mut tree) = tree(workspace) else {
            return covers;
        };
        for repository in repositories {
            // If it was moved, its other covers are missed as well.
            let Ok(folder) = tree.open(repository) else {
                continue;
            };
            if self
                .fill(workspace, repository, &folder, &mut covers)
                .is_err()
                && let Ok(stat) = fstat(&folder)
            {
                covers.extend(cover(workspace, repository, Identity::of(&stat)));
            }
        }
        covers
    }

    /// Creates the reserved files that are missing, and adds covers for them. A path whose folder
    /// is missing, or not writable, stays without protection.
    pub(super) fn reserve(&mut self, workspace: &Workspace) -> Vec<Cover> {
        let mut covers = Vec::new();
        let Some(mut tree) = tree(workspace) else {
            return covers;
        };
        for path in workspace.reserved() {
            let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
            // A link in the path may lead anywhere, and `open` follows none.
            if let Ok(folder) = tree.open(above.as_bytes()) {
                let _ = self.add(workspace, above.as_bytes(), &folder, name, &mut covers);
            }
        }
        covers
    }

    fn fill(
        &mut self,
        workspace: &Workspace,
        repository: &[u8],
        folder: &OwnedFd,
        covers: &mut Vec<Cover>,
    ) -> Result<(), Errno> {
        // This check must precede the placeholder for the settings.
        let more = has_worktree_settings(folder).then_some("config.worktree");
        for name in ["hooks", "config", "commondir"].into_iter().chain(more) {
            self.add(workspace, repository, folder, name, covers)?;
        }
        Ok(())
    }

    /// Creates one missing file, or shares it with other commands, and adds a cover for it.
    fn add(
        &mut self,
        workspace: &Workspace,
        repository: &[u8],
        folder: &OwnedFd,
        name: &str,
        covers: &mut Vec<Cover>,
    ) -> Result<(), Errno> {
        let key = Key {
            workspace: workspace.root().to_owned(),
            repository: repository.to_vec(),
            name: name.to_owned(),
        };
        {
            let mut held = held();
            let held = held.get_or_insert_default();
            if let Some(count) = held.get_mut(&key) {
                *count += 1;
            } else if make(folder, name)? || is_left_behind(folder, name) {
                held.insert(key.clone(), 1);
            } else {
                // There is a file of the user.
                return Ok(());
            }
        }
        self.0.push(key);
        let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        covers.extend(cover(
            workspace,
            &join(repository, name.as_bytes()),
            Identity::of(&stat),
        ));
        Ok(())
    }
}

impl Drop for Placeholders {
    fn drop(&mut self) {
        let mut held = held();
        let held = held.get_or_insert_default();
        for key in &self.0 {
            let Some(count) = held.get_mut(key) else {
                continue;
            };
            *count -= 1;
            if *count == 0 {
                held.remove(key);
                remove(key);
            }
        }
    }
}

fn held() -> MutexGuard<'static, Option<HashMap<Key, usize>>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

fn tree(workspace: &Workspace) -> Option<Tree> {
    top(workspace.root().as_os_str()).map(Tree::new)
}

fn top(root: &OsStr) -> Option<OwnedFd> {
    openat(
        CWD,
        root,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .ok()
}

fn cover(workspace: &Workspace, path: &[u8], identity: Identity) -> Option<Cover> {
    let path = workspace.root().join(OsStr::from_bytes(path));
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    Some(Cover {
        kind: CoverKind::Fixed,
        path,
        identity,
    })
}

/// Creates a file or folder; returns `false` if the name is taken.
fn make(folder: &OwnedFd, name: &str) -> Result<bool, Errno> {
    let made = match name {
        "hooks" => mkdirat(folder, name, Mode::from_raw_mode(0o755)),
        _ => {
            let flags =
                OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let text = if name == "commondir" { ITSELF } else { b"" };
            // Such a short text is written in one call.
            // Git's files have the usual mode; others may hold secrets.
            let mode = if is_of_git(name) { 0o644 } else { 0o600 };
            openat(folder, name, flags, Mode::from_raw_mode(mode))
                .and_then(|file| write(file, text).map(drop))
        }
    };
    match made {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns `true` if a killed process left it behind.
fn is_left_behind(folder: &OwnedFd, name: &str) -> bool {
    name == "commondir" && text(folder, name, ITSELF.len() + 1).is_some_and(|text| text == ITSELF)
}

fn remove(key: &Key) {
    let folder =
        top(key.workspace.as_os_str()).and_then(|top| Tree::new(top).open(&key.repository).ok());
    let Some(folder) = folder else { return };
    let is_unchanged = match &*key.name {
        // A folder that is not empty is not removed.
        "hooks" => {
            let _ = unlinkat(&folder, "hooks", AtFlags::REMOVEDIR);
            return;
        }
        // Another process may use it since, and would write to a removed file.
        log if log.ends_with("-wal") => false,
        "commondir" => is_left_behind(&folder, "commondir"),
        name => text(&folder, name, 1).is_some_and(|text| text.is_empty()),
    };
    if is_unchanged {
        let _ = unlinkat(&folder, &*key.name, AtFlags::empty());
    }
}

/// Returns `true` if the settings may refer to more of them in `config.worktree`.
fn has_worktree_settings(folder: &OwnedFd) -> bool {
    let Some(text) = text(folder, "config", MAX_CONFIG) else {
        return true;
    };
    let text = text.to_ascii_lowercase();
    text.len() == MAX_CONFIG
        || text.windows(14).any(|part| part == b"worktreeconfig")
        || has_include(&text)
}

fn is_of_git(name: &str) -> bool {
    matches!(name, "hooks" | "config" | "commondir" | "config.worktree")
}

/// Returns `true` if settings include other files with settings.
fn has_include(text: &[u8]) -> bool {
    text.windows(8).any(|part| part == b"[include")
}

/// Reads the beginning of a regular file.
fn text(folder: &OwnedFd, name: &str, max: usize) -> Option<Vec<u8>> {
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
