use std::sync::Arc;

use crate::text::chain;
use crate::{EffectId, Intervention, JournalError, RunId, SharedError, Waiting};

/// Why a run could not be driven on.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// The journal failed; what it had taken before is safe.
    #[error("the journal failed: {}", chain(.0))]
    Journal(#[source] JournalError),
    /// A new run was to have the id of an old one.
    #[error("run `{0}` exists already; resume it, or choose another id")]
    Exists(RunId),
    /// There is no such run to resume.
    #[error("run `{0}` is not in the journal")]
    NotFound(RunId),
    /// The journal's records belong to a machine that cannot be built here.
    #[error("run `{run}` cannot be restored: {reason}")]
    Restore {
        /// The run.
        run: RunId,
        /// Why not.
        reason: String,
    },
    /// What the run needs before it can begin could not be had.
    #[error("run `{run}` could not be prepared: {}", chain(.cause))]
    Prepare {
        /// The run.
        run: RunId,
        /// Why not.
        #[source]
        cause: SharedError,
    },
    /// The run was cancelled before it began.
    #[error("run `{run}` was cancelled before it began: {reason}")]
    Cancelled {
        /// The run.
        run: RunId,
        /// Why.
        reason: String,
    },
    /// A run cannot be forked there.
    #[error("run `{run}` cannot be forked: {reason}")]
    Fork {
        /// The run.
        run: RunId,
        /// Why not.
        reason: String,
    },
    /// What was to be imported is not as it was exported.
    #[error("line {line} of the export cannot be taken in: {}", chain(.cause))]
    Archive {
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        #[source]
        cause: JournalError,
    },
    /// The machine does not want what the journal says it wanted.
    #[error(transparent)]
    Diverged(#[from] Divergence),
    /// The machine has not ended, wants nothing and waits for nothing.
    #[error("run `{0}` is stuck: its machine wants nothing and has not ended")]
    Stuck(RunId),
    /// All that the run does is wait, and it was left in its journal; resume it when what it waits
    /// for is there.
    #[error("run `{run}` waits, and was left in its journal")]
    Parked {
        /// The run.
        run: RunId,
        /// What it waits for; empty when only runs below it wait.
        waiting: Vec<Waiting>,
    },
    /// What was to be told to the run makes no sense to it.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// A blocking call was made where it would hold up an async runtime.
    #[error("a blocking call was made inside an async runtime; await the run there")]
    InsideAsync,
    /// The async runtime behind a blocking call could not be made.
    #[error("no async runtime could be made for a blocking call: {0}")]
    NoRuntime(#[source] std::io::Error),
    /// The task that drove the run is gone.
    #[error("the task of run `{0}` ended before the run did")]
    Lost(RunId),
}

/// The message and its causes on one line: a `main` that returns the error prints this.
impl std::fmt::Debug for RuntimeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&chain(self))
    }
}

impl RuntimeError {
    /// Whether driving the run again may succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Journal(error) => error.is_retryable(),
            Self::Lost(_) => true,
            _ => false,
        }
    }
}

impl From<JournalError> for RuntimeError {
    fn from(error: JournalError) -> Self {
        Self::Journal(error)
    }
}

/// Where a replay parts from its journal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("run `{run}` parts from its journal at record {seq}: {what}")]
#[non_exhaustive]
pub struct Divergence {
    /// The run.
    pub run: RunId,
    /// The record.
    pub seq: u64,
    /// The effect, where it is about one.
    pub effect: Option<EffectId>,
    /// What differs, in words.
    pub what: String,
}

impl Divergence {
    /// Adds what has changed since the run was made.
    #[must_use]
    pub fn since(mut self, changes: &[String]) -> Self {
        if !changes.is_empty() {
            self.what
                .push_str(&format!(" (since it was made, {})", changes.join(", ")));
        }
        self
    }

    /// A replay that parts from its journal at a record.
    pub fn new(run: &RunId, seq: u64, effect: Option<EffectId>, what: impl Into<String>) -> Self {
        Self {
            run: run.clone(),
            seq,
            effect,
            what: what.into(),
        }
    }
}

/// Why a command did not reach a run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The run has ended, or never was.
    #[error("run `{0}` is not running")]
    NotRunning(RunId),
    /// No agent of this name is at work below the run.
    #[error("`{0}` is not at work")]
    NotAtWork(Arc<str>),
    /// The host has said a lot, and the model has not been called since; say it later.
    #[error("run `{0}` has enough to take in before the model is called again")]
    Full(RunId),
    /// A guard did not let it through; the run goes on without it.
    #[error("run `{run}` was not told: {intervention}")]
    Blocked {
        /// The run.
        run: RunId,
        /// Which guard, and why.
        intervention: Intervention,
    },
    /// Guards look at what the run is told, and nobody drives it who could ask them.
    #[error(
        "run `{0}` has guards that look at what it is told, and nobody drives it; resume it and \
            tell it then, or have \
         its agent tell it (`Agent::tell`)"
    )]
    Unheard(RunId),
    /// Nobody waits for this decision: it was made, or the question was withdrawn.
    #[error("run `{run}` does not wait for a decision on effect {effect}")]
    NotAsked {
        /// The run.
        run: RunId,
        /// The question.
        effect: EffectId,
    },
}

#[cfg(test)]
mod tests {
    use crate::JournalErrorKind;

    use super::*;

    #[test]
    fn error_prints_each_cause_once_by_display_and_debug() {
        let journal = || {
            JournalError::new(JournalErrorKind::Io, "the disk is full").with_source("no space left")
        };
        let run = RunId::new("r");
        let cause = SharedError::new(journal());
        let errors = [
            RuntimeError::Journal(journal()),
            RuntimeError::Prepare { run, cause },
            RuntimeError::Archive {
                line: 1,
                cause: journal(),
            },
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
