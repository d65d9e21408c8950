use async_trait::async_trait;
use levity_core::{Ask, Cause, Event, RunId};
use levity_runtime::{Runtime, Watcher};
use levity_swarm::{Error as SwarmError, Swarm, SwarmRun};

use super::{Runner, Setup, Started};
use crate::error::{Error, Result};

#[async_trait]
impl Runner for Swarm {
    fn runtime(&self) -> &Runtime {
        Swarm::runtime(self)
    }

    fn talks(&self) -> bool {
        true
    }

    fn start(&self, goal: &str, setup: Setup) -> Result<Started> {
        let Setup { id, conversation, watcher, .. } = setup;
        let mut run = self.run(goal).id(id.clone());
        if let Some(conversation) = conversation {
            run = run.conversation(conversation);
        }
        begin(&id, run, watcher)
    }

    async fn resume(&self, run: &RunId, watcher: Watcher) -> Result<Started> {
        begin(run, Swarm::resume(self, run.clone()), watcher)
    }

    async fn history(&self, run: &RunId) -> Result<Vec<Event>> {
        Swarm::history(self, run).await.map_err(|error| lost(run, error))
    }

    async fn asks(&self, run: &RunId) -> Result<Vec<Ask>> {
        Swarm::asks(self, run).await.map_err(|error| lost(run, error))
    }
}

fn begin(id: &RunId, run: SwarmRun, watcher: Watcher) -> Result<Started> {
    let handle = run.on_event(move |event| watcher(event)).start().map_err(|error| Error::run(id, error))?;
    let control = handle.control().clone();
    Ok(Started::new(control, async { handle.await.err().and_then(stopped) }))
}

fn stopped(error: SwarmError) -> Option<Cause> {
    match error {
        SwarmError::Runtime { source, .. } => Some(Cause::new(source)),
        error @ (SwarmError::Parked { .. }
        | SwarmError::EmptyPrompt
        | SwarmError::Setting { .. }
        | SwarmError::Agent(_)) => Some(Cause::new(error)),
        _ => None,
    }
}

fn lost(run: &RunId, error: SwarmError) -> Error {
    match error {
        SwarmError::Runtime { source: levity_runtime::Error::NotFound(run), .. } => Error::NoRun(run),
        error => Error::run(run, error),
    }
}
