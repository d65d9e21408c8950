//! The files that decide which programs git runs, wherever links and pointers lead to them.
//!
//! For a `.git`, git reads up to three places: the folder to which a `.git` link or file leads, the
//! folder that the file `commondir` in it names, and the targets of links such as `.git/config`.
//! This module finds all of them, and every link on the way: whoever replaces such a link chooses
//! another file. File tools are denied what is found, and the search before a command protects it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat, readlinkat};
use rustix::io::Errno;

use super::Inner;
use super::fold::Spellings;
use super::targets::DeniedTo;

/// Entries of a repository that determine which programs git executes, or where git searches for
/// that setting.
pub(crate) const CONTROL_FILES: [&str; 5] =
    ["hooks", "config", "config.worktree", "commondir", "gitdir"];

/// The other names that git and its extensions use in the folder of a repository, in lower case.
const OTHER_NAMES: &[&str] = &[
    "annex",
    "auto_merge",
    "branches",
    "description",
    "gc.log",
    "gc.pid",
    "head",
    "index",
    "info",
    "lfs",
    "logs",
    "lost-found",
    "merge_mode",
    "merge_rr",
    "modules",
    "objects",
    "packed-refs",
    "rebase-apply",
    "rebase-merge",
    "refs",
    "reftable",
    "remotes",
    "rr-cache",
    "sequencer",
    "shallow",
    "svn",
    "worktrees",
];

/// The maximum number of links on the way to a file; the kernel has the same limit.
const MAX_LINKS: usize = 40;

/// The maximum length of a file that names a repository, which is that of git.
const MAX_POINTER: u64 = 1 << 20;

/// Returns `true` if git uses an entry with this name in the folder of a repository. Other entries
/// of a bare repository may be working trees.
pub(crate) fn is_name_of_git(name: &str) -> bool {
    Spellings::of(name).iter().any(|name| {
        let name = name.strip_suffix(".lock").unwrap_or(name);
        CONTROL_FILES.contains(&name)
            || OTHER_NAMES.contains(&name)
            || name.ends_with("_head")
            || name.ends_with("_msg")
            || name.ends_with("_editmsg")
            || name.starts_with("bisect_")
            || name.starts_with("sharedindex.")
            || name.starts_with("fsmonitor--daemon")
    })
}

/// Returns `true` if a folder looks like a bare repository. Its `HEAD` does not matter: git could
/// use the folder again as soon as there is one.
pub(crate) fn is_bare(folder: &Path) -> bool {
    ["objects", "refs"]
        .iter()
        .all(|name| folder.join(name).is_dir())
}

/// The type of what a trail leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(all(feature = "commands", target_os = "linux")), allow(dead_code))]
pub(crate) enum TrailEnd {
    /// A repository, which git must be able to change.
    Repository,
    /// A folder with hooks.
    Hooks,
    /// A file that git reads or executes.
    File,
}

/// The way from a link or a pointer to its target. All paths are absolute and without links.
#[derive(Debug)]
#[cfg_attr(not(all(feature = "commands", target_os = "linux")), allow(dead_code))]
pub(crate) struct Trail {
    pub(crate) leads_to: TrailEnd,
    /// The links on the way.
    pub(crate) links: Vec<PathBuf>,
    /// The folders on the way that `..` leaves again. A link in place of one changes the way.
    pub(crate) left: Vec<PathBuf>,
    pub(crate) end: PathBuf,
    /// The first path on the way that does not exist.
    pub(crate) missing: Option<PathBuf>,
}

impl Trail {
    /// Follows `target` from `base`, a path without links, name by name.
    ///
    /// # Errors
    /// Returns an error if the kernel could not follow it either.
    fn follow(base: &Path, target: &[u8], leads_to: TrailEnd) -> Result<Self, Errno> {
        let mut trail = Self {
            leads_to,
            links: Vec::new(),
            left: Vec::new(),
            end: base.to_owned(),
            missing: None,
        };
        let mut remaining: Vec<OsString> = Vec::new();
        trail.enter(target, &mut remaining);
        while let Some(name) = remaining.pop() {
            if name == ".." {
                if !base.starts_with(&trail.end) {
                    trail.left.push(trail.end.clone());
                }
                trail.end.pop();
                continue;
            }
            let next = trail.end.join(&name);
            if trail.missing.is_none() {
                match readlinkat(CWD, &next, Vec::new()) {
                    Ok(target) => {
                        trail.links.push(next);
                        if trail.links.len() > MAX_LINKS {
                            return Err(Errno::LOOP);
                        }
                        trail.enter(target.to_bytes(), &mut remaining);
                        continue;
                    }
                    // It is not a link.
                    Err(Errno::INVAL) => {}
                    Err(Errno::NOENT) => trail.missing = Some(next.clone()),
                    Err(error) => return Err(error),
                }
            }
            trail.end = next;
        }
        Ok(trail)
    }

    /// Puts the names of a path before the remaining ones.
    fn enter(&mut self, path: &[u8], remaining: &mut Vec<OsString>) {
        if path.starts_with(b"/") {
            self.end = PathBuf::from("/");
        }
        let names = path
            .rsplit(|byte| *byte == b'/')
            .filter(|name| !matches!(*name, b"" | b"."));
        remaining.extend(names.map(|name| OsString::from_vec(name.to_vec())));
    }
}

/// The places to which a `.git` or a repository leads.
#[derive(Debug, Default)]
pub(crate) struct GitPlaces {
    /// Folders that git uses as repositories, by their real paths.
    pub(crate) repositories: Vec<PathBuf>,
    pub(crate) trails: Vec<Trail>,
}

