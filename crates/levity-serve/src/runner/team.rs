use async_trait::async_trait;
use levity_core::{Ask, Cause, Event, RunId};
use levity_dag::{Error as TeamError, Team, TeamHandle};
use levity_runtime::{Runtime, Watcher};

use super::{Runner, Setup, Started};
use crate::error::{Error, Result};

#[async_trait]
impl Runner for Team {
    fn runtime(&self) -> &Runtime {
        Team::runtime(self)
    }

    fn talks(&self) -> bool {
        false
    }

    fn start(&self, goal: &str, setup: Setup) -> Result<Started> {
        let Setup { id, conversation, watcher, .. } = setup;
        if conversation.is_some() {
            return Err(Error::setting("conversation", "is not kept by a team; leave it out"));
        }
        let run = self.run(goal).id(id.clone()).on_event(move |event| watcher(event));
        Ok(begun(run.start().map_err(|error| Error::run(&id, error))?))
    }

    async fn resume(&self, run: &RunId, watcher: Watcher) -> Result<Started> {
        let resumed = Team::resume(self, run.clone()).on_event(move |event| watcher(event));
        Ok(begun(resumed.start().await))
    }

    async fn history(&self, run: &RunId) -> Result<Vec<Event>> {
        Team::history(self, run).await.map_err(|error| lost(run, error))
    }

    async fn asks(&self, run: &RunId) -> Result<Vec<Ask>> {
        Team::asks(self, run).await.map_err(|error| lost(run, error))
    }
}

fn begun(handle: TeamHandle) -> Started {
    let control = handle.control().clone();
    Started::new(control, async { handle.await.err().and_then(stopped) })
}

fn stopped(error: TeamError) -> Option<Cause> {
    match error {
        TeamError::Runtime { source, .. } => Some(Cause::new(source)),
        error @ (TeamError::Parked { .. } | TeamError::Plan(_) | TeamError::Agent(_)) => {
            Some(Cause::new(error))
        }
        _ => None,
    }
}

fn lost(run: &RunId, error: TeamError) -> Error {
    match error {
        TeamError::Runtime { source: levity_runtime::Error::NotFound(run), .. } => Error::NoRun(run),
        error => Error::run(run, error),
    }
}
