use std::sync::Arc;

use levity_core::text::chain;
use levity_core::{Limit, MemoryError, ModelError, RunId, Stage, Waiting};

use crate::Answer;

/// What an agent's methods return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an agent could not be built, or gave no answer.
///
/// [`partial`](Self::partial) has what a run had reached: its words, its conversation, what it used.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The tools do not fit together.
    #[error(transparent)]
    Tools(#[from] levity_tools::Error),
    /// There is no such model, or none can be chosen.
    #[error(transparent)]
    NoModel(levity_core::Cause),
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
    /// A limit was passed before there was an answer.
    #[error("the limit on {limit} was reached before there was an answer; raise it, or ask for less")]
    Limit {
        /// Which.
        limit: Limit,
        /// What had been reached.
        partial: Box<Answer>,
    },
    /// The run was cancelled.
    #[error("the run was cancelled: {reason}")]
    Cancelled {
        /// Why.
        reason: String,
        /// What had been reached.
        partial: Box<Answer>,
    },
    /// The model could not be called.
    #[error("{}", .source.report())]
    Model {
        /// Why.
        #[source]
        source: ModelError,
        /// What had been reached.
        partial: Box<Answer>,
    },
    /// The model answered, and nothing could be done with it.
    #[error("the model's reply is of no use: {what}")]
    Behaviour {
        /// What is wrong with it.
        what: String,
        /// What had been reached.
        partial: Box<Answer>,
    },
    /// The answer does not have the wanted shape, and asking again did not help.
    #[error("the answer does not have the wanted shape: {complaint}")]
    Output {
        /// What is wrong with it.
        complaint: String,
        /// What had been reached.
        partial: Box<Answer>,
    },
    /// A guard did not let pass what was said, by a person or by the model.
    #[error("`{guard}` blocked the {stage}: {reason}")]
    Blocked {
        /// The guard.
        guard: Arc<str>,
        /// Where.
        stage: Stage,
        /// Why.
        reason: String,
        /// What had been reached.
        partial: Box<Answer>,
    },
    /// The conversation could not be had, or what was said could not be kept in it.
    #[error("the conversation could not be read or kept: {}", chain(.source))]
    Memory {
        /// Why.
        #[source]
        source: MemoryError,
        /// What had been reached: the answer may be there.
        partial: Option<Box<Answer>>,
    },
    /// All that the run does is wait, and it was left in its journal; see [`Run::park`](levity_runtime::Run::park).
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
        /// What had been reached, where that is known.
        partial: Option<Box<Answer>>,
    },
    /// The parts do not fit together: a fault in levity or in a part of your own.
    #[error("the run could not go on: {what}")]
    Internal {
        /// What is wrong.
        what: String,
        /// What had been reached.
        partial: Box<Answer>,
    },
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
    /// The agent was put together wrongly.
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
    /// The conversation could not be had or kept.
    Memory,
    /// The run waits, and was left in its journal.
    Parked,
    /// The run could not be driven on.
    Runtime,
}

impl Error {
    /// What kind of error it is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Tools(_) | Self::NoModel(_) | Self::EmptyPrompt | Self::Setting { .. } => ErrorKind::Config,
            Self::Limit { .. } => ErrorKind::Limit,
            Self::Cancelled { .. } => ErrorKind::Cancelled,
            Self::Model { .. } => ErrorKind::Model,
            Self::Behaviour { .. } => ErrorKind::Behaviour,
            Self::Output { .. } => ErrorKind::Output,
            Self::Blocked { .. } => ErrorKind::Blocked,
            Self::Memory { .. } => ErrorKind::Memory,
            Self::Parked { .. } => ErrorKind::Parked,
            Self::Runtime { .. } | Self::Internal { .. } | Self::Control(_) => ErrorKind::Runtime,
        }
    }

    /// Whether the same run may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Model { source, .. } => source.is_retryable(),
            Self::Runtime { source, .. } => source.is_retryable(),
            Self::Memory { source, .. } => source.is_retryable(),
            _ => false,
        }
    }

    /// What the run had reached.
    pub fn partial(&self) -> Option<&Answer> {
        match self {
            Self::Limit { partial, .. }
            | Self::Cancelled { partial, .. }
            | Self::Model { partial, .. }
            | Self::Behaviour { partial, .. }
            | Self::Output { partial, .. }
            | Self::Blocked { partial, .. }
            | Self::Internal { partial, .. } => Some(partial),
            Self::Runtime { partial, .. } | Self::Memory { partial, .. } => partial.as_deref(),
            _ => None,
        }
    }
}
