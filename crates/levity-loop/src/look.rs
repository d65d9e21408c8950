//! Looking at runs that nobody drives.

use levity_core::{Ask, Digest, Executor, Record, Result, RunId, RuntimeError};
use levity_runtime::{Replay, Runnable, Runtime, check_setup, replay};

use crate::agent::Agent;
use crate::executor::MODEL;
use crate::machine::AgentMachine;

impl Agent {
    /// Folds a run of this agent again without performing anything, and tells its events, the same
    /// to the byte. A run whose answer was wanted as a type needs an agent that is
    /// [expecting](levity_runtime::TypedOutput::expecting) it.
    ///
    /// # Errors
    /// When there is no such run, or at the first thing that is not as it was: the instructions, a
    /// tool, the code. The error names it. Another model makes no difference.
    pub async fn replay(&self, run: &RunId) -> Result<Replay<AgentMachine>> {
        let records = read(self.runtime(), run).await?;
        let setup = self.inner.executor.inspect().setup;
        let own: Vec<(String, Digest)> = setup
            .into_iter()
            .filter(|(name, _)| !name.starts_with(MODEL))
            .collect();
        check_setup(run, &records, &own, MODEL)?;
        Ok(replay(run, &records, |kind, state| {
            Runnable::restore(self, kind, state)
        })?)
    }

    /// The questions that a run and the runs below it wait for an answer to, while nobody drives
    /// it.
    ///
    /// # Errors
    /// When there is no such run, or it is not one of this agent's.
    pub async fn asks(&self, run: &RunId) -> Result<Vec<Ask>> {
        Ok(levity_runtime::asks(self, run).await?)
    }
}

async fn read(runtime: &Runtime, run: &RunId) -> Result<Vec<Record>> {
    let records = runtime.journal().read(run).await?;
    if records.is_empty() {
        return Err(RuntimeError::NotFound(run.clone()).into());
    }
    Ok(records)
}
