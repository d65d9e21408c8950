use std::sync::Arc;

use crate::text::chain;
use crate::{
    ContextError, ControlError, Divergence, Ending, Finished, HistoryError, JournalError, Limit,
    MemoryError, ModelError, Partial, RunId, RuntimeError, SharedError, Stage, Status, ToolError,
    Waiting,
};

/// The result of methods that build or run something.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The one error of builders and runs. `?` turns the errors of all parts of levity into it.
///
/// [`partial`](Self::partial) has what a run had reached: its words, what it used, and all else its
/// kind of run has.
///
/// ```
/// use levity_core::{Error, ErrorKind, JournalError, JournalErrorKind, Result};
///
/// fn opens() -> Result<()> {
///     Err(JournalError::new(JournalErrorKind::Busy, "another process drives the run"))?
/// }
///
/// let error: Error = opens().unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Runtime);
/// assert!(error.to_string().contains("another process drives the run"));
/// ```
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The goal has no visible text and nothing else, such as a picture; nothing was begun.
    #[error("the prompt is empty; say what is to be done")]
    EmptyPrompt,
    /// A setting makes no sense.
    #[error("`{setting}` {problem}")]
    Setting {
        /// The setting.
        setting: &'static str,
        /// The problem, and the way out.
        problem: String,
    },
    /// The parts do not fit together, or one of them is missing: a model, tools, the steps of a
    /// plan.
    #[error(transparent)]
    Config(SharedError),
    /// A limit was passed before there was an answer.
    #[error(
        "the limit on {limit} was reached before there was an answer; raise it, or ask for less"
    )]
    Limit {
        /// The limit.
        limit: Limit,
        /// The result so far.
        partial: Partial,
    },
    /// The run was cancelled.
    #[error("the run was cancelled: {reason}")]
    Cancelled {
        /// The reason.
        reason: String,
        /// The result so far.
        partial: Partial,
    },
    /// The model could not be called.
    #[error("{}", .source.report())]
    Model {
        /// The reason.
        #[source]
        source: ModelError,
        /// The result so far.
        partial: Partial,
    },
    /// The model answered, and nothing could be done with it.
    #[error("the model's reply is of no use: {what}")]
    Behaviour {
        /// The problem.
        what: String,
        /// The result so far.
        partial: Partial,
    },
    /// The answer does not have the wanted shape, and asking again did not help.
    #[error("the answer does not have the wanted shape: {complaint}")]
    Output {
        /// The problem.
        complaint: String,
        /// The result so far.
        partial: Partial,
    },
    /// A guard did not let pass what was said, by a person or by the model.
    #[error("`{guard}` blocked the {stage}: {reason}")]
    Blocked {
        /// The guard.
        guard: Arc<str>,
        /// The stage of the run.
        stage: Stage,
        /// The reason.
        reason: String,
        /// The result so far.
        partial: Partial,
    },
    /// Some of what was to be done is not.
    #[error("the goal was not reached: {why}")]
    Unreached {
        /// The steps that are missing, and the reasons.
        why: String,
        /// The result so far.
        partial: Partial,
    },
    /// The conversation could not be had, or what was said could not be kept in it.
    #[error("the conversation could not be read or kept: {}", chain(.source))]
    Memory {
        /// The reason.
        #[source]
        source: MemoryError,
        /// The result so far, which may have the answer.
        partial: Option<Partial>,
    },
    /// All that the run does is wait, and it was left in its journal, as `park` of a run wants it.
    #[error(
        "run `{run}` waits, and was left in its journal; resume it when what it waits for is there"
    )]
    Parked {
        /// The run.
        run: RunId,
        /// The questions and times that it waits for; empty when only runs below it wait.
        waiting: Vec<Waiting>,
    },
    /// The run could not be driven on.
    #[error("the run could not be driven on: {}", chain(.source))]
    Runtime {
        /// The reason.
        #[source]
        source: RuntimeError,
        /// The result so far, if the run had begun.
        partial: Option<Partial>,
    },
    /// A fault in levity or in a part of your own.
    #[error("the run could not go on: {what}")]
    Internal {
        /// The problem.
        what: String,
        /// The result so far.
        partial: Partial,
    },
    /// A command did not reach its run.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// A part of the program failed: a file, a workspace, a server, a tool.
    #[error(transparent)]
    Other(SharedError),
}

/// The message and its causes on one line: a `main` that returns the error prints this.
impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&chain(self))
    }
}

/// The kinds of [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Something was put together wrongly.
    Config,
    /// A limit was passed.
    Limit,
    /// The run was cancelled.
    Cancelled,
    /// The model could not be called.
    Model,
    /// The model did something of no use.
    Behaviour,
    /// The answer has another shape.
    Output,
    /// A guard did not let something pass.
    Blocked,
    /// Some of what was to be done is not.
    Unreached,
    /// The conversation could not be had or kept.
    Memory,
    /// The run waits, and was left in its journal.
    Parked,
    /// The run could not be driven on.
    Runtime,
    /// A part of the program failed.
    Other,
}

impl Error {
    /// Something that was put together wrongly.
    pub fn config(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Config(SharedError::new(error))
    }

    /// As [`config`](Self::config), with words before the error's own that say what it is about.
    pub fn config_of(
        what: &'static str,
        error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::config(About {
            what,
            cause: SharedError::new(error),
        })
    }

