//! The error type of the crate: failures of a program, and failures around it.

use crate::fault::ProgramFault;

/// The reason why a program returned no result or could not run.
///
/// ```
/// use levity_python::{Error, Python};
/// use serde_json::json;
///
/// let error = Python::new().run_blocking("1", json!([1, 2])).unwrap_err();
/// assert_eq!(error, Error::Setting("the variables of a program must be an object".to_owned()));
/// assert!(error.fault().is_none() && !error.is_retryable());
/// ```
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
    ///
    /// ```
    /// use levity_python::Python;
    /// use serde_json::json;
    ///
    /// let error = Python::new().run_blocking("int('seven')", json!({})).unwrap_err();
    /// assert!(error.fault().unwrap().message.starts_with("ValueError"));
    /// ```
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
