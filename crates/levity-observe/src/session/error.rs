//! Errors of session files. They name the file and the place in it, and never quote outputs.

use std::io;
use std::path::{Path, PathBuf};

/// An error of reading or writing a session file.
///
/// ```
/// use levity_observe::{Session, SessionProblem};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let error = Session::load("no/such/file.json").await.unwrap_err();
/// assert!(matches!(error.problem, SessionProblem::Io(_)));
/// assert!(error.to_string().starts_with("session file `no/such/file.json`: "));
/// assert!(!error.is_retryable());
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[error("session file `{}`: {problem}", path.display())]
#[non_exhaustive]
pub struct SessionError {
    /// The path of the file, or of the folder.
    pub path: PathBuf,
    /// The problem with the file. `Display` already includes it, so it is not the `source`.
    pub problem: SessionProblem,
}

/// The reason why a session file cannot be read or written.
///
/// ```
/// use levity_observe::{Session, SessionProblem};
///
/// let problem = Session::parse(br#"{"nodes": [{"id": "a"}, {"id": "a"}]}"#).unwrap_err();
/// assert_eq!(problem.to_string(), "at `/nodes/1/id`: another node has the same id");
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionProblem {
    /// An I/O error of the file system.
    #[error(transparent)]
    Io(io::Error),
    /// The file exceeds the size limit.
    #[error("the file has more than {max_bytes} bytes, which is the limit")]
    TooLarge {
        /// The limit in bytes.
        max_bytes: u64,
    },
    /// The content is not JSON, or ends too early.
    #[error("invalid JSON at line {line}, column {column}")]
    Json {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
    },
    /// The content is JSON, but not a session.
    #[error("at `{place}`: {problem}")]
    InvalidFormat {
        /// The location, as a JSON Pointer.
        place: String,
        /// The problem at this location.
        problem: &'static str,
    },
    /// No session has that id, or an id with that prefix.
    #[error("no session matches the id `{0}`; check the id and the folder")]
    Unknown(String),
    /// Several session ids begin with the prefix.
    #[error("several session ids begin with `{begin}`: {}; use a longer prefix", ids.join(", "))]
    Ambiguous {
        /// The prefix that was given as an id.
        begin: String,
        /// Some of the matching ids.
        ids: Vec<String>,
    },
    /// The session has no such step.
    #[error("the session has no step `{0}`; check its id")]
    NoStep(String),
}

impl SessionProblem {
    pub(super) fn at(self, path: &Path) -> SessionError {
        SessionError {
            path: path.to_owned(),
            problem: self,
        }
    }

    pub(super) fn shape(place: impl Into<String>, what: &'static str) -> Self {
        Self::InvalidFormat {
            place: place.into(),
            problem: what,
        }
    }
}

impl SessionError {
    /// Returns `true` if a retry can help, because the disk may be available by then.
    pub fn is_retryable(&self) -> bool {
        use io::ErrorKind::{Interrupted, ResourceBusy, StorageFull, TimedOut, WouldBlock};
        match &self.problem {
            SessionProblem::Io(error) => {
                matches!(
                    error.kind(),
                    Interrupted | ResourceBusy | StorageFull | TimedOut | WouldBlock
                )
            }
            _ => false,
        }
    }
}

impl From<io::Error> for SessionProblem {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<SessionError> for levity_core::Error {
    fn from(error: SessionError) -> Self {
        Self::other(error)
    }
}
