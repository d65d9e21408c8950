//! What the end of a run means.

use levity_core::{Ending, Failure, Machine as _, MemoryError, RunId, Status};
use levity_runtime::{Done, Stopped};

use crate::answer::Answer;
use crate::error::{Error, Result};
use crate::machine::AgentMachine;

/// Turns the end of a run into an answer, or an error that carries what was reached.
pub(crate) fn conclude(ended: Result<Done<AgentMachine>, Stopped<AgentMachine>>) -> Result<Answer> {
    match ended {
        Ok(Done { run, machine, .. }) => match machine.ending().cloned() {
            Some(ending) => judge(answer(run, machine, ending)),
            None => Err(Error::Runtime { source: levity_runtime::Error::Lost(run), partial: None }),
        },
        Err(Stopped { error: levity_runtime::Error::Parked { run, waiting }, .. }) => {
            Err(Error::Parked { run, waiting })
        }
        Err(Stopped { run, machine, error, .. }) => {
            if let Some(source) = cause_of::<MemoryError>(&error) {
                return Err(Error::Memory { source, partial: None });
            }
            let partial = machine.map(|machine| {
                let (usage, stats) = machine.so_far();
                let mut ending = Ending::new(Status::Failed(Failure::Internal(error.to_string())));
                ending.text = machine.last_words();
                (ending.usage, ending.stats) = (usage, stats);
                ending.signals = machine.signals().to_vec();
                Box::new(answer(run, machine, ending))
            });
            Err(Error::Runtime { source: error, partial })
        }
    }
}

/// The reason why a run did not begin, if it was a `T`: for instance, a conversation that could not be loaded.
fn cause_of<T: std::error::Error + Clone + 'static>(error: &levity_runtime::Error) -> Option<T> {
    match error {
        levity_runtime::Error::Prepare { cause, .. } => cause.as_error().downcast_ref().cloned(),
        _ => None,
    }
}

fn answer(run: RunId, machine: AgentMachine, ending: Ending) -> Answer {
    Answer::new(run, ending, machine)
}

fn judge(answer: Answer) -> Result<Answer> {
    let status = answer.status().clone();
    let partial = Box::new(answer);
    Err(match status {
        Status::Partial(limit) => Error::Limit { limit, partial },
        Status::Cancelled { reason } => Error::Cancelled { reason, partial },
        Status::Failed(Failure::Model(source)) => Error::Model { source, partial },
        Status::Failed(Failure::Behaviour(what)) => Error::Behaviour { what, partial },
        Status::Failed(Failure::Output(complaint)) => Error::Output { complaint, partial },
        Status::Failed(Failure::Memory(source)) => Error::Memory { source, partial: Some(partial) },
        Status::Failed(Failure::Blocked(by)) => {
            let reason = by.blocked.unwrap_or_default();
            Error::Blocked { guard: by.guard, stage: by.stage, reason, partial }
        }
        Status::Failed(failure) => Error::Internal { what: failure.to_string(), partial },
        _ => return Ok(*partial),
    })
}