impl GitPlaces {
    /// Adds a repository, if it is a folder.
    fn add_repository(&mut self, trail: Trail) {
        if trail.missing.is_none() && trail.end.is_dir() {
            self.repositories.push(trail.end.clone());
        }
        self.trails.push(trail);
    }
}

/// A check that is made before each link is followed, because one link may lead through thousands
/// of folders.
type Check<'a> = &'a dyn Fn() -> io::Result<()>;

impl Inner {
    /// Finds the repository to which a `.git` link or file leads, and denies it to file tools. Git
    /// itself must reach the repository.
    ///
    /// # Errors
    /// Returns the error of `check`.
    pub(super) fn record_git(&self, git: &Path, check: Check<'_>) -> io::Result<GitPlaces> {
        check()?;
        let places = places_of_git(git);
        for repository in &places.repositories {
            // A working tree in the repository is not denied with it.
            let denied_to = match git.starts_with(repository) {
                true => DeniedTo::FileToolsInPart,
                false => DeniedTo::FileTools,
            };
            let _ = self.record_real_target(repository, denied_to);
        }
        self.record_trails(&places.trails);
        Ok(places)
    }

    /// Finds the folder that `commondir` in a repository names, and the targets of links among the
    /// files that decide which programs git runs. Denies them to file tools.
    ///
    /// # Errors
    /// Returns the error of `check`.
    pub(super) fn record_repository(
        &self,
        repository: &Path,
        check: Check<'_>,
    ) -> io::Result<GitPlaces> {
        let places = places_of_repository(repository, check)?;
        // Working trees may be next to the files of a bare repository.
        for common in &places.repositories {
            let _ = self.record_real_target(common, DeniedTo::FileToolsInPart);
        }
        self.record_trails(&places.trails);
        Ok(places)
    }

    /// Denies the links on the way to file tools, and what they lead to.
    fn record_trails(&self, trails: &[Trail]) {
        for trail in trails {
            trail.links.iter().for_each(|link| self.deny_path(link));
            if trail.leads_to != TrailEnd::Repository {
                let _ = self.record_real_target(&trail.end, DeniedTo::FileTools);
                self.deny_path(&trail.end);
            }
        }
    }
}

fn places_of_git(git: &Path) -> GitPlaces {
    let mut places = GitPlaces::default();
    let (Some(folder), Some(name)) = (git.parent(), git.file_name()) else {
        return places;
    };
    let Ok(mut trail) = Trail::follow(folder, name.as_bytes(), TrailEnd::Repository) else {
        return places;
    };
    if trail.missing.is_some() || trail.end.is_dir() {
        places.add_repository(trail);
        return places;
    }
    let pointer = read(&trail.end);
    if !trail.links.is_empty() {
        trail.leads_to = TrailEnd::File;
        places.trails.push(trail);
    }
    let target = pointer
        .as_deref()
        .and_then(|it| it.strip_prefix(b"gitdir: "));
    // Git starts in the folder of the link, even if the file is elsewhere.
    let trail = target.and_then(|it| Trail::follow(folder, path_in(it), TrailEnd::Repository).ok());
    if let Some(trail) = trail {
        places.add_repository(trail);
    }
    places
}

fn places_of_repository(repository: &Path, check: Check<'_>) -> io::Result<GitPlaces> {
    let mut places = GitPlaces::default();
    let follow = |folder: &Path, path: &[u8], leads_to| {
        check()?;
        Ok::<_, io::Error>(Trail::follow(folder, path, leads_to).ok())
    };
    for name in CONTROL_FILES {
        let path = repository.join(name);
        let Ok(meta) = fs::symlink_metadata(&path) else {
            continue;
        };
        let mut real = path;
        if meta.is_symlink() {
            let leads_to = match name {
                "hooks" => TrailEnd::Hooks,
                _ => TrailEnd::File,
            };
            let Some(trail) = follow(repository, name.as_bytes(), leads_to)? else {
                continue;
            };
            real = trail.end.clone();
            places.trails.push(trail);
        }
        if name == "commondir" {
            let target = read(&real);
            let target = target.as_deref().map(path_in);
            if let Some(target) = target
                && let Some(trail) = follow(repository, target, TrailEnd::Repository)?
                && trail.end != repository
            {
                places.add_repository(trail);
            }
        } else if name == "hooks" {
            // Git executes the target of a link in it.
            for link in fs::read_dir(&real).into_iter().flatten().flatten() {
                if link.file_type().is_ok_and(|it| it.is_symlink()) {
                    let name = link.file_name();
                    places
                        .trails
                        .extend(follow(&real, name.as_bytes(), TrailEnd::File)?);
                }
            }
        }
    }
    Ok(places)
}

/// Reads a file that contains a path. If it is not a regular file, opening it does not block.
fn read(path: &Path) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = fs::File::from(openat(CWD, path, flags, Mode::empty()).ok()?);
    let mut bytes = Vec::new();
    let is_file = file.metadata().ok()?.is_file();
    (is_file && file.take(MAX_POINTER).read_to_end(&mut bytes).is_ok()).then_some(bytes)
}

/// Returns the path in the text of a file as git reads it: up to the first zero byte, and without
/// line breaks at its end. All other white space belongs to the path.
fn path_in(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| !b"\r\n".contains(byte));
    let text = &text[..end.map_or(0, |end| end + 1)];
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}

pub(super) fn os_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}
