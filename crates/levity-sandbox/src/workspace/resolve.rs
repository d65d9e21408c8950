//! Resolves a path to a handle without ever leaving the workspace.
//!
//! If the kernel supports it, it resolves a path without links in one call. Every other path is
//! walked name by name: each folder is opened relative to the one above it, links are read and not
//! followed, and `..` returns to a handle that is already open. So the real path is known and rules
//! apply to it. Moving folders or replacing them with links during the walk does not lead out.
//!
//! ```text
//! path ─ normalize ─ rules ─ openat2 ──────────────▶ handle      (no link on the way)
//!                              └─ link or no call ─▶ walk ─▶ handle
//! ```
//!
//! The fast way is skipped if a folder is the target of a denied link: the walk then checks the
//! identity of every folder on the way, which one call of the kernel cannot.

use std::borrow::Cow;
use std::sync::Arc;

use super::change::ChangeKind;
use super::path::{MAX_DEPTH, child, normalize, split};
use super::sys::{self, Fd, Purpose, SysError};
use super::{Inner, PathError};

/// The maximum number of links on the way to a file; the kernel has the same limit.
const MAX_LINKS: u32 = 40;
/// The number of attempts if another process changes the path meanwhile.
const MAX_ATTEMPTS: u32 = 16;

/// An entry of a folder, which may or may not exist.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) dir: Arc<Fd>,
    pub(super) name: String,
    /// The real path of the entry.
    pub(super) path: String,
}

/// The result of resolving a path.
///
/// An entry is not opened yet, since callers also resolve names that do not exist.
#[derive(Debug)]
enum Resolution {
    Entry(Place),
    /// The workspace itself, or a folder that a link reaches by `..`.
    Dir(Arc<Fd>, String),
}

/// Options for resolving a path.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ResolveOptions {
    /// Follows a link that is the last name.
    pub(super) follow: bool,
    /// Creates folders that are missing.
    pub(super) parents: bool,
}

