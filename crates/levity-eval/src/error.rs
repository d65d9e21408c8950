//! The error type of the crate. A failing subject is not an error: it is a trial with an error.

use std::path::PathBuf;

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why an evaluation cannot run or be scored.
///
/// ```
/// use levity_eval::{Error, Results};
///
/// # let dir = tempfile::tempdir().unwrap();
/// let error = Results::open(dir.path().join("nothing")).unwrap_err();
/// assert!(matches!(error, Error::Io { .. }));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read or written.
    #[error("`{}`: {source}", .path.display())]
    Io {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// A line of a file is invalid.
    #[error("`{}`, line {line}: {problem}", .path.display())]
    Line {
        /// The path of the file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The problem in this line.
        problem: String,
    },
    /// The folder contains results of another evaluation.
    #[error("`{}` contains results of another evaluation: {difference}; use another \
        folder", .path.display())]
    OtherEvaluation {
        /// The path of the folder.
        path: PathBuf,
        /// The differences between both evaluations.
        difference: String,
    },
    /// Another process writes to the folder.
    #[error("another process writes to `{}`; wait for it, or use another folder", .0.display())]
    InUse(PathBuf),
    /// The suite contains an invalid case or category.
    #[error("{0}")]
    Suite(String),
    /// The program that runs the tools of a case failed.
    #[error("the tools of case `{case}` {problem}")]
    Tools {
        /// The id of the case.
        case: String,
        /// The problem with the tools.
        problem: String,
    },
    /// The judge could not score the trials.
    #[error("the judge {0}")]
    Judge(String),
}

impl Error {
    /// Creates an error of a file operation.
    pub fn io(path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::Io {
            path: path.into(),
            source,
        }
    }
}

impl From<Error> for levity_core::Error {
    fn from(error: Error) -> Self {
        Self::other(error)
    }
}
