use std::io;

use levity_core::text::chain;
use levity_core::{RunId, SharedError};

/// What the methods of this crate return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something could not be offered, or what a run was asked for could not be done.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting makes no sense.
    #[error("`{setting}` {problem}")]
    Setting {
        /// The setting.
        setting: &'static str,
        /// What is wrong, and the way out.
        problem: String,
    },
    /// A token cannot be had, or is none.
    #[error("{what}")]
    Token {
        /// What is wrong, and the way out.
        what: String,
        /// What the system said, if it was asked.
        #[source]
        source: Option<io::Error>,
    },
    /// The address cannot be listened on.
    #[error(
        "`{address}` cannot be listened on; name another with its option, or end what has it: \
            {source}"
    )]
    Listen {
        /// The address.
        address: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A connection failed.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// As many runs are under way as there may be.
    #[error(
        "{most} runs are under way, and no more are taken; try again when one of them has ended"
    )]
    Full {
        /// How many there may be.
        most: usize,
    },
    /// As many runs or lists are read from the journal as may be at once.
    #[error(
        "{most} reads of the journal are under way, and no more are at once; try again in a moment"
    )]
    JournalBusy {
        /// How many may be read at once.
        most: usize,
    },
    /// The prompt has no words.
    #[error("the prompt is empty; say what is to be done")]
    EmptyPrompt,
    /// The prompt is longer than it may be.
    #[error(
        "the prompt has more than {most} bytes; put what is longer into a file, and name the file"
    )]
    PromptTooLong {
        /// How many bytes it may have.
        most: usize,
    },
    /// There is no such run.
    #[error("there is no run `{0}`")]
    NoRun(RunId),
    /// The run has ended, or is driven by another process.
    #[error("run `{0}` is not under way here")]
    NotUnderWay(RunId),
    /// A run could not begin or go on, or could not be looked at.
    #[error("run `{run}` could not be worked on: {}", chain(.cause))]
    Run {
        /// The run.
        run: RunId,
        /// Why.
        #[source]
        cause: SharedError,
    },
    /// A command did not reach its run.
    #[error(transparent)]
    Control(#[from] levity_core::ControlError),
    /// The journal failed.
    #[error("the journal failed: {}", chain(.0))]
    Journal(#[from] levity_core::JournalError),
}

/// The message and its causes on one line: a `main` that returns the error prints this.
impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&chain(self))
    }
}

/// What kind of error it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// It was put together wrongly.
    Config,
    /// What was asked for is not there.
    NotFound,
    /// Too much at once.
    Full,
    /// What was asked for does not fit how the run stands.
    State,
    /// The run itself failed.
    Run,
    /// A file, a socket, the journal.
    Io,
}

impl Error {
    /// What kind of error it is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Setting { .. }
            | Self::Token { .. }
            | Self::Listen { .. }
            | Self::EmptyPrompt
            | Self::PromptTooLong { .. } => ErrorKind::Config,
            Self::NoRun(_) => ErrorKind::NotFound,
            Self::Full { .. } | Self::JournalBusy { .. } => ErrorKind::Full,
            Self::NotUnderWay(_) | Self::Control(_) => ErrorKind::State,
            Self::Run { .. } => ErrorKind::Run,
            Self::Io { .. } | Self::Journal(_) => ErrorKind::Io,
        }
    }

    /// Whether the same may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Full { .. } | Self::JournalBusy { .. } | Self::Io { .. } => true,
            Self::Journal(error) => error.is_retryable(),
            _ => false,
        }
    }

    pub(crate) fn setting(setting: &'static str, problem: impl Into<String>) -> Self {
        Self::Setting {
            setting,
            problem: problem.into(),
        }
    }

    pub(crate) fn run(run: &RunId, cause: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Run {
            run: run.clone(),
            cause: SharedError::new(cause),
        }
    }
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
