//! The error of building a context value. Sources of context have their own, `ContextError` of the
//! core.

use levity_core::SharedError;
use levity_sandbox::PathError;

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why there is no context value.
///
/// ```
/// use levity_context::{Error, check_context};
///
/// let error = check_context(&serde_json::json!({})).unwrap_err();
/// assert!(matches!(&error, Error::Mismatch(problems) if problems.len() == 4));
/// assert!(!error.is_retryable());
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A value that does not match the schema of a context value.
    #[error("the value is not a valid context: {}", .0.join("; "))]
    Mismatch(Vec<String>),
    /// The files of the workspace could not be listed.
    #[error("cannot list the files of the workspace")]
    Workspace(#[source] PathError),
    /// The memory could not be read.
    #[error("cannot read the memory")]
    Memory(#[source] SharedError),
    /// The thread that did the work panicked or was shut down.
    #[error("the thread that lists the workspace panicked or was shut down")]
    TaskFailed(#[source] SharedError),
}

impl Error {
    /// Returns `true` if the same call may succeed later without a change.
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
