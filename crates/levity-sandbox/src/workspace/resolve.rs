//! Resolves a path to a handle without ever leaving the workspace.
//!
//! If the kernel supports it, it resolves a path without links in one call. Every other path is
//! walked name by name: each folder is opened relative to the one above it, links are read and not
//! followed, and `..` returns to a handle that is already open. So the real path is known and rules
//! apply to it. Moving folders or replacing them with links during the walk does not lead out.

use std::borrow::Cow;
use std::sync::Arc;

use super::change::ChangeKind;
use super::path::{MAX_DEPTH, child, normal, split};
use super::sys::{self, Fail, Fd, Want};
use super::{Inner, PathError};

/// The maximum number of links on the way to a file; the kernel has the same limit.
const MAX_LINKS: u32 = 40;
/// The number of attempts if another process changes the path meanwhile.
const TRIES: u32 = 16;

/// An entry of a folder, which may or may not exist.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) dir: Arc<Fd>,
    pub(super) name: String,
    /// The real path of the entry.
    pub(super) path: String,
}

/// The result of resolving a path.
#[derive(Debug)]
enum Spot {
    Entry(Place),
    /// The workspace itself, or a folder that a link reaches by `..`.
    Dir(Arc<Fd>, String),
}

/// Options for resolving a path.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Way {
    /// Follows a link that is the last name.
    pub(super) follow: bool,
    /// Creates folders that are missing.
    pub(super) parents: bool,
}

impl Inner {
    /// Returns the path relative to the workspace; fails if the path leaves it or is denied.
    pub(super) fn check<'a>(&self, path: &'a str) -> Result<Cow<'a, str>, PathError> {
        let plain = normal(path, &[&self.root, &self.given])?;
        match self.deny.denies(&plain) || self.targets.deny(&plain) {
            true => Err(PathError::Denied(path.to_owned())),
            false => Ok(plain),
        }
    }

    /// Opens the target of a path, and returns its real path.
    pub(super) fn open(&self, path: &str, want: Want) -> Result<(Fd, String), PathError> {
        let (fd, real) = self.open_any(path, want)?;
        match self.targets.deny_opened(&fd) {
            true => Err(PathError::Denied(path.to_owned())),
            false => Ok((fd, real)),
        }
    }

    fn open_any(&self, path: &str, want: Want) -> Result<(Fd, String), PathError> {
        let plain = self.check(path)?;
        match self.beneath(&plain, want) {
            Ok(Some(fd)) => return Ok((fd, plain.into_owned())),
            Ok(None) => {}
            Err(fail) => return Err(error(path, want, fail)),
        }
        for _ in 0..TRIES {
            let way = Way {
                follow: true,
                parents: false,
            };
            let opened = match self.walk(path, &plain, way)? {
                Spot::Entry(place) => {
                    sys::open(&place.dir, &place.name, want).map(|fd| (fd, place.path))
                }
                Spot::Dir(dir, real) => sys::open(&dir, ".", want).map(|fd| (fd, real)),
            };
            match opened {
                Ok(opened) => return Ok(opened),
                // An entry that was not a link a moment ago is a link now.
                Err(Fail::Link) => {}
                Err(fail) => return Err(error(path, want, fail)),
            }
        }
        Err(PathError::Busy(path.to_owned()))
    }

    /// Returns the folder of an entry and its name. The entry need not exist.
    pub(super) fn place(&self, path: &str, way: Way) -> Result<Place, PathError> {
        let plain = self.check(path)?;
        if plain.is_empty() {
            return Err(PathError::NotAFile(path.to_owned()));
        }
        if let Some(place) = self.place_beneath(path, &plain, way)? {
            return Ok(place);
        }
        match self.walk(path, &plain, way)? {
            Spot::Entry(place) => Ok(place),
            Spot::Dir(..) => Err(PathError::NotAFile(path.to_owned())),
        }
    }

    /// Resolves the same in few calls, if the path contains no link.
    fn place_beneath(
        &self,
        asked: &str,
        plain: &str,
        way: Way,
    ) -> Result<Option<Place>, PathError> {
        let (above, name) = split(plain);
        let dir = match above.is_empty() {
            true => self.dir.clone(),
            false => match self.beneath(above, Want::Pass) {
                Ok(Some(dir)) => Arc::new(dir),
                Ok(None) => return Ok(None),
                Err(Fail::Missing) if way.parents => return Ok(None),
                Err(fail) => return Err(error(asked, Want::Pass, fail)),
            },
        };
        if way.follow && matches!(sys::read_link(&dir, name), Ok(Some(_))) {
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
    fn beneath(&self, plain: &str, want: Want) -> Result<Option<Fd>, Fail> {
        // Each folder on the way may be the target of a denied name.
        if !self.kernel || self.targets.have_folders() {
            return Ok(None);
        }
        match sys::beneath(&self.dir, plain, want) {
            Ok(fd) => Ok(Some(fd)),
            // Opening a link as a folder returns `NotDir`.
            Err(Fail::NotDir) if want != Want::Read => Ok(None),
            Err(Fail::Link | Fail::NoCall) => Ok(None),
            Err(fail) => Err(fail),
        }
    }

    fn walk(&self, asked: &str, plain: &str, way: Way) -> Result<Spot, PathError> {
        let todo = plain
            .rsplit('/')
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect();
        let walk = Walk {
            space: self,
            asked,
            way,
            above: Vec::new(),
            todo,
            links: 0,
        };
        walk.go(self.dir.clone())
    }
}

struct Walk<'a> {
    space: &'a Inner,
    /// The path for error messages.
    asked: &'a str,
    way: Way,
    /// The folders on the way to the current one, with their paths.
    above: Vec<(Arc<Fd>, String)>,
    /// The remaining names, the next one last.
    todo: Vec<String>,
    links: u32,
}

