use levity_core::text::chain;
use levity_core::{Limit, RunId, Waiting};

use crate::catalogue::CatalogueError;
use crate::fault::Faults;
use crate::finished::Finished;

/// What the methods of a team return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a team could not be made, or a goal was not reached.
///
/// [`partial`](Self::partial) has what a run had reached.
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
        /// What is wrong, and the way out.
        problem: String,
    },
    /// The tools do not fit together.
    #[error(transparent)]
    Tools(#[from] levity_tools::Error),
    /// The agents of a catalogue could not be made.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// The plan cannot be carried out; nothing was begun.
    #[error("the plan cannot be carried out: {0}")]
    Plan(Faults),
    /// Some of what was to be done is not.
    #[error("the goal was not reached: {why}")]
    Unreached {
        /// What is missing, and why.
        why: String,
        /// What was reached.
        partial: Box<Finished>,
    },
    /// A limit was passed before everything was done.
    #[error("the limit on {limit} was reached before everything was done; raise it, or ask for less")]
    Limit {
        /// Which.
        limit: Limit,
        /// What was reached.
        partial: Box<Finished>,
    },
    /// The run was cancelled.
    #[error("the run was cancelled: {reason}")]
    Cancelled {
        /// Why.
        reason: String,
        /// What was reached.
        partial: Box<Finished>,
    },
    /// All that the run does is wait, and it was left in its journal.
    #[error("run `{run}` waits, and was left in its journal; resume it when what it waits for is there")]
    Parked {
        /// The run.
        run: RunId,
        /// What it waits for; empty when only runs below it wait.
        waiting: Vec<Waiting>,
    },
    /// The run could not be driven on.
    #[error("the run could not be driven on: {}", chain(.source))]
    Runtime {
        /// Why.
        #[source]
        source: levity_runtime::Error,
        /// What was reached, where that is known.
        partial: Option<Box<Finished>>,
    },
    /// What an agent's own methods say.
    #[error(transparent)]
    Agent(Box<levity_loop::Error>),
    /// A command did not reach its run.
    #[error(transparent)]
    Control(#[from] levity_runtime::ControlError),
}

impl From<levity_runtime::Error> for Error {
    fn from(source: levity_runtime::Error) -> Self {
        Self::Runtime { source, partial: None }
    }
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
    /// The team was put together wrongly.
    Config,
    /// The plan cannot be carried out.
    Plan,
    /// Some steps failed.
    Unreached,
    /// A limit was passed.
    Limit,
    /// Somebody cancelled it.
    Cancelled,
    /// It waits.
    Parked,
    /// The run could not be driven on.
    Runtime,
}

impl Error {
    /// What kind of error it is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::EmptyPrompt | Self::Setting { .. } | Self::Tools(_) | Self::Catalogue(_) => {
                ErrorKind::Config
            }
            Self::Plan(_) => ErrorKind::Plan,
            Self::Unreached { .. } => ErrorKind::Unreached,
            Self::Limit { .. } => ErrorKind::Limit,
            Self::Cancelled { .. } => ErrorKind::Cancelled,
            Self::Parked { .. } => ErrorKind::Parked,
            Self::Runtime { .. } | Self::Control(_) | Self::Agent(_) => ErrorKind::Runtime,
        }
    }

    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Runtime { source, .. } => source.is_retryable(),
            Self::Unreached { .. } | Self::Parked { .. } => true,
            _ => false,
        }
    }

    /// What a run had reached, where it had begun.
    pub fn partial(&self) -> Option<&Finished> {
        match self {
            Self::Unreached { partial, .. }
            | Self::Limit { partial, .. }
            | Self::Cancelled { partial, .. } => Some(partial),
            Self::Runtime { partial, .. } => partial.as_deref(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use levity_core::{JournalError, JournalErrorKind};

    use super::*;

    #[test]
    fn error_prints_each_cause_once_by_display_and_debug() {
        let journal =
            || JournalError::new(JournalErrorKind::Io, "the disk is full").with_source("no space left");
        let source = || levity_runtime::Error::Journal(journal());
        let agent = levity_loop::Error::Runtime { source: source(), partial: None };
        let errors = [Error::Runtime { source: source(), partial: None }, Error::Agent(Box::new(agent))];
        for error in errors {
            for text in [error.to_string(), format!("{error:?}"), chain(&error)] {
                assert_eq!(text.matches("the disk is full").count(), 1, "{text}");
                assert_eq!(text.matches("no space left").count(), 1, "{text}");
                assert!(!text.contains(['{', '\n']), "{text}");
            }
        }
    }
}
