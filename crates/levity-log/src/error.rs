//! The error type of the crate. Only setup and clean-up can fail: while a run is in progress,
//! problems are counted and logged instead.

use std::path::PathBuf;

/// An error of setting up or cleaning up logs.
///
/// ```
/// use levity_log::LogFiles;
///
/// # let dir = tempfile::tempdir().unwrap();
/// let error = LogFiles::builder(dir.path()).queue(0).open().unwrap_err();
/// assert_eq!(error.to_string(), "invalid setting `queue`: it must be at least 1");
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The log folder cannot be created, read or written.
    #[error("cannot use the folder `{}` for logs; choose one that is writable", .path.display())]
    Folder {
        /// The path of the folder.
        path: PathBuf,
        /// The underlying I/O error.
        #[source]
        source: std::io::Error,
    },
    /// The system cannot start a thread for the writer.
    #[error("cannot start the log writer thread; the system has no threads left")]
    Thread(#[source] std::io::Error),
    /// A setting is invalid.
    #[error("invalid setting `{setting}`: {reason}")]
    Setting {
        /// The name of the setting.
        setting: &'static str,
        /// The problem, and a valid alternative.
        reason: String,
    },
}

/// The category of an error, for programmatic decisions.
///
/// ```
/// use levity_log::{ErrorKind, LogFiles};
///
/// # let dir = tempfile::tempdir().unwrap();
/// let error = LogFiles::builder(dir.path()).max_file(0).open().unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Setting);
/// assert!(!error.is_retryable());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A problem with a folder or a file.
    Folder,
    /// A shortage of system resources.
    System,
    /// A setting with an invalid value.
    Setting,
}

impl Error {
    /// Returns the category of the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Folder { .. } => ErrorKind::Folder,
            Self::Thread(_) => ErrorKind::System,
            Self::Setting { .. } => ErrorKind::Setting,
        }
    }

    /// Returns `true` if a retry may succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Thread(_))
    }
}

/// The result of a logging operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl From<Error> for levity_core::Error {
    fn from(error: Error) -> Self {
        Self::other(error)
    }
}
