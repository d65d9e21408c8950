//! The one error of a workspace.
//!
//! Messages are written for a model: each names the path that the model passed, the reason, and the
//! next step. None reveals the target of a link, or a difference between a missing and an existing
//! file outside.

use std::io;

/// The reason why a path of a workspace cannot be used.
///
/// The path in it is the one that the caller passed, never the target of a link. A path outside the
/// workspace gives the same error whether it exists or not, and so does a denied path.
///
/// ```
/// use levity_sandbox::{PathError, Workspace};
///
/// # let folder = tempfile::tempdir()?;
/// let workspace = Workspace::open(folder.path())?;
/// let error = workspace.read("missing.txt", 100).unwrap_err();
/// assert!(matches!(error, PathError::NotFound(_)));
/// assert_eq!(
///     error.to_string(),
///     "`missing.txt` does not exist; list its parent folder to see what is there"
/// );
/// assert!(!error.is_retryable());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// The path leads out of the workspace, by `..`, from `/` or by a link.
    #[error("`{0}` leads out of the workspace; use a path below its folder, such as `src/main.rs`")]
    Outside(String),
    /// The path is denied by a rule of the workspace.
    #[error(
        "`{0}` is denied to tools, like keys, secrets and version control data; continue \
            without it"
    )]
    Denied(String),
    /// No file or folder has this name.
    #[error("`{0}` does not exist; list its parent folder to see what is there")]
    NotFound(String),
    /// The path exists, but is not a regular file: it is a folder, a device, a pipe or a socket.
    #[error("`{0}` is not a regular file; use the path of a regular file")]
    NotAFile(String),
    /// The path is not a folder, or goes through something that is not a folder.
    #[error("`{0}` is not a folder or goes through a file; use the path of a folder")]
    NotADirectory(String),
    /// A file or folder with this name already exists.
    #[error("`{0}` already exists; use another name, or remove it first")]
    Exists(String),
    /// The folder is not empty.
    #[error("the folder `{0}` is not empty; remove what is in it first")]
    NotEmpty(String),
    /// The file is longer than the limit for one read.
    #[error("`{path}` has {size} bytes, and at most {max} may be read at once; read a part of it")]
    TooLarge {
        /// The path of the file.
        path: String,
        /// The size of the file in bytes.
        size: u64,
        /// The limit in bytes.
        max: u64,
    },
    /// The workspace is open for reading only.
    #[error("`{0}` cannot be changed: the workspace is read-only")]
    ReadOnly(String),
    /// The file itself is read-only.
    #[error("`{0}` cannot be changed: the file is read-only; write to another file")]
    ReadOnlyFile(String),
    /// The file has several hard links, and one of them may lie outside.
    #[error(
        "`{0}` has several hard links and may be shared with a place outside; work on a copy of it"
    )]
    HardLink(String),
    /// The text is not a path that a workspace can use.
    #[error("`{path}` cannot be used as a path: {reason}")]
    Invalid {
        /// The path, shortened if it is long.
        path: String,
        /// The reason, and a way to fix it.
        reason: &'static str,
    },
    /// Another process is changing the target of the path.
    #[error("`{0}` is being changed by another process; try again")]
    Busy(String),
    /// The operating system returned an error.
    #[error("`{path}` cannot be used now")]
    Io {
        /// The path that failed.
        path: String,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// A glob that denies or allows paths does not parse.
    #[error("the glob `{glob}` of the workspace does not parse; fix or remove it")]
    Glob {
        /// The glob as it was passed.
        glob: String,
        /// The error from the parser of globs.
        #[source]
        source: globset::Error,
    },
    /// This system cannot open files relative to a folder.
    #[error(
        "a workspace needs a Unix system; on this one files cannot be opened safely below a folder"
    )]
    Unsupported,
}

impl PathError {
    /// Returns `true` if the same call may succeed later without any change by the caller.
    ///
    /// This is `true` for [`Busy`](Self::Busy), and for system calls that were interrupted or found
    /// a busy resource.
    ///
    /// ```
    /// use levity_sandbox::PathError;
    ///
    /// assert!(PathError::Busy("a.txt".into()).is_retryable());
    /// assert!(!PathError::Denied(".env".into()).is_retryable());
    /// ```
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Busy(_) => true,
            Self::Io { source, .. } => {
                matches!(
                    source.kind(),
                    io::ErrorKind::Interrupted | io::ErrorKind::ResourceBusy
                )
            }
            _ => false,
        }
    }

    pub(super) fn invalid(path: &str, reason: &'static str) -> Self {
        Self::Invalid {
            path: short(path),
            reason,
        }
    }
}

/// Shortens a path for an error message.
fn short(path: &str) -> String {
    const MAX_CHARS: usize = 120;
    match path.char_indices().nth(MAX_CHARS) {
        Some((at, _)) => format!("{}…", &path[..at]),
        None => path.to_owned(),
    }
}

impl From<PathError> for levity_core::Error {
    fn from(error: PathError) -> Self {
        Self::other(error)
    }
}