impl Inner {
    /// Returns the path relative to the workspace; fails if the path leaves it or is denied.
    pub(super) fn check<'a>(&self, path: &'a str) -> Result<Cow<'a, str>, PathError> {
        let plain = normalize(path, &[&self.root, &self.given])?;
        match self.deny.denies(&plain) || self.targets.deny(&plain) {
            true => Err(PathError::Denied(path.to_owned())),
            false => Ok(plain),
        }
    }

    /// Opens the target of a path, and returns its real path.
    pub(super) fn open(&self, path: &str, purpose: Purpose) -> Result<(Fd, String), PathError> {
        let (fd, real) = self.open_any(path, purpose)?;
        match self.targets.deny_opened(&fd) {
            true => Err(PathError::Denied(path.to_owned())),
            false => Ok((fd, real)),
        }
    }

    fn open_any(&self, path: &str, purpose: Purpose) -> Result<(Fd, String), PathError> {
        let plain = self.check(path)?;
        match self.beneath(&plain, purpose) {
            Ok(Some(fd)) => return Ok((fd, plain.into_owned())),
            Ok(None) => {}
            Err(fail) => return Err(error(path, purpose, fail)),
        }
        for _ in 0..MAX_ATTEMPTS {
            let options = ResolveOptions {
                follow: true,
                parents: false,
            };
            let opened = match self.walk(path, &plain, options)? {
                Resolution::Entry(place) => {
                    sys::open(&place.dir, &place.name, purpose).map(|fd| (fd, place.path))
                }
                Resolution::Dir(dir, real) => sys::open(&dir, ".", purpose).map(|fd| (fd, real)),
            };
            match opened {
                Ok(opened) => return Ok(opened),
                // An entry that was not a link a moment ago is a link now.
                Err(SysError::Link) => {}
                Err(fail) => return Err(error(path, purpose, fail)),
            }
        }
        Err(PathError::Busy(path.to_owned()))
    }

    /// Returns the folder of an entry and its name. The entry need not exist.
    pub(super) fn place(&self, path: &str, options: ResolveOptions) -> Result<Place, PathError> {
        let plain = self.check(path)?;
        if plain.is_empty() {
            return Err(PathError::NotAFile(path.to_owned()));
        }
        if let Some(place) = self.place_beneath(path, &plain, options)? {
            return Ok(place);
        }
        match self.walk(path, &plain, options)? {
            Resolution::Entry(place) => Ok(place),
            Resolution::Dir(..) => Err(PathError::NotAFile(path.to_owned())),
        }
    }

    /// Resolves the same in few calls, if the path contains no link.
    fn place_beneath(
        &self,
        requested: &str,
        plain: &str,
        options: ResolveOptions,
    ) -> Result<Option<Place>, PathError> {
        let (above, name) = split(plain);
        let dir = match above.is_empty() {
            true => self.dir.clone(),
            false => match self.beneath(above, Purpose::Pass) {
                Ok(Some(dir)) => Arc::new(dir),
                Ok(None) => return Ok(None),
                Err(SysError::Missing) if options.parents => return Ok(None),
                Err(fail) => return Err(error(requested, Purpose::Pass, fail)),
            },
        };
        if options.follow && matches!(sys::read_link(&dir, name), Ok(Some(_))) {
            return Ok(None);
        }
        Ok(Some(Place {
            dir,
            name: name.to_owned(),
            path: plain.to_owned(),
        }))
    }

    /// Opens a path with one kernel call; returns `None` if it contains a link or the kernel does
    /// not support the call.
    ///
    /// An error is final: the kernel reports a link on the way as such, so a walk would find
    /// nothing more.
    fn beneath(&self, plain: &str, purpose: Purpose) -> Result<Option<Fd>, SysError> {
        // Each folder on the way may be the target of a denied name.
        if !self.kernel || self.targets.have_folders() {
            return Ok(None);
        }
        match sys::beneath(&self.dir, plain, purpose) {
            Ok(fd) => Ok(Some(fd)),
            // Opening a link as a folder returns `NotDir`.
            Err(SysError::NotDir) if purpose != Purpose::Read => Ok(None),
            Err(SysError::Link | SysError::NoCall) => Ok(None),
            Err(fail) => Err(fail),
        }
    }

    /// Resolves a normalized path name by name. `requested` appears in errors.
    fn walk(
        &self,
        requested: &str,
        plain: &str,
        options: ResolveOptions,
    ) -> Result<Resolution, PathError> {
        let todo = plain
            .rsplit('/')
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect();
        let walk = Walk {
            space: self,
            requested,
            options,
            above: Vec::new(),
            todo,
            links: 0,
        };
        walk.run(self.dir.clone())
    }
}

/// The state of a walk through a path and the links in it.
struct Walk<'a> {
    space: &'a Inner,
    /// The path for error messages.
    requested: &'a str,
    options: ResolveOptions,
    /// The folders on the way to the current one, with their paths.
    above: Vec<(Arc<Fd>, String)>,
    /// The remaining names, the next one last.
    todo: Vec<String>,
    links: u32,
}

