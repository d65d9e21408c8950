use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A folder whose files may be touched, and no others. Cloning costs nothing.
#[derive(Clone, Debug)]
pub struct Workspace(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    root: PathBuf,
}

impl Workspace {
    /// Opens a folder for reading and writing.
    ///
    /// # Errors
    /// When it is not there, or is no folder.
    pub fn open(root: impl AsRef<Path>) -> Result<Self, PathError> {
        let root = root.as_ref().canonicalize().map_err(|_| PathError::NotFound)?;
        Ok(Self(Arc::new(Inner { root })))
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.0.root
    }

    /// Whether nothing in it may be changed.
    pub fn is_read_only(&self) -> bool {
        false
    }

    /// Whether a path, relative to the folder, is one that nobody may touch.
    pub fn denies(&self, path: &str) -> bool {
        let _ = path;
        false
    }
}

/// Why a path cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// There is nothing of this name.
    #[error("there is no such file or folder")]
    NotFound,
}
