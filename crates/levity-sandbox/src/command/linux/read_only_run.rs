//! The rights of a read-only command, as a Landlock ruleset that is created for one run.
//!
//! Landlock allows and never forbids, so the workspace is allowed in parts. A folder without hidden
//! entries is allowed as a whole. For any other folder, its names and each entry that is not hidden
//! are allowed.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use landlock::{AccessFs, BitFlags};
use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;

use super::hide::{SearchResult, join};
use super::job::Identity;
use super::places::Places;
use crate::Workspace;
use crate::command::launch;
use crate::command::private::{PrivateFolder, RunFolder};
use crate::workspace::{Tree, is_name_of_git};

/// The maximum number of rules of a ruleset. A workspace that needs more is refused.
const MAX_RULES: usize = 20_000;

const OPEN: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const LIST: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// A read-only run: its rights, and the folder for its temporary files.
#[derive(Debug)]
pub(super) struct ReadOnlyRun {
    pub(super) ruleset: OwnedFd,
    pub(super) temp: RunFolder,
}

/// The reason why a read-only run is refused.
#[derive(Debug)]
pub(super) enum Refusal {
    TooManyRules,
    NoLandlock,
    Failed(io::Error),
}

impl From<Errno> for Refusal {
    fn from(error: Errno) -> Self {
        Self::Failed(error.into())
    }
}

impl ReadOnlyRun {
    /// Computes the rights of a run. `private` is the sandbox's own folder.
    pub(super) fn new(
        workspace: &Workspace,
        places: &Places,
        private: &Path,
        found: &SearchResult,
    ) -> Result<Self, Refusal> {
        let temp = PrivateFolder::run_folder(private).map_err(Refusal::Failed)?;
        let ruleset = places
            .bare_ruleset(temp.path())
            .ok_or(Refusal::NoLandlock)?;
        let mut rules = Rules {
            ruleset: ruleset.as_fd(),
            remaining: MAX_RULES,
        };
        let empty = private.join("empty");
        let elsewhere: Vec<PathBuf> = found
            .elsewhere
            .iter()
            .map(|it| OsStr::from_bytes(it.path.as_bytes()).into())
            .collect();
        for (place, runs) in &places.readable {
            // Most systems have only some of them, and a place that was removed meanwhile is not
            // needed.
            let Ok(real) = place.canonicalize() else {
                continue;
            };
            let access = if *runs {
                read() | AccessFs::Execute
            } else {
                read()
            };
            // The empty folder is the only allowed one of the sandbox's own.
            let mut own = vec![workspace.root()];
            own.extend((real != empty).then_some(private));
            own.extend(elsewhere.iter().map(PathBuf::as_path));
            rules.allow_around(&real, access, &own, found)?;
        }
        rules.allow_workspace(workspace, found)?;
        Ok(Self { ruleset, temp })
    }
}

fn read() -> BitFlags<AccessFs> {
    AccessFs::ReadFile | AccessFs::ReadDir
}

struct Rules<'a> {
    ruleset: BorrowedFd<'a>,
    remaining: usize,
}

