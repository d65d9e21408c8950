use std::path::PathBuf;

/// Why logs cannot be kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The folder of the logs cannot be made, read or written to.
    #[error("the folder `{}` cannot be used for logs; name one that can be written to", .path.display())]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The system has no thread left for the writer.
    #[error("the logs need a thread to be written by, and the system has none left")]
    Thread(#[source] std::io::Error),
    /// A setting makes no sense.
    #[error("`{setting}` cannot be used: {reason}")]
    Setting {
        /// Which.
        setting: &'static str,
        /// What is wrong with it, and what would be right.
        reason: String,
    },
}

/// What went wrong, for a program to decide by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A folder or a file.
    Folder,
    /// The system is short of something.
    System,
    /// A setting.
    Setting,
}

impl Error {
    /// What kind of error it is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Folder { .. } => ErrorKind::Folder,
            Self::Thread(_) => ErrorKind::System,
            Self::Setting { .. } => ErrorKind::Setting,
        }
    }

    /// Whether the same may succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Thread(_))
    }
}

/// What can go wrong with logs.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl From<Error> for levity_core::Error {
    fn from(error: Error) -> Self {
        Self::other(error)
    }
}
