use std::path::PathBuf;

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error that keeps an evaluation from running or being scored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read or written.
    #[error("`{}`: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// A line of a file is not what it should be.
    #[error("`{}`, line {line}: {problem}", .path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The problem with it.
        problem: String,
    },
    /// The folder has results of another evaluation.
    #[error("`{}` has results of another evaluation: {difference}; name another \
        folder", .path.display())]
    OtherEvaluation {
        /// The folder.
        path: PathBuf,
        /// The differences.
        difference: String,
    },
    /// Another process writes to the folder.
    #[error("another process writes to `{}`; wait for it, or name another folder", .0.display())]
    InUse(PathBuf),
    /// The suite has something that cannot be used.
    #[error("{0}")]
    Suite(String),
    /// The program that runs the tools of a case cannot be used.
    #[error("the tools of case `{case}` {problem}")]
    Tools {
        /// The case.
        case: String,
        /// The problem.
        problem: String,
    },
    /// The judge could not score the trials.
    #[error("the judge {0}")]
    Judge(String),
}

impl Error {
    /// An error at a file.
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
