use std::sync::Arc;

use crate::text::chain;
use crate::{ArgumentProblem, EffectId, Intervention, JournalError, RunId, SharedError, Waiting};

/// The reason why a run could not be driven any further.
///
/// ```
/// # use levity_core::{RunId, RuntimeError};
/// let error = RuntimeError::NotFound(RunId::new("r1"));
/// assert_eq!(error.to_string(), "run `r1` is not in the journal; check its id");
/// assert!(!error.is_retryable() && RuntimeError::Lost(RunId::new("r1")).is_retryable());
/// ```
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// The journal failed; records that it accepted before are safe.
    #[error("the journal failed: {}", chain(.0))]
    Journal(#[source] JournalError),
    /// A new run was given the id of an existing run.
    #[error("run `{0}` exists already; resume it, or choose another id")]
    Exists(RunId),
    /// The run to resume does not exist.
    #[error("run `{0}` is not in the journal; check its id")]
    NotFound(RunId),
    /// The records belong to a machine that cannot be built here.
    #[error("run `{run}` cannot be restored: {reason}")]
    Restore {
        /// The id of the run.
        run: RunId,
        /// The reason for the failure.
        reason: String,
    },
    /// A resource that the run needs before it begins is not available.
    #[error("run `{run}` could not be prepared: {}", chain(.cause))]
    Prepare {
        /// The id of the run.
        run: RunId,
        /// The reason for the failure.
        #[source]
        cause: SharedError,
    },
    /// The run was cancelled before it began.
    #[error("run `{run}` was cancelled before it began: {reason}")]
    Cancelled {
        /// The id of the run.
        run: RunId,
        /// The reason for the cancellation.
        reason: String,
    },
    /// The run cannot be forked at that point.
    #[error("run `{run}` cannot be forked: {reason}")]
    Fork {
        /// The id of the run.
        run: RunId,
        /// The reason for the failure.
        reason: String,
    },
    /// The data to import differs from the data that was exported.
    #[error("line {line} of the export cannot be imported: {}", chain(.cause))]
    Archive {
        /// The number of the line, from 1.
        line: usize,
        /// The problem with the line.
        #[source]
        cause: JournalError,
    },
    /// The machine requests a different effect than the journal recorded.
    #[error(transparent)]
    Diverged(#[from] Divergence),
    /// The machine has not ended, requests no effect and waits for nothing.
    #[error("run `{0}` is stuck: its machine has not ended but requests no effect")]
    Stuck(RunId),
    /// The run only waits and was parked in its journal. Resume it when the event that it waits for
    /// has occurred.
    #[error(
        "run `{run}` is waiting and was parked in its journal; resume it once the wait is over"
    )]
    Parked {
        /// The id of the run.
        run: RunId,
        /// The questions and times that it waits for; empty if only its descendants wait.
        waiting: Vec<Waiting>,
    },
    /// The command or message to the run is invalid for it.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// A blocking call was made where it would block an async runtime.
    #[error("a blocking call was made inside an async runtime; await the run instead")]
    InsideAsync,
    /// The async runtime for a blocking call could not be created.
    #[error("cannot create an async runtime for a blocking call: {0}")]
    NoRuntime(#[source] std::io::Error),
    /// The task that drove the run has ended.
    #[error("the task of run `{0}` ended before the run did")]
    Lost(RunId),
}

/// Shows the message and its causes on one line, as printed by a `main` that returns the error.
impl std::fmt::Debug for RuntimeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&chain(self))
    }
}

impl RuntimeError {
    /// Returns `true` if driving the run again may succeed.
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

/// The point where a replay diverges from its journal.
///
/// ```
/// # use levity_core::{Divergence, EffectId, RunId};
/// let what = "it requests tool `add`, not `sum`";
/// let at = Divergence::new(&RunId::new("r1"), 12, Some(EffectId::new(4)), what);
/// let text = at.since(&["the tools changed".to_owned()]).to_string();
/// assert!(text.starts_with("run `r1` diverges from its journal at record 12: it requests"));
/// assert!(text.ends_with("(since the run was created, the tools changed)"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("run `{run}` diverges from its journal at record {seq}: {what}")]
#[non_exhaustive]
pub struct Divergence {
    /// The id of the run.
    pub run: RunId,
    /// The number of the record.
    pub seq: u64,
    /// The effect that differs, if any.
    pub effect: Option<EffectId>,
    /// A description of the difference.
    pub what: String,
}

impl Divergence {
    /// Adds the changes to the setup since the run was created.
    #[must_use]
    pub fn since(mut self, changes: &[String]) -> Self {
        if !changes.is_empty() {
            self.what.push_str(&format!(
                " (since the run was created, {})",
                changes.join(", ")
            ));
        }
        self
    }

    /// Creates a divergence at a record.
    pub fn new(run: &RunId, seq: u64, effect: Option<EffectId>, what: impl Into<String>) -> Self {
        Self {
            run: run.clone(),
            seq,
            effect,
            what: what.into(),
        }
    }
}

/// The reason why a command did not reach a run.
///
/// ```
/// # use levity_core::{ControlError, Error, ErrorKind, RunId};
/// let error = Error::from(ControlError::NotRunning(RunId::new("r1")));
/// assert_eq!(error.kind(), ErrorKind::Runtime);
/// assert_eq!(error.to_string(), "run `r1` is not running");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The run has ended or never existed.
    #[error("run `{0}` is not running")]
    NotRunning(RunId),
    /// No agent of this name is running below the run.
    #[error("agent `{0}` is not running")]
    AgentNotRunning(Arc<str>),
    /// The run has too many pending messages; send more after its next model call.
    #[error("run `{0}` has too many pending messages; send more after its next model call")]
    Full(RunId),
    /// A guard blocked the message; the run continues without it.
    #[error("the message to run `{run}` was not delivered: {intervention}")]
    Blocked {
        /// The id of the run.
        run: RunId,
        /// The guard and its reason.
        intervention: Intervention,
    },
    /// The run has guards for its input, but no process drives it and so none can check the
    /// message.
    #[error(
        "run `{0}` has guards for its input but no process drives it; resume it and send the \
             message then, or send it with `Agent::send_request`"
    )]
    NotDriven(RunId),
    /// The run waits for no such decision: it was made, or the question was withdrawn.
    #[error("run `{run}` is not waiting for a decision on effect {effect}")]
    NotAsked {
        /// The id of the run.
        run: RunId,
        /// The effect of the question.
        effect: EffectId,
    },
    /// The arguments of an edited call do not match the schema of its tool; the question stays
    /// open.
    #[error(
        "the arguments for effect {effect} of run `{run}` are not valid: {}; correct them and \
            decide again",
        ArgumentProblem::join(.problems)
    )]
    InvalidArguments {
        /// The id of the run.
        run: RunId,
        /// The effect of the question.
        effect: EffectId,
        /// The problems, at most nine.
        problems: Vec<ArgumentProblem>,
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
