//! Errors of servers, listeners and runs, with their categories.
//!
//! Messages name the setting or the run and the next step, because `levity serve` prints them as
//! they are. `Debug` prints the same text with all causes, for a `main` that returns the error.

use std::io;
use std::sync::Arc;

use levity_core::text::chain;
use levity_core::{RunId, SharedError};

use crate::access::TokenScope;

/// The result type that this crate's methods return.
///
/// ```
/// fn check(name: &str) -> levity_serve::Result<()> {
///     name.parse::<levity_serve::TokenScope>().map(drop)
/// }
/// assert!(check("run").is_ok() && check("walk").is_err());
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a server, a listener or one of its runs.
///
/// Ask [`kind`](Self::kind) for the category and [`is_retryable`](Self::is_retryable) before you
/// repeat a call. `Display` is one clause for people; it contains no token and no prompt.
///
/// ```
/// use levity_serve::{Error, ErrorKind, Token};
///
/// let error = Token::new("short").unwrap_err();
/// assert!(matches!(error, Error::Token { .. }));
/// assert_eq!(error.kind(), ErrorKind::Config);
/// assert!(!error.is_retryable());
/// assert_eq!(error.to_string(), "the token is too short; use 16 characters or more");
/// ```
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting has an invalid value.
    #[error("`{setting}` {problem}")]
    Setting {
        /// The name of the setting.
        setting: &'static str,
        /// The problem and how to fix it.
        problem: String,
    },
    /// A token is invalid, or cannot be read, written or generated.
    #[error("{what}")]
    Token {
        /// The problem and how to fix it.
        what: String,
        /// The operating system's error, if a system call failed.
        #[source]
        source: Option<io::Error>,
    },
    /// The server cannot listen on the address.
    #[error(
        "cannot listen on `{address}`: {source}; choose another address, or stop the process that \
            uses it"
    )]
    Listen {
        /// The address that was requested.
        address: String,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// An I/O operation failed.
    #[error("{what}: {source}")]
    Io {
        /// The operation that failed.
        what: String,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The maximum number of runs is already in progress.
    #[error(
        "{limit} runs are in progress, which is the limit; try again when one of them has ended"
    )]
    Full {
        /// The maximum number of runs.
        limit: usize,
    },
    /// The maximum number of journal reads is already in progress.
    #[error(
        "{limit} reads of the journal are in progress, which is the limit; try again in a moment"
    )]
    JournalBusy {
        /// The maximum number of concurrent reads.
        limit: usize,
    },
    /// The prompt contains no text.
    #[error("the prompt is empty; describe the task")]
    EmptyPrompt,
    /// A prompt, or another text for a run, exceeds the size limit.
    #[error("the text has more than {limit} bytes; put long text into a file and name the file")]
    PromptTooLong {
        /// The maximum size in bytes.
        limit: usize,
    },
    /// A client chose a model that the server does not offer.
    #[error("the server does not offer this model; {}", choices(.offered))]
    UnknownModel {
        /// The names of the models that it offers.
        offered: Vec<Arc<str>>,
    },
    /// A run was started with a model that the server does not offer.
    #[error(
        "run `{run}` was started with the model `{model}`, which the server does not offer; offer \
            it, or fork the run with another model"
    )]
    ModelNotOffered {
        /// The id of the run.
        run: RunId,
        /// The name of the model.
        model: String,
    },
    /// No run has this id.
    #[error("no run has the id `{0}`")]
    NoRun(RunId),
    /// The run has ended, or another process drives it.
    #[error("run `{0}` is not in progress in this process")]
    NotRunning(RunId),
    /// The run could not be started, resumed or read.
    #[error("run `{run}` failed: {}", chain(.cause))]
    Run {
        /// The id of the run.
        run: RunId,
        /// The cause of the failure.
        #[source]
        cause: SharedError,
    },
    /// The operation is not supported.
    #[error("{0}")]
    Unsupported(&'static str),
    /// The caller's token lacks a scope.
    #[error("{problem}")]
    Scope {
        /// The scope that is required.
        scope: TokenScope,
        /// The reason, and how to fix it.
        problem: String,
    },
    /// A command did not reach its run.
    #[error(transparent)]
    Control(#[from] levity_core::ControlError),
    /// The journal returned an error.
    #[error("the journal failed: {}", chain(.0))]
    Journal(#[from] levity_core::JournalError),
}

/// Prints the message and its causes on one line, because a `main` that returns the error prints
/// this.
impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&chain(self))
    }
}