    /// Any other error of a part of the program.
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Other(SharedError::new(error))
    }

    /// A setting that makes no sense; `problem` goes on from its name, and says the way out.
    pub fn setting(setting: &'static str, problem: impl Into<String>) -> Self {
        Self::Setting {
            setting,
            problem: problem.into(),
        }
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::EmptyPrompt | Self::Setting { .. } | Self::Config(_) => ErrorKind::Config,
            Self::Limit { .. } => ErrorKind::Limit,
            Self::Cancelled { .. } => ErrorKind::Cancelled,
            Self::Model { .. } => ErrorKind::Model,
            Self::Behaviour { .. } => ErrorKind::Behaviour,
            Self::Output { .. } => ErrorKind::Output,
            Self::Blocked { .. } => ErrorKind::Blocked,
            Self::Unreached { .. } => ErrorKind::Unreached,
            Self::Memory { .. } => ErrorKind::Memory,
            Self::Parked { .. } => ErrorKind::Parked,
            Self::Runtime { .. } | Self::Internal { .. } | Self::Control(_) => ErrorKind::Runtime,
            Self::Other(_) => ErrorKind::Other,
        }
    }

    /// Whether the same may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Model { source, .. } => source.is_retryable(),
            Self::Runtime { source, .. } => source.is_retryable(),
            Self::Memory { source, .. } => source.is_retryable(),
            Self::Unreached { .. } => true,
            Self::Other(cause) => cause
                .as_error()
                .downcast_ref()
                .is_some_and(ModelError::is_retryable),
            _ => false,
        }
    }

    /// Returns the result so far, if a run had begun.
    pub fn partial(&self) -> Option<&Partial> {
        match self {
            Self::Limit { partial, .. }
            | Self::Cancelled { partial, .. }
            | Self::Model { partial, .. }
            | Self::Behaviour { partial, .. }
            | Self::Output { partial, .. }
            | Self::Blocked { partial, .. }
            | Self::Unreached { partial, .. }
            | Self::Internal { partial, .. } => Some(partial),
            Self::Runtime { partial, .. } | Self::Memory { partial, .. } => partial.as_ref(),
            _ => None,
        }
    }

    /// The same as the result of its kind of run:
    /// `let answer: Option<Answer> = error.partial_as()`.
    pub fn partial_as<D: Send + Sync + 'static>(&self) -> Option<Finished<D>> {
        self.partial()?.downcast()
    }

    /// The error of a part that became this one, if it was an `E`.
    pub fn downcast_ref<E: std::error::Error + 'static>(&self) -> Option<&E> {
        match self {
            Self::Config(cause) | Self::Other(cause) => {
                let error = cause.as_error();
                let about = error
                    .downcast_ref()
                    .map(|About { cause, .. }| cause.as_error());
                about.unwrap_or(error).downcast_ref()
            }
            _ => None,
        }
    }
}

/// An error, and what it is about.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {}", chain(.cause))]
struct About {
    what: &'static str,
    cause: SharedError,
}

impl From<RuntimeError> for Error {
    fn from(source: RuntimeError) -> Self {
        Self::stopped(source, None)
    }
}

impl Error {
    /// A run that could not be driven to its end, with what it had reached.
    pub fn stopped(source: RuntimeError, partial: Option<Partial>) -> Self {
        match source {
            RuntimeError::Parked { run, waiting } => Self::Parked { run, waiting },
            RuntimeError::Cancelled { run, reason } => {
                let ending = Ending::new(Status::Cancelled {
                    reason: reason.clone(),
                });
                Self::Cancelled {
                    reason,
                    partial: partial.unwrap_or_else(|| Partial::new(run, ending)),
                }
            }
            RuntimeError::Prepare { ref cause, .. } => {
                match cause.as_error().downcast_ref::<MemoryError>() {
                    Some(source) => Self::Memory {
                        source: source.clone(),
                        partial,
                    },
                    None => Self::Runtime { source, partial },
                }
            }
            source => Self::Runtime { source, partial },
        }
    }
}

impl From<JournalError> for Error {
    fn from(error: JournalError) -> Self {
        RuntimeError::from(error).into()
    }
}

impl From<Divergence> for Error {
    fn from(error: Divergence) -> Self {
        RuntimeError::from(error).into()
    }
}

impl From<MemoryError> for Error {
    fn from(source: MemoryError) -> Self {
        Self::Memory {
            source,
            partial: None,
        }
    }
}

/// Makes errors of parts into the one error.
macro_rules! others {
    ($($error:ty),*) => {
        $(impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self::other(error)
            }
        })*
    };
}

others!(
    ModelError,
    ToolError,
    HistoryError,
    ContextError,
    std::io::Error,
    serde_json::Error
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::JournalErrorKind;

    #[test]
    fn error_prints_each_cause_once_by_display_and_debug() {
        let journal = || {
            JournalError::new(JournalErrorKind::Io, "the disk is full").with_source("no space left")
        };
        let errors = [
            Error::from(journal()),
            Error::other(journal()),
            Error::config(journal()),
        ];
        for error in errors {
            for text in [error.to_string(), format!("{error:?}"), chain(&error)] {
                assert_eq!(text.matches("the disk is full").count(), 1, "{text}");
                assert!(!text.contains(['{', '\n']), "{text}");
            }
            assert_eq!(
                chain(&error).matches("no space left").count(),
                1,
                "{error:?}"
            );
        }
    }
}
