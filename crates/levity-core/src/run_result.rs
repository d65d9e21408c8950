use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{Ending, Error, Failure, Finish, RunId, Signal, Stats, Status, Usage};

/// The result of a run of any kind: its text, its value and its usage.
///
/// `D` holds the details of one kind of run, such as the history of an agent or the steps of a
/// team. You call its methods on the result itself.
///
/// The result displays as its text. Clones share all data.
///
/// ```
/// use levity_core::{Ending, RunOutput, StoppedRun, Status};
///
/// struct Words(usize);
///
/// let mut ending = Ending::new(Status::Complete);
/// ending.text = "High water is at six.".to_owned();
/// let reached = StoppedRun::new("r1".into(), ending, ());
/// let finished: RunOutput<Words> = reached.finish(|()| Words(5))?;
/// assert_eq!((finished.text(), finished.0), ("High water is at six.", 5));
/// # Ok::<(), levity_core::Error>(())
/// ```
pub struct RunOutput<D>(Arc<Inner<D>>);

struct Inner<D> {
    run: RunId,
    ending: Ending,
    details: D,
}

impl<D> RunOutput<D> {
    /// Returns the id of the run.
    pub fn run(&self) -> &RunId {
        &self.0.run
    }

    /// Returns the text of the answer.
    pub fn text(&self) -> &str {
        &self.0.ending.text
    }

    /// Returns the structured output, if an output schema was set.
    pub fn value(&self) -> Option<&Value> {
        self.0.ending.value.as_ref()
    }

    /// Returns the final status of the run.
    pub fn status(&self) -> &Status {
        &self.0.ending.status
    }

    /// Returns `true` if a limit forced the answer before the work was complete.
    pub fn is_best_effort(&self) -> bool {
        matches!(self.status(), Status::BestEffort(_))
    }

    /// Returns the reason why the model stopped its last reply. [`Finish::Length`] means that the
    /// reply was cut short.
    pub fn finish(&self) -> Option<&Finish> {
        self.0.ending.finish.as_ref()
    }

    /// Returns the tokens and money used, including all descendants.
    pub fn usage(&self) -> Usage {
        self.0.ending.usage
    }

    /// Returns the counts of turns and calls. A team or a swarm includes those of its child runs;
    /// an agent counts only its own.
    pub fn stats(&self) -> Stats {
        self.0.ending.stats
    }

    /// Returns the signals of the model in order; a signal is a call of a signal tool.
    pub fn signals(&self) -> &[Signal] {
        &self.0.ending.signals
    }
}

impl<D: Send + Sync + 'static> RunOutput<D> {
    /// Deserializes the structured output as a `T`.
    ///
    /// # Errors
    /// [`Error::Output`] if no output schema was set or the value does not fit `T`.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, Error> {
        let value = self.value().unwrap_or(&Value::Null);
        T::deserialize(value).map_err(|error| Error::Output {
            complaint: error.to_string(),
            partial: self.partial(),
        })
    }

    fn partial(&self) -> Partial {
        Partial(Box::new(self.0.clone()))
    }

    /// Returns the error for an ending without an answer.
    fn error(&self) -> Option<Error> {
        let partial = self.partial();
        Some(match self.status().clone() {
            Status::Complete | Status::BestEffort(_) => return None,
            Status::Partial(limit) => Error::Limit { limit, partial },
            Status::Cancelled { reason } => Error::Cancelled { reason, partial },
            Status::Failed(failure) => match failure {
                Failure::Model(source) => Error::Model { source, partial },
                Failure::Behaviour(what) => Error::Behaviour { what, partial },
                Failure::Output(complaint) => Error::Output { complaint, partial },
                Failure::Memory(source) => Error::Memory {
                    source,
                    partial: Some(partial),
                },
                Failure::GoalNotReached(why) => Error::Unreached { why, partial },
                Failure::Blocked(by) => {
                    let reason = by.blocked.unwrap_or_default();
                    Error::Blocked {
                        guard: by.guard,
                        stage: by.stage,
                        reason,
                        partial,
                    }
                }
                failure => Error::Internal {
                    what: failure.to_string(),
                    partial,
                },
            },
        })
    }
}

impl<D> Clone for RunOutput<D> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<D> Deref for RunOutput<D> {
    type Target = D;

    fn deref(&self) -> &D {
        &self.0.details
    }
}

impl<D> fmt::Display for RunOutput<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// Shows the run and its status, and nothing of the conversation.
impl<D> fmt::Debug for RunOutput<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunOutput")
            .field("run", self.run())
            .field("status", self.status())
            .finish_non_exhaustive()
    }
}

