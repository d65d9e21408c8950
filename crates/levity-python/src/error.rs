use crate::fault::ProgramFault;

/// The reason why a program returned no result or could not run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The program failed while it was running.
    #[error("the program failed")]
    Program(#[source] Box<ProgramFault>),
    /// No process is available to run the program, and no other isolation is allowed.
    #[error("cannot start a worker: {0}")]
    Worker(String),
    /// A file of tools is invalid.
    #[error("cannot load tools from `{file}`, line {line}: {problem}")]
    File {
        /// The name of the file.
        file: String,
        /// The line, counted from 1.
        line: u32,
        /// The problem in this line.
        problem: String,
    },
    /// A setting is invalid.
    #[error("{0}")]
    Setting(String),
}

impl Error {
    /// Returns the fault of the program, if it failed.
    pub fn fault(&self) -> Option<&ProgramFault> {
        match self {
            Self::Program(fault) => Some(fault),
            _ => None,
        }
    }

    /// Returns `true` if the same program may succeed later: only if the interpreter failed, not
    /// the program.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Worker(_))
    }
}

impl From<ProgramFault> for Error {
    fn from(fault: ProgramFault) -> Self {
        Self::Program(Box::new(fault))
    }
}

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl From<Error> for levity_core::Error {
    fn from(error: Error) -> Self {
        Self::other(error)
    }
}
