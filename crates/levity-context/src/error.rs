use levity_core::SharedError;
use levity_sandbox::PathError;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why there is no context value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A value is not what a context value has to be.
    #[error("the value is no context: {}", .0.join("; "))]
    Mismatch(Vec<String>),
    /// The files of the workspace could not be listed.
    #[error("the files of the workspace could not be listed")]
    Workspace(#[source] PathError),
    /// What is remembered could not be had.
    #[error("what is remembered could not be had")]
    Memory(#[source] SharedError),
    /// The thread that did the work is gone.
    #[error("the work was given up")]
    Lost(#[source] SharedError),
}

impl Error {
    /// Whether the same call may succeed later by itself.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Workspace(error) => error.is_retryable(),
            _ => false,
        }
    }
}

impl From<Error> for levity_core::Error {
    fn from(error: Error) -> Self {
        Self::other(error)
    }
}