/// A machine that has stopped, with the ending of its run.
///
/// ```
/// # use levity_core::{Ending, Status, StoppedRun};
/// let reached = StoppedRun::new("r1".into(), Ending::new(Status::Complete), "the machine");
/// assert_eq!(reached.finish(|machine| machine.len())?.run().as_str(), "r1");
/// # Ok::<(), levity_core::Error>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct StoppedRun<M> {
    /// The id of the run.
    pub run: RunId,
    /// The ending or, for a run that could not be driven to its end, the partial result.
    pub ending: Ending,
    /// The machine in its last state.
    pub machine: M,
}

impl<M> StoppedRun<M> {
    /// Creates the end of a run.
    pub fn new(run: RunId, ending: Ending, machine: M) -> Self {
        Self {
            run,
            ending,
            machine,
        }
    }

    /// Returns the result of the run, with the details that `details` takes from the machine.
    ///
    /// # Errors
    /// Returns an error if the run ended without an answer; the error contains the partial result.
    ///
    /// ```
    /// # use levity_core::{Ending, ErrorKind, Status, StoppedRun};
    /// let status = Status::Cancelled { reason: "no longer needed".to_owned() };
    /// let stopped = StoppedRun::new("r1".into(), Ending::new(status), "the machine");
    /// let error = stopped.finish(|machine| machine.len()).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Cancelled);
    /// assert_eq!(error.partial().map(|partial| partial.run().as_str()), Some("r1"));
    /// ```
    pub fn finish<D: Send + Sync + 'static>(
        self,
        details: impl FnOnce(M) -> D,
    ) -> Result<RunOutput<D>, Error> {
        let Self {
            run,
            ending,
            machine,
        } = self;
        let finished = RunOutput(Arc::new(Inner {
            run,
            ending,
            details: details(machine),
        }));
        match finished.error() {
            Some(error) => Err(error),
            None => Ok(finished),
        }
    }
}

/// The partial result of a run that ended without an answer; see [`Error::partial`].
///
/// ```
/// use levity_core::{Ending, ErrorKind, Status, StoppedRun};
///
/// struct Words(usize);
///
/// let status = Status::Cancelled { reason: "no longer needed".to_owned() };
/// let stopped = StoppedRun::new("r1".into(), Ending::new(status), 3);
/// let error = stopped.finish(Words).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Cancelled);
/// assert_eq!(error.partial_as::<Words>().map(|words| words.0), Some(3));
/// ```
// Boxed, to keep the error that contains it small.
#[derive(Clone)]
pub struct Partial(Box<Arc<dyn AnyResult>>);

trait AnyResult: Any + Send + Sync {
    fn run(&self) -> &RunId;
    fn ending(&self) -> &Ending;
}

impl<D: Send + Sync + 'static> AnyResult for Inner<D> {
    fn run(&self) -> &RunId {
        &self.run
    }

    fn ending(&self) -> &Ending {
        &self.ending
    }
}

impl Partial {
    /// Creates the result of a run that never began and so has no machine.
    pub(crate) fn new(run: RunId, ending: Ending) -> Self {
        Self(Box::new(Arc::new(Inner {
            run,
            ending,
            details: (),
        })))
    }

    /// Returns the id of the run.
    pub fn run(&self) -> &RunId {
        self.0.run()
    }

    /// Returns the last text of the model, if any.
    pub fn text(&self) -> &str {
        &self.0.ending().text
    }

    /// Returns the final status of the run.
    pub fn status(&self) -> &Status {
        &self.0.ending().status
    }

    /// Returns the tokens and money used, including all descendants.
    pub fn usage(&self) -> Usage {
        self.0.ending().usage
    }

    /// Returns the counts of turns and calls. A team or a swarm includes those of its child runs;
    /// an agent counts only its own.
    pub fn stats(&self) -> Stats {
        self.0.ending().stats
    }

    /// Returns the signals of the model in order; a signal is a call of a signal tool.
    pub fn signals(&self) -> &[Signal] {
        &self.0.ending().signals
    }

    /// Returns the whole result if it is of this kind:
    /// `let answer: Option<Answer> = partial.downcast()`.
    pub fn downcast<D: Send + Sync + 'static>(&self) -> Option<RunOutput<D>> {
        let any: Arc<dyn Any + Send + Sync> = (*self.0).clone();
        any.downcast::<Inner<D>>().ok().map(RunOutput)
    }
}

/// Shows the run and its status, and nothing of the conversation.
impl fmt::Debug for Partial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partial")
            .field("run", self.run())
            .field("status", self.status())
            .finish_non_exhaustive()
    }
}
