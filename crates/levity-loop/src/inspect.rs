//! Inspects runs that no process drives.

use levity_core::{Ask, Digest, Executor, Record, Result, RunId, RuntimeError};
use levity_runtime::{Replay, Runnable, Runtime, check_setup, replay};

use crate::agent::Agent;
use crate::executor::MODEL;
use crate::machine::AgentMachine;

impl Agent {
    /// Replays a run of this agent without performing any effect, and returns its events, identical
    /// to the byte.
    ///
    /// If the run has a typed answer, the agent must be
    /// [expecting](levity_runtime::TypedOutput::with_output_type) that type.
    ///
    /// # Errors
    /// Returns an error if there is no such run, or at the first difference: the instructions, a
    /// tool, the code. The error names it. Another model makes no difference.
    ///
    /// ```
    /// # use levity_loop::Agent;
    /// # use levity_runtime::{MemoryJournal, Runtime};
    /// # use levity_test::ScriptedModel;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_loop::Result<()> {
    /// let runtime = Runtime::new().with_journal(MemoryJournal::new());
    /// let agent = Agent::builder(ScriptedModel::new().reply("Done.")).runtime(runtime).build()?;
    /// let answer = agent.run("Do it").await?;
    /// let replay = agent.replay(answer.run()).await?; // no model is called
    /// assert_eq!(replay.events.last().map(|event| event.kind.name()), Some("run_ended"));
    /// # Ok(())
    /// # }
    /// ```
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

    /// Returns the unanswered questions of a run and its child runs, while no process drives it.
    ///
    /// # Errors
    /// Returns an error if there is no such run, or it does not belong to this agent.
    pub async fn pending_asks(&self, run: &RunId) -> Result<Vec<Ask>> {
        Ok(levity_runtime::pending_asks(self, run).await?)
    }
}

async fn read(runtime: &Runtime, run: &RunId) -> Result<Vec<Record>> {
    let records = runtime.journal().read(run).await?;
    if records.is_empty() {
        return Err(RuntimeError::NotFound(run.clone()).into());
    }
    Ok(records)
}