impl Walk<'_> {
    fn go(mut self, root: Arc<Fd>) -> Result<Spot, PathError> {
        let (mut dir, mut path) = (root, String::new());
        while let Some(name) = self.todo.pop() {
            if name == ".." {
                (dir, path) = self
                    .above
                    .pop()
                    .ok_or_else(|| PathError::Outside(self.asked.to_owned()))?;
                continue;
            }
            let next = child(&path, &name);
            if self.space.deny.denies_step(&next, &name) || self.space.targets.deny_step(&next) {
                return Err(PathError::Denied(self.asked.to_owned()));
            }
            if self.todo.is_empty() {
                match self.link(&dir, &name)? {
                    Some(target) => self.follow(&target)?,
                    None => {
                        return Ok(Spot::Entry(Place {
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
        Ok(Spot::Dir(dir, path))
    }

    /// Returns the target if the last name is a link and links are followed.
    fn link(&self, dir: &Fd, name: &str) -> Result<Option<Vec<u8>>, PathError> {
        if !self.way.follow {
            return Ok(None);
        }
        match sys::read_link(dir, name) {
            Err(Fail::Missing) => Ok(None),
            other => other.map_err(|fail| error(self.asked, Want::Pass, fail)),
        }
    }

    /// Opens the folder `name`; if it is a link, queues its target for the walk.
    fn enter(&mut self, dir: &Fd, name: &str, path: &str) -> Result<Option<Arc<Fd>>, PathError> {
        for _ in 0..TRIES {
            match sys::open(dir, name, Want::Pass) {
                Ok(inner) if self.space.targets.deny_opened(&inner) => {
                    return Err(PathError::Denied(self.asked.to_owned()));
                }
                Ok(inner) => return Ok(Some(Arc::new(inner))),
                Err(Fail::Link | Fail::NotDir) => match sys::read_link(dir, name) {
                    Ok(Some(target)) => return self.follow(&target).map(|()| None),
                    Ok(None) => return Err(PathError::NotADirectory(self.asked.to_owned())),
                    Err(Fail::Missing) => {}
                    Err(fail) => return Err(error(self.asked, Want::Pass, fail)),
                },
                Err(Fail::Missing) if self.way.parents => match sys::make_dir(dir, name) {
                    Ok(()) => self.space.listeners.tell(path, ChangeKind::FolderMade),
                    Err(Fail::Exists) => {}
                    Err(fail) => return Err(error(self.asked, Want::Pass, fail)),
                },
                Err(fail) => return Err(error(self.asked, Want::Pass, fail)),
            }
        }
        Err(PathError::Busy(self.asked.to_owned()))
    }

    /// Puts the names of a link's target before the remaining ones.
    fn follow(&mut self, target: &[u8]) -> Result<(), PathError> {
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(self
                .invalid("it leads through more than 40 links; use the path of the file itself"));
        }
        if target.starts_with(b"/") {
            return Err(PathError::Outside(self.asked.to_owned()));
        }
        let Ok(target) = std::str::from_utf8(target) else {
            return Err(self.invalid(
                "it leads through a link whose target is not UTF-8; use \
                another path",
            ));
        };
        let names = target.rsplit('/').filter(|name| !matches!(*name, "" | "."));
        self.todo.extend(names.map(str::to_owned));
        Ok(())
    }

    fn invalid(&self, reason: &'static str) -> PathError {
        PathError::invalid(self.asked, reason)
    }
}

/// Converts the error of a system call on the way to `path`.
pub(super) fn error(path: &str, want: Want, fail: Fail) -> PathError {
    let asked = path.to_owned();
    match fail {
        Fail::Missing => PathError::NotFound(asked),
        Fail::NotDir if want == Want::Read => PathError::NotFound(asked),
        Fail::NotDir => PathError::NotADirectory(asked),
        Fail::IsDir | Fail::Special => PathError::NotAFile(asked),
        Fail::Exists => PathError::Exists(asked),
        Fail::NotEmpty => PathError::NotEmpty(asked),
        Fail::Link => PathError::Busy(asked),
        Fail::TooLong => PathError::invalid(
            path,
            "a name in it is too long for the file system; use a shorter one",
        ),
        Fail::NoCall => PathError::Io {
            path: asked,
            source: std::io::ErrorKind::Unsupported.into(),
        },
        Fail::Other(source) => PathError::Io {
            path: asked,
            source,
        },
    }
}
