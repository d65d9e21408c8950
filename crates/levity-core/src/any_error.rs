use std::sync::Arc;

use crate::text::chain;
use crate::{
    ContextError, ControlError, Divergence, Ending, HistoryError, JournalError, Limit, MemoryError,
    ModelError, Partial, RunId, RunOutput, RuntimeError, SharedError, Stage, Status, ToolError,
    Waiting,
};

/// The result type of methods that build or run something.
///
/// ```
/// fn port(text: &str) -> levity_core::Result<u16> {
///     text.parse().map_err(|_| levity_core::Error::setting("port", "is not a number below 65536"))
/// }
/// assert_eq!(port("no").unwrap_err().to_string(), "`port` is not a number below 65536");
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The common error of builders and runs. `?` converts the errors of all parts of levity into it.
///
/// [`partial`](Self::partial) returns the partial result of the run: its text, its usage and the
/// details of its kind of run.
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
    /// The prompt has no visible text and no other content, such as an image; no run was started.
    #[error("the prompt is empty; describe the task")]
    EmptyPrompt,
    /// A setting has an invalid value.
    #[error("`{setting}` {problem}")]
    Setting {
        /// The name of the setting.
        setting: &'static str,
        /// The problem and its remedy.
        problem: String,
    },
    /// The configuration is inconsistent or incomplete, for example the model, the tools or the
    /// steps of a plan.
    #[error(transparent)]
    Config(SharedError),
    /// A limit was exceeded before there was an answer.
    #[error(
        "the limit on {limit} was reached before there was an answer; raise it, or ask for less"
    )]
    Limit {
        /// The limit that was reached.
        limit: Limit,
        /// The partial result of the run.
        partial: Partial,
    },
    /// The run was cancelled.
    #[error("the run was cancelled: {reason}")]
    Cancelled {
        /// The reason for the cancellation.
        reason: String,
        /// The partial result of the run.
        partial: Partial,
    },
    /// The model could not be called.
    #[error("{}", .source.report())]
    Model {
        /// The underlying error of the model.
        #[source]
        source: ModelError,
        /// The partial result of the run.
        partial: Partial,
    },
    /// The reply of the model could not be used.
    #[error("the model's reply is unusable: {what}")]
    Behaviour {
        /// A description of the problem.
        what: String,
        /// The partial result of the run.
        partial: Partial,
    },
    /// The answer does not match the output schema, even after retries.
    #[error("the answer does not match the output schema: {complaint}")]
    Output {
        /// A description of the mismatch.
        complaint: String,
        /// The partial result of the run.
        partial: Partial,
    },
    /// A guard blocked a message from a person or from the model.
    #[error("`{guard}` blocked the {stage}: {reason}")]
    Blocked {
        /// The name of the guard.
        guard: Arc<str>,
        /// The stage of the run.
        stage: Stage,
        /// The reason for blocking.
        reason: String,
        /// The partial result of the run.
        partial: Partial,
    },
    /// Some of the required steps are not done.
    #[error("the goal was not reached: {why}")]
    Unreached {
        /// The missing steps and the reasons.
        why: String,
        /// The partial result of the run.
        partial: Partial,
    },
    /// The conversation could not be loaded, or the messages could not be saved in it.
    #[error("the conversation could not be read or saved: {}", chain(.source))]
    Memory {
        /// The underlying error of the store.
        #[source]
        source: MemoryError,
        /// The partial result, which may contain the answer.
        partial: Option<Partial>,
    },
    /// The run only waits and was parked in its journal, as `park` of a run requests.
    #[error(
        "run `{run}` is waiting and was parked in its journal; resume it once the wait is over"
    )]
    Parked {
        /// The id of the run.
        run: RunId,
        /// The questions and times that it waits for; empty if only its descendants wait.
        waiting: Vec<Waiting>,
    },
    /// The run could not be driven any further.
    #[error("the run could not continue: {}", chain(.source))]
    Runtime {
        /// The underlying error of the runtime.
        #[source]
        source: RuntimeError,
        /// The partial result, if the run had begun.
        partial: Option<Partial>,
    },
    /// A bug in levity or in one of your own components.
    #[error("internal error in the run: {what}")]
    Internal {
        /// A description of the problem.
        what: String,
        /// The partial result of the run.
        partial: Partial,
    },
    /// A command did not reach its run.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// A component failed: a file, a workspace, a server or a tool.
    #[error(transparent)]
    Other(SharedError),
}