/// The category of an [`Error`].
///
/// Servers translate the kind to their protocol. The HTTP API, for example, answers `Full` with 429
/// or 503 and a `Retry-After` header.
///
/// ```
/// use levity_serve::{Error, ErrorKind};
/// let error = Error::Full { limit: 64 };
/// assert_eq!(error.kind(), ErrorKind::Full);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A setting, token or prompt is invalid.
    Config,
    /// The requested item does not exist.
    NotFound,
    /// A limit on concurrent work has been reached.
    Full,
    /// The request does not fit the current state of the run.
    State,
    /// The run itself failed.
    Run,
    /// A file, a socket or the journal failed.
    Io,
}

impl Error {
    /// Returns the category of the error.
    ///
    /// ```
    /// use levity_serve::{Error, ErrorKind};
    /// assert_eq!(Error::NoRun("r1".into()).kind(), ErrorKind::NotFound);
    /// assert_eq!(Error::EmptyPrompt.kind(), ErrorKind::Config);
    /// ```
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Setting { .. }
            | Self::Token { .. }
            | Self::Listen { .. }
            | Self::EmptyPrompt
            | Self::UnknownModel { .. }
            | Self::Scope { .. }
            | Self::PromptTooLong { .. } => ErrorKind::Config,
            Self::NoRun(_) => ErrorKind::NotFound,
            Self::Full { .. } | Self::JournalBusy { .. } => ErrorKind::Full,
            Self::NotRunning(_)
            | Self::Unsupported(_)
            | Self::ModelNotOffered { .. }
            | Self::Control(_) => ErrorKind::State,
            Self::Run { .. } => ErrorKind::Run,
            Self::Io { .. } | Self::Journal(_) => ErrorKind::Io,
        }
    }

    /// Returns `true` if the same call may succeed later.
    ///
    /// True for reached limits and for I/O errors, and for journal errors that are retryable
    /// themselves. An error of a run is never retryable here: resume the run instead.
    ///
    /// ```
    /// use levity_serve::Error;
    /// assert!(Error::JournalBusy { limit: 8 }.is_retryable());
    /// assert!(!Error::NotRunning("r1".into()).is_retryable());
    /// ```
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Full { .. } | Self::JournalBusy { .. } | Self::Io { .. } => true,
            Self::Journal(error) => error.is_retryable(),
            _ => false,
        }
    }

    /// Creates an [`Error::Setting`]. `problem` continues the sentence that begins with the name of
    /// the setting: "is 0; allow at least one".
    pub(crate) fn setting(setting: &'static str, problem: impl Into<String>) -> Self {
        Self::Setting {
            setting,
            problem: problem.into(),
        }
    }

    /// Creates an [`Error::Run`] and makes its cause shareable, because several clients may get the
    /// same error.
    pub(crate) fn run(run: &RunId, cause: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Run {
            run: run.clone(),
            cause: SharedError::new(cause),
        }
    }
}

/// Returns the way out of [`Error::UnknownModel`].
fn choices(offered: &[Arc<str>]) -> String {
    if offered.is_empty() {
        return "leave `model` out".to_owned();
    }
    let names: Vec<String> = offered.iter().map(|name| format!("`{name}`")).collect();
    format!("choose one of {}, or leave `model` out", names.join(", "))
}

impl From<Error> for levity_core::Error {
    fn from(error: Error) -> Self {
        Self::other(error)
    }
}

#[cfg(test)]
mod tests {
    use levity_core::{JournalError, JournalErrorKind};

    use super::*;

    #[test]
    fn error_prints_each_cause_once_by_display_and_debug() {
        let journal = || {
            JournalError::new(JournalErrorKind::Io, "the disk is full").with_source("no space left")
        };
        let agent = levity_loop::Error::Runtime {
            source: levity_core::RuntimeError::Journal(journal()),
            partial: None,
        };
        let errors = [
            Error::Journal(journal()),
            Error::run(&RunId::new("r"), agent),
        ];
        for error in errors {
            for text in [error.to_string(), format!("{error:?}"), chain(&error)] {
                assert_eq!(text.matches("the disk is full").count(), 1, "{text}");
                assert_eq!(text.matches("no space left").count(), 1, "{text}");
                assert!(!text.contains(['{', '\n']), "{text}");
            }
        }
    }
}
