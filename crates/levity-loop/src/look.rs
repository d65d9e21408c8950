//! Looking at runs that nobody drives.

use levity_core::{Ask, Digest, Effect, Executor, Machine, Record, RunId};
use levity_runtime::{Replay, Runtime, check_setup, replay};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::agent::Agent;
use crate::error::{Error, Result};
use crate::executor::MODEL;
use crate::machine::AgentMachine;
use crate::output::OutputCheck;

impl Agent {
    /// Folds a run of this agent again without performing anything, and tells its events, the same to the
    /// byte. A run whose answer was wanted as a type needs [`replay_typed`](Self::replay_typed).
    ///
    /// # Errors
    /// When there is no such run, or at the first thing that is not as it was: the instructions, a tool, the
    /// code. The error names it. Another model makes no difference.
    pub async fn replay(&self, run: &RunId) -> Result<Replay<AgentMachine>> {
        self.replay_as(run, None).await
    }

    /// Folds a run again whose answer was wanted as a `T`.
    ///
    /// # Errors
    /// As [`replay`](Self::replay), and when the answer was wanted as something else.
    pub async fn replay_typed<T: DeserializeOwned + JsonSchema>(
        &self,
        run: &RunId,
    ) -> Result<Replay<AgentMachine>> {
        self.replay_as(run, Some(OutputCheck::of::<T>())).await
    }

    async fn replay_as(&self, run: &RunId, output: Option<OutputCheck>) -> Result<Replay<AgentMachine>> {
        let records = read(self.runtime(), run).await?;
        let setup = self.inner.executor.setup();
        let own: Vec<(String, Digest)> =
            setup.into_iter().filter(|(name, _)| !name.starts_with(MODEL)).collect();
        check_setup(run, &records, &own, MODEL).map_err(failed)?;
        replay(run, &records, |kind, state| {
            AgentMachine::check_kind(kind)?;
            self.restore_as(state, output)
        })
        .map_err(failed)
    }

    /// The questions that a run and the runs below it wait for an answer to, while nobody drives it.
    ///
    /// # Errors
    /// When there is no such run, or it is not one of this agent's.
    pub async fn asks(&self, run: &RunId) -> Result<Vec<Ask>> {
        self.asks_in(self.runtime(), run).await
    }

    /// The same, of a run in the journal of another runtime: one that this agent does below a run of that one.
    ///
    /// # Errors
    /// As [`asks`](Self::asks).
    pub async fn asks_in(&self, runtime: &Runtime, run: &RunId) -> Result<Vec<Ask>> {
        let records = read(runtime, run).await?;
        let folded = replay(run, &records, |kind, state| {
            AgentMachine::check_kind(kind)?;
            AgentMachine::restore_untyped(self.inner.spec.clone(), state)
        });
        let folded = folded.map_err(failed)?;
        let mut asks = Vec::new();
        // One that was cancelled has only its end to write.
        let under_way = if folded.machine.ending().is_some() { Vec::new() } else { folded.under_way };
        for (id, effect) in under_way {
            match effect {
                Effect::Ask(ask) => asks.push(ask),
                Effect::Child(child) => {
                    let Some(agent) = self.inner.executor.delegates.get(&*child.agent) else { continue };
                    match Box::pin(agent.asks_in(runtime, &run.child(id))).await {
                        // The process ended before the child could begin.
                        Err(Error::Runtime { source: levity_runtime::Error::NotFound(_), .. }) => {}
                        below => asks.extend(below?),
                    }
                }
                _ => {}
            }
        }
        Ok(asks)
    }
}

async fn read(runtime: &Runtime, run: &RunId) -> Result<Vec<Record>> {
    let records = runtime.journal().read(run).await.map_err(failed)?;
    if records.is_empty() {
        return Err(failed(levity_runtime::Error::NotFound(run.clone())));
    }
    Ok(records)
}

fn failed(source: impl Into<levity_runtime::Error>) -> Error {
    Error::Runtime { source: source.into(), partial: None }
}