/// Shows the message and its causes on one line, as printed by a `main` that returns the error.
impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&chain(self))
    }
}

/// The kinds of [`Error`].
///
/// ```
/// use levity_core::{Error, ErrorKind};
///
/// let error = Error::from(std::io::Error::other("the disk is full"));
/// let advice = match error.kind() {
///     ErrorKind::Config => "correct the program",
///     ErrorKind::Limit => "raise the limit",
///     _ if error.is_retryable() => "try again later",
///     _ => "read the message",
/// };
/// assert_eq!(advice, "read the message");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The configuration is invalid.
    Config,
    /// A limit was exceeded.
    Limit,
    /// The run was cancelled.
    Cancelled,
    /// The model could not be called.
    Model,
    /// The reply of the model could not be used.
    Behaviour,
    /// The answer does not match the output schema.
    Output,
    /// A guard blocked a message.
    Blocked,
    /// Some of the required steps are not done.
    Unreached,
    /// The conversation could not be loaded or saved.
    Memory,
    /// The run waits and was parked in its journal.
    Parked,
    /// The run could not be driven any further.
    Runtime,
    /// A component of the program failed.
    Other,
}

impl Error {
    /// Creates a configuration error.
    pub fn config(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Config(SharedError::new(error))
    }

    /// Creates a configuration error like [`config`](Self::config), prefixed with its subject.
    pub fn config_of(
        what: &'static str,
        error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::config(ErrorWithSubject {
            what,
            cause: SharedError::new(error),
        })
    }

    /// Creates an error of another component.
    ///
    /// ```
    /// # use levity_core::{Error, ErrorKind};
    /// let error = Error::other("the printer is out of paper");
    /// assert_eq!(error.kind(), ErrorKind::Other);
    /// ```
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Other(SharedError::new(error))
    }

    /// Creates the error of an invalid setting; `problem` completes a sentence that begins with its
    /// name and includes the remedy.
    ///
    /// ```
    /// # use levity_core::{Error, ErrorKind};
    /// let error = Error::setting("retries", "must be below 100");
    /// assert_eq!(error.kind(), ErrorKind::Config);
    /// ```
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

    /// Returns `true` if the same operation may succeed later.
    ///
    /// ```
    /// # use levity_core::Error;
    /// assert!(!Error::config("there is no model of this name").is_retryable());
    /// ```
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

    /// Returns the partial result, if a run had begun.
    ///
    /// ```
    /// use levity_core::{Ending, Error, Limit, Status, StoppedRun};
    ///
    /// let mut ending = Ending::new(Status::Partial(Limit::Turns));
    /// ending.text = "Two of three files are done.".to_owned();
    /// let error: Error = StoppedRun::new("r1".into(), ending, ()).finish(|()| ()).unwrap_err();
    /// let partial = error.partial().map(|partial| partial.text());
    /// assert_eq!(partial, Some("Two of three files are done."));
    /// ```
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

    /// Returns the partial result with the details of its kind of run:
    /// `let answer: Option<Answer> = error.partial_as()`.
    pub fn partial_as<D: Send + Sync + 'static>(&self) -> Option<RunOutput<D>> {
        self.partial()?.downcast()
    }

    /// Returns the original error of a component, if it is an `E`.
    ///
    /// ```
    /// # use levity_core::{Error, ToolError};
    /// let error = Error::config_of("tool `add`", ToolError::failed("the schema is empty"));
    /// assert_eq!(error.to_string(), "tool `add`: the schema is empty");
    /// assert!(error.downcast_ref::<ToolError>().is_some());
    /// ```
    pub fn downcast_ref<E: std::error::Error + 'static>(&self) -> Option<&E> {
        match self {
            Self::Config(cause) | Self::Other(cause) => {
                let error = cause.as_error();
                let about = error
                    .downcast_ref()
                    .map(|ErrorWithSubject { cause, .. }| cause.as_error());
                about.unwrap_or(error).downcast_ref()
            }
            _ => None,
        }
    }
}

/// An error with its subject.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {}", chain(.cause))]
struct ErrorWithSubject {
    what: &'static str,
    cause: SharedError,
}

impl From<RuntimeError> for Error {
    fn from(source: RuntimeError) -> Self {
        Self::stopped(source, None)
    }
}

impl Error {
    /// Creates the error of a run that could not be driven to its end, with its partial result.
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

/// Converts the errors of components into the common error.
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
