use std::io;
use std::path::{Path, PathBuf};

/// Why a session file cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("session file `{}`: {problem}", path.display())]
#[non_exhaustive]
pub struct SessionError {
    /// The file, or the folder.
    pub path: PathBuf,
    /// What is wrong with it; said in the error's own words, so it is not its source.
    pub problem: SessionProblem,
}

/// What is wrong with a session file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionProblem {
    /// The disk says no.
    #[error(transparent)]
    Io(io::Error),
    /// It has more bytes than are read or written.
    #[error("it has more than {most} bytes")]
    TooLarge {
        /// How many are.
        most: u64,
    },
    /// It is not JSON, or ends too soon.
    #[error("it is not JSON at line {line}, column {column}")]
    Json {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
    },
    /// It is JSON, and no session.
    #[error("at `{place}`: {what}")]
    Shape {
        /// Where, as a JSON Pointer.
        place: String,
        /// What is wrong there.
        what: &'static str,
    },
    /// No session has that id, or an id that begins so.
    #[error("there is no session `{0}`")]
    Unknown(String),
    /// The ids of several sessions begin so.
    #[error("several sessions begin with `{begin}`: {}", ids.join(", "))]
    Ambiguous {
        /// The beginning.
        begin: String,
        /// Some of the ids.
        ids: Vec<String>,
    },
    /// The session has no such step.
    #[error("there is no step `{0}`")]
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
        Self::Shape {
            place: place.into(),
            what,
        }
    }
}

impl SessionError {
    /// Whether it can help to try again: the disk may be free by then.
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
