use crate::fault::ProgramFault;

/// Why a program gave no result, or could not be run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The program failed.
    #[error("the program failed")]
    Program(#[source] Box<ProgramFault>),
    /// There is no process to run it in, and none other was allowed.
    #[error("no worker can be started: {0}")]
    Worker(String),
    /// A file of tools cannot be used.
    #[error("`{file}` cannot be used as tools, line {line}: {problem}")]
    File {
        /// The file.
        file: String,
        /// The line, from 1.
        line: u32,
        /// What is wrong there.
        problem: String,
    },
    /// A setting cannot be.
    #[error("{0}")]
    Setting(String),
}

impl Error {
    /// What the program failed with, if it did.
    pub fn fault(&self) -> Option<&ProgramFault> {
        match self {
            Self::Program(fault) => Some(fault),
            _ => None,
        }
    }

    /// Whether the same program may succeed later: only where the interpreter, not the program,
    /// failed.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Worker(_))
    }
}

impl From<ProgramFault> for Error {
    fn from(fault: ProgramFault) -> Self {
        Self::Program(Box::new(fault))
    }
}

/// The result of running something.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl From<Error> for levity_core::Error {
    fn from(error: Error) -> Self {
        Self::other(error)
    }
}
