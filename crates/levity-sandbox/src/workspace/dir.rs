use super::meta::{Kind, Metadata};
use super::path;
use super::resolve::error;
use super::sys::{self, Fail, Fd, Want};
use super::{OpenFile, PathError, Workspace};

/// A folder of a workspace that is held open, for walking a tree.
///
/// What is opened through it is opened by one name, in this very folder, wherever it has been moved
/// meanwhile, and no link is followed. Denied entries are neither listed nor opened.
#[derive(Debug)]
pub struct Dir {
    space: Workspace,
    fd: Fd,
    path: String,
}

/// What a folder holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FolderEntry {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: Kind,
}

/// The entries of a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listing {
    /// Those that may be touched, by name.
    pub entries: Vec<FolderEntry>,
    /// Whether there are more than were asked for.
    pub truncated: bool,
    /// How many have a name that is no UTF-8, and are left out.
    pub unreadable: usize,
}

impl Dir {
    pub(super) fn new(space: Workspace, fd: Fd, path: String) -> Self {
        Self { space, fd, path }
    }

    /// Where it was when it was opened, relative to the workspace; empty for the workspace itself.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The path of an entry, whether there is one or not.
    pub fn path_of(&self, name: &str) -> String {
        path::child(&self.path, name)
    }

    /// Lists up to `max` entries, sorted by name.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn entries(&self, max: usize) -> Result<Listing, PathError> {
        let mut listing = Listing::default();
        let listed = sys::entries(&self.fd, |name, kind| {
            let Ok(name) = std::str::from_utf8(name) else {
                listing.unreadable += 1;
                return true;
            };
            if self.space.0.denies_entry(&self.path, name) {
                return true;
            }
            listing.truncated = listing.entries.len() >= max;
            if listing.truncated {
                return false;
            }
            if let Some(kind) = kind.or_else(|| self.kind(name)) {
                listing.entries.push(FolderEntry {
                    name: name.to_owned(),
                    kind,
                });
            }
            true
        });
        listed.map_err(|fail| self.error(fail, Want::List, "."))?;
        listing.entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(listing)
    }

    /// Asks for the kind of an entry where the file system does not tell it with the name.
    fn kind(&self, name: &str) -> Option<Kind> {
        sys::look(&self.fd, name).ok().map(|meta| meta.kind)
    }

    /// Looks at an entry; a link is not followed.
    ///
    /// # Errors
    /// When it is denied or not there.
    pub fn metadata(&self, name: &str) -> Result<Metadata, PathError> {
        self.check(name)?;
        sys::look(&self.fd, name).map_err(|fail| self.error(fail, Want::Pass, name))
    }

    /// Opens a folder in it.
    ///
    /// # Errors
    /// When it is denied, not there, or no folder: a link to one is none.
    pub fn dir(&self, name: &str) -> Result<Self, PathError> {
        self.check(name)?;
        let fd = sys::open(&self.fd, name, Want::List)
            .map_err(|fail| self.error(fail, Want::List, name))?;
        if self.space.0.targets.deny_opened(&fd) {
            return Err(PathError::Denied(self.path_of(name)));
        }
        Ok(Self::new(self.space.clone(), fd, self.path_of(name)))
    }

    /// Opens a file in it for reading.
    ///
    /// # Errors
    /// When it is denied, not there, or no regular file: a link to one is none.
    pub fn file(&self, name: &str) -> Result<OpenFile, PathError> {
        self.check(name)?;
        let fd = sys::open(&self.fd, name, Want::Read)
            .map_err(|fail| self.error(fail, Want::Read, name))?;
        let path = self.path_of(name);
        OpenFile::new(&self.space.0, fd, &path.clone(), path)
    }

    fn check(&self, name: &str) -> Result<(), PathError> {
        path::name(name)?;
        match self.space.0.denies_entry(&self.path, name) {
            true => Err(PathError::Denied(self.path_of(name))),
            false => Ok(()),
        }
    }

    fn error(&self, fail: Fail, want: Want, name: &str) -> PathError {
        let path = self.path_of(name);
        match (fail, want) {
            (Fail::Link, Want::Read) => PathError::NotAFile(path),
            (Fail::Link, _) => PathError::NotADirectory(path),
            (fail, want) => error(&path, want, fail),
        }
    }
}