impl Walk<'_> {
    /// The names of a link's target are pushed in front of the remaining ones, so a chain of links
    /// needs no recursion. A `..` in a target returns to the handle of the folder that was entered,
    /// not to the parent that the file system reports: a folder that was moved meanwhile does not
    /// change the way back.
    fn run(mut self, root: Arc<Fd>) -> Result<Resolution, PathError> {
        let (mut dir, mut path) = (root, String::new());
        while let Some(name) = self.todo.pop() {
            if name == ".." {
                (dir, path) = self
                    .above
                    .pop()
                    .ok_or_else(|| PathError::Outside(self.requested.to_owned()))?;
                continue;
            }
            let next = child(&path, &name);
            let targets = &self.space.targets;
            if self.space.deny.denies_step(&next, &name)
                || targets.deny_step(&next)
                || targets.deny_in(&dir, &name)
            {
                return Err(PathError::Denied(self.requested.to_owned()));
            }
            if self.todo.is_empty() {
                match self.link(&dir, &name)? {
                    Some(target) => self.follow(&target)?,
                    None => {
                        return Ok(Resolution::Entry(Place {
                            dir,
                            name,
                            path: next,
                        }));
                    }
                }
            } else if let Some(inner) = self.enter(&dir, &name, &next)? {
                if self.above.len() >= MAX_DEPTH {
                    return Err(self.invalid("it leads deeper than 128 folders; use a shorter one"));
                }
                self.above.push((
                    std::mem::replace(&mut dir, inner),
                    std::mem::replace(&mut path, next),
                ));
            }
        }
        Ok(Resolution::Dir(dir, path))
    }

    /// Returns the target if the last name is a link and links are followed.
    fn link(&self, dir: &Fd, name: &str) -> Result<Option<Vec<u8>>, PathError> {
        if !self.options.follow {
            return Ok(None);
        }
        match sys::read_link(dir, name) {
            Err(SysError::Missing) => Ok(None),
            other => other.map_err(|fail| error(self.requested, Purpose::Pass, fail)),
        }
    }

    /// Opens the folder `name`; if it is a link, queues its target for the walk.
    ///
    /// Returns `None` if the entry is a link, and the walk continues with its target. A folder that
    /// is missing is created if the options say so.
    fn enter(&mut self, dir: &Fd, name: &str, path: &str) -> Result<Option<Arc<Fd>>, PathError> {
        for _ in 0..MAX_ATTEMPTS {
            match sys::open(dir, name, Purpose::Pass) {
                Ok(inner) if self.space.targets.deny_opened(&inner) => {
                    return Err(PathError::Denied(self.requested.to_owned()));
                }
                Ok(inner) => return Ok(Some(Arc::new(inner))),
                Err(SysError::Link | SysError::NotDir) => match sys::read_link(dir, name) {
                    Ok(Some(target)) => return self.follow(&target).map(|()| None),
                    Ok(None) => return Err(PathError::NotADirectory(self.requested.to_owned())),
                    Err(SysError::Missing) => {}
                    Err(fail) => return Err(error(self.requested, Purpose::Pass, fail)),
                },
                Err(SysError::Missing) if self.options.parents => match sys::make_dir(dir, name) {
                    Ok(()) => self.space.listeners.notify(path, ChangeKind::FolderCreated),
                    Err(SysError::Exists) => {}
                    Err(fail) => return Err(error(self.requested, Purpose::Pass, fail)),
                },
                Err(fail) => return Err(error(self.requested, Purpose::Pass, fail)),
            }
        }
        Err(PathError::Busy(self.requested.to_owned()))
    }

    /// Puts the names of a link's target before the remaining ones.
    ///
    /// A target that begins with `/` is refused even if it leads into the workspace: only
    /// relative targets can be checked name by name.
    fn follow(&mut self, target: &[u8]) -> Result<(), PathError> {
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(self
                .invalid("it leads through more than 40 links; use the path of the file itself"));
        }
        if target.starts_with(b"/") {
            return Err(PathError::Outside(self.requested.to_owned()));
        }
        let Ok(target) = std::str::from_utf8(target) else {
            return Err(
                self.invalid("it leads through a link whose target is not UTF-8; use another path")
            );
        };
        let names = target.rsplit('/').filter(|name| !matches!(*name, "" | "."));
        self.todo.extend(names.map(str::to_owned));
        Ok(())
    }

    fn invalid(&self, reason: &'static str) -> PathError {
        PathError::invalid(self.requested, reason)
    }
}

/// Converts the error of a system call on the way to `path`.
///
/// `purpose` decides on the word for a path that goes through a file: a reader gets "does not
/// exist", since for it nothing is there.
pub(super) fn error(path: &str, purpose: Purpose, fail: SysError) -> PathError {
    let requested = path.to_owned();
    match fail {
        SysError::Missing => PathError::NotFound(requested),
        SysError::NotDir if purpose == Purpose::Read => PathError::NotFound(requested),
        SysError::NotDir => PathError::NotADirectory(requested),
        SysError::IsDir | SysError::Special => PathError::NotAFile(requested),
        SysError::Exists => PathError::Exists(requested),
        SysError::NotEmpty => PathError::NotEmpty(requested),
        SysError::Link => PathError::Busy(requested),
        SysError::TooLong => PathError::invalid(
            path,
            "a name in it is too long for the file system; use a shorter one",
        ),
        SysError::NoCall => PathError::Io {
            path: requested,
            source: std::io::ErrorKind::Unsupported.into(),
        },
        SysError::Other(source) => PathError::Io {
            path: requested,
            source,
        },
    }
}
