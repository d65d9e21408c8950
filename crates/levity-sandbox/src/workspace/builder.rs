use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::change::Listeners;
use super::deny::Rules;
use super::targets::Targets;
use super::{Inner, PathError, Workspace, sys};

/// Settings of a [`Workspace`] that is to be opened.
#[derive(Clone, Debug)]
#[must_use]
pub struct WorkspaceBuilder {
    root: PathBuf,
    read_only: bool,
    hard_links: bool,
    kernel: bool,
    rules: Rules,
}

impl WorkspaceBuilder {
    pub(super) fn new(root: &Path) -> Self {
        let root = root.to_owned();
        Self {
            root,
            read_only: false,
            hard_links: false,
            kernel: true,
            rules: Rules::standard(),
        }
    }

    /// Nothing in it may be changed.
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// Nobody may touch what this glob matches, nor anything below it.
    ///
    /// A glob without `/` matches a name at any depth, any other a path from the folder of the
    /// workspace on. Neither case nor characters that are not seen matter. Of all globs that match
    /// a path the last one decides, one of a path before one of a name. Where a glob of a path is
    /// denied, folders cannot be renamed: that could lead past it.
    pub fn deny(mut self, glob: impl AsRef<str>) -> Self {
        self.rules.add(glob.as_ref(), true);
        self
    }

    /// What this glob matches may be touched although an earlier one denies it: `.npmrc`, for
    /// instance, or `.git`. What is below a denied folder stays denied; allow the folder.
    pub fn allow(mut self, glob: impl AsRef<str>) -> Self {
        self.rules.add(glob.as_ref(), false);
        self
    }

    /// Nothing is denied but what [`deny`](Self::deny) says from here on.
    pub fn allow_all(mut self) -> Self {
        self.rules = Rules::default();
        self
    }

    /// Files with several hard links may be read, although they may be shared with a place outside:
    /// for trees of a package manager that links what it installs.
    pub fn allow_hard_links(mut self) -> Self {
        self.hard_links = true;
        self
    }

    /// Resolves every path name by name, as on a kernel without `openat2`. For tests.
    #[doc(hidden)]
    pub fn walk_only(mut self) -> Self {
        self.kernel = false;
        self
    }

    /// Opens the folder.
    ///
    /// # Errors
    /// When it is not there or no folder, a glob does not parse, its links with denied names take
    /// longer than five seconds to follow, or the system is not supported.
    pub fn build(self) -> Result<Workspace, PathError> {
        let deny = self.rules.compile()?;
        let shown = || self.root.to_string_lossy().into_owned();
        let failed = |source: std::io::Error| match source.kind() {
            std::io::ErrorKind::NotFound => PathError::NotFound(shown()),
            std::io::ErrorKind::NotADirectory => PathError::NotADirectory(shown()),
            std::io::ErrorKind::Unsupported => PathError::Unsupported,
            _ => PathError::Io {
                path: shown(),
                source,
            },
        };
        let root = self.root.canonicalize().map_err(failed)?;
        let dir = Arc::new(sys::open_root(&root).map_err(failed)?);
        // Paths below an absolute root are understood as they were written, too.
        let given = if self.root.is_absolute() {
            self.root.clone()
        } else {
            root.clone()
        };
        let (read_only, hard_links, kernel) = (self.read_only, self.hard_links, self.kernel);
        let listeners = Listeners::default();
        let targets = Targets::default();
        let inner = Inner {
            root,
            given,
            dir,
            read_only,
            hard_links,
            kernel,
            deny,
            targets,
            listeners,
        };
        inner.find_targets().map_err(failed)?;
        Ok(Workspace(Arc::new(inner)))
    }
}