impl Rules<'_> {
    fn allow(&mut self, place: impl AsFd, access: BitFlags<AccessFs>) -> Result<(), Refusal> {
        self.remaining = self.remaining.checked_sub(1).ok_or(Refusal::TooManyRules)?;
        Ok(launch::landlock_allow(
            self.ruleset,
            place.as_fd(),
            access.bits(),
        )?)
    }

    /// Allows an open folder with everything in it, or an open file.
    fn allow_opened(&mut self, fd: &OwnedFd, access: BitFlags<AccessFs>) -> Result<(), Refusal> {
        match FileType::from_raw_mode(fstat(fd)?.st_mode) {
            FileType::Directory => self.allow(fd, access),
            // Landlock refuses rights for files that only folders have.
            FileType::RegularFile => self.allow(fd, access & !BitFlags::from(AccessFs::ReadDir)),
            _ => Ok(()),
        }
    }

    /// Allows a place, except for paths in one of `except`. If one of them is in the place,
    /// everything around it is allowed.
    fn allow_around(
        &mut self,
        place: &Path,
        access: BitFlags<AccessFs>,
        except: &[&Path],
        found: &SearchResult,
    ) -> Result<(), Refusal> {
        let mut pending: Vec<PathBuf> = vec![place.to_owned()];
        while let Some(place) = pending.pop() {
            if except.iter().any(|except| place.starts_with(except)) {
                continue;
            }
            if !except.iter().any(|except| except.starts_with(&place)) {
                match openat(CWD, &place, OPEN, Mode::empty()) {
                    // A mount gives a folder of the workspace another path.
                    Ok(fd) if found.searched.contains(&Identity::of(&fstat(&fd)?)) => {}
                    Ok(fd) => self.allow_opened(&fd, access)?,
                    Err(Errno::NOENT | Errno::ACCESS) => {}
                    Err(error) => return Err(error.into()),
                }
                continue;
            }
            self.allow(
                openat(CWD, &place, OPEN, Mode::empty())?,
                AccessFs::ReadDir.into(),
            )?;
            for entry in place.read_dir().map_err(Refusal::Failed)? {
                if pending.len() > self.remaining {
                    return Err(Refusal::TooManyRules);
                }
                pending.push(entry.map_err(Refusal::Failed)?.path());
            }
        }
        Ok(())
    }

    fn allow_workspace(
        &mut self,
        workspace: &Workspace,
        found: &SearchResult,
    ) -> Result<(), Refusal> {
        let root = openat(
            CWD,
            workspace.root(),
            LIST & !OFlags::NOFOLLOW,
            Mode::empty(),
        )?;
        let root_path = workspace.root().as_os_str().as_bytes();
        let above = root_path.strip_suffix(b"/").unwrap_or(root_path).len() + 1;
        let is_git = |path: &[u8]| path == b".git" || path.ends_with(b"/.git");
        // Hidden paths, and the folders above them, both relative to the workspace.
        let mut hidden: HashSet<&[u8]> = found.repositories.iter().map(Vec::as_slice).collect();
        let mut secrets = HashSet::new();
        for cover in &found.covers {
            let path = cover.path.as_bytes().get(above..).unwrap_or_default();
            if cover.kind.hides() || is_git(path) {
                hidden.insert(path);
                secrets.insert(cover.identity);
            }
        }
        if hidden.is_empty() && found.shared.is_empty() {
            return self.allow(root, read());
        }
        let mut parted: HashSet<&[u8]> = hidden.iter().copied().flat_map(folders_above).collect();
        for shared in &found.shared {
            parted.extend(folders_above(shared).chain([&**shared]));
        }
        let is_hidden = |path| {
            folders_above(path)
                .chain([path])
                .any(|folder| hidden.contains(folder))
        };
        let mut parts: Vec<&[u8]> = parted
            .iter()
            .copied()
            .filter(|folder| !is_hidden(folder))
            .collect();
        // Each is opened from the one before it, as far as they share the folders above them.
        parts.sort_unstable();
        let mut tree = Tree::new(root);
        for folder in parts {
            // A folder that no longer exists needs no rule.
            let Ok(fd) = tree.open(folder) else { continue };
            if !found.searched.contains(&Identity::of(&fstat(&fd)?)) {
                continue;
            }
            self.allow(&fd, AccessFs::ReadDir.into())?;
            let text = String::from_utf8_lossy(folder).into_owned();
            let is_shared = found.shared.contains(folder);
            for entry in Dir::read_from(&fd)? {
                let entry = entry?;
                let name = entry.file_name().to_bytes();
                let path = join(folder, name);
                let lossy = String::from_utf8_lossy(name);
                let is_denied =
                    workspace.denies_entry(&text, &lossy) || is_shared && is_name_of_git(&lossy);
                if matches!(name, b"." | b"..")
                    || hidden.contains(&*path)
                    || parted.contains(&*path)
                    || is_denied
                {
                    continue;
                }
                let Ok(child) = openat(&fd, entry.file_name(), OPEN, Mode::empty()) else {
                    continue;
                };
                let stat = fstat(&child)?;
                let identity = Identity::of(&stat);
                // Only entries that the search saw are allowed: another file may have the name by
                // now.
                let is_known = match FileType::from_raw_mode(stat.st_mode) {
                    FileType::Directory => found.searched.contains(&identity),
                    _ => !secrets.contains(&identity),
                };
                if is_known {
                    self.allow_opened(&child, read())?;
                }
            }
        }
        Ok(())
    }
}

/// Returns the folders above a path that is relative to the workspace, and the workspace itself.
fn folders_above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = path
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'/')
        .map(|(end, _)| end);
    ends.chain([0]).map(|end| &path[..end])
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::hide;
    use super::*;

    /// Returns `true` if a workspace with these files needs no more rules than this.
    fn fits(names: &[&str], rules: usize) -> bool {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let workspace = Workspace::open(folder.path()).unwrap();
        let found = hide::search(
            &workspace,
            &crate::command::linux::search_limit::unlimited(),
        )
        .unwrap();
        let created =
            landlock::RulesetAttr::handle_access(landlock::Ruleset::default(), read()).unwrap();
        let ruleset: Option<OwnedFd> = created.create().unwrap().into();
        // Without Landlock, nothing can be counted.
        let Some(ruleset) = ruleset else { return true };
        let mut rules = Rules {
            ruleset: ruleset.as_fd(),
            remaining: rules,
        };
        match rules.allow_workspace(&workspace, &found) {
            Ok(()) => rules.remaining == 0,
            Err(Refusal::TooManyRules) => false,
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn ruleset_needs_rule_per_entry_only_for_folders_with_denied_files() {
        assert!(fits(&["a", "b", "sub/c"], 1));
        // The folder, and `a`, `b` and `sub`.
        assert!(fits(&["a", "b", ".env", "sub/c"], 4));
        // Two folders, and `a`, `b` and `sub/c`.
        assert!(fits(&["a", "b", "sub/.env", "sub/c"], 5));
        assert!(fits(&["a", ".git/config", ".git/x.key", "sub/.ssh/c"], 3));
        if launch::landlock_abi() > 0 {
            assert!(!fits(&["a", "b", ".env"], 2));
        }
    }
}
