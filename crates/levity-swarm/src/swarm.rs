use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use levity_core::{
    Ask, Child, ChildRun, Effect, Event, Executor, JournalError, Limits, Machine as _, RunId, ToolError,
};
use levity_runtime::{Replay, Runtime, replay};
use serde_json::Value;

use crate::error::{Error, Result};
use crate::executor::SwarmExecutor;
use crate::machine::SwarmMachine;
use crate::pattern::Pattern;
use crate::rules::{Rules, Start};
use crate::run::SwarmRun;
use crate::tool::SwarmTool;
use crate::worker::Does;

mod builder;

pub use builder::SwarmBuilder;

/// Workers who work together by a pattern. Cloning costs nothing.
///
/// ```
/// use levity_loop::Agent;
/// use levity_swarm::{Router, Swarm, Worker};
/// use levity_test::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let router = ScriptedModel::new()
///     .reply(r#"{"delegations": [
///         {"id": "tide", "worker": "pilot", "task": "When is high water?"},
///         {"id": "wind", "worker": "watch", "task": "Where is the wind from?"}]}"#)
///     .reply("High water is at six, says the pilot; the watch says the wind is from the west.");
/// let agent = |answer: &str| Agent::builder(ScriptedModel::new().reply(answer)).build();
/// let swarm = Swarm::builder(Router::new(router))
///     .worker(Worker::new("pilot", "Knows tides and charts.", agent("At six.")?))
///     .worker(Worker::new("watch", "Looks at sky and sea.", agent("From the west.")?))
///     .build()?;
/// let finished = swarm.run("Can we sail this evening?").await?;
/// assert!(finished.text().starts_with("High water is at six"));
/// assert_eq!(&*finished.report("wind").unwrap().text, "From the west.");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Swarm {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) rules: Arc<Rules>,
    pub(crate) executor: Arc<SwarmExecutor>,
    pub(crate) runtime: Runtime,
    pub(crate) limits: Limits,
}

impl Swarm {
    /// 10,000 calls of models in a run, all workers together.
    pub const DEFAULT_MODEL_CALLS: u64 = 10_000;
    /// 100,000 calls of tools in a run, all workers together.
    pub const DEFAULT_TOOL_CALLS: u64 = 100_000;

    /// Begins a swarm that works by this pattern.
    pub fn builder(pattern: impl Into<Pattern>) -> SwarmBuilder {
        SwarmBuilder::new(pattern.into())
    }

    /// Works on a goal: await what is returned, after setting what is to be set. Dropping the future stops the work. A goal without visible
    /// text gives [`Error::EmptyPrompt`](crate::Error::EmptyPrompt).
    pub fn run(&self, goal: impl Into<String>) -> SwarmRun {
        SwarmRun::new(self.clone(), self.begin(goal.into()))
    }

    /// Goes on with a run that an earlier process left, from its journal. What was done is not done again.
    pub fn resume(&self, run: impl Into<RunId>) -> SwarmRun {
        SwarmRun::resume(self.clone(), run.into())
    }

    /// Goes another way from a record of an old run: the last one that the new run begins with, by its number, or the last there is.
    pub fn fork(&self, run: impl Into<RunId>, after: Option<u64>) -> SwarmRun {
        SwarmRun::fork(self.clone(), run.into(), after)
    }

    /// This swarm as a tool that an agent calls; see `AgentBuilder::program`.
    pub fn as_tool(&self, name: impl Into<String>, description: impl Into<String>) -> SwarmTool {
        SwarmTool::new(self.clone(), name.into(), description.into())
    }

    /// The names of the workers, in the order in which they were added.
    pub fn workers(&self) -> impl Iterator<Item = &str> {
        self.inner.rules.order.iter().map(|name| &**name)
    }

    /// What a run has told by now, from its journal.
    ///
    /// # Errors
    /// When there is no such run, or this swarm cannot have made it.
    pub async fn history(&self, run: &RunId) -> Result<Vec<Event>> {
        Ok(self.replay(&self.inner.runtime, run).await?.events)
    }

    /// The questions that a run and the runs below it wait for an answer to, while nobody drives it.
    ///
    /// # Errors
    /// As for [`history`](Self::history).
    pub async fn asks(&self, run: &RunId) -> Result<Vec<Ask>> {
        self.asks_in(&self.inner.runtime, run).await
    }

    async fn asks_in(&self, runtime: &Runtime, run: &RunId) -> Result<Vec<Ask>> {
        let folded = self.replay(runtime, run).await?;
        let mut asks = Vec::new();
        if folded.machine.ending().is_some() {
            return Ok(asks);
        }
        for (id, effect) in folded.under_way {
            if let Effect::Child(child) = effect {
                asks.extend(Box::pin(self.asks_below(runtime, &child, &run.child(id))).await?);
            }
        }
        Ok(asks)
    }

    async fn asks_below(&self, runtime: &Runtime, child: &ChildRun, run: &RunId) -> Result<Vec<Ask>> {
        use levity_runtime::Error::NotFound;
        let Some(member) = self.inner.executor.members.get(&child.agent) else { return Ok(Vec::new()) };
        let asks = match &member.equipped {
            Does::Swarm(swarm) => swarm.asks_in(runtime, run).await,
            Does::Agent(agent) => agent.asks_in(runtime, run).await.map_err(Error::from_agent),
        };
        match asks {
            // The process ended before the child could begin.
            Err(Error::Runtime { source: NotFound(_), .. }) => Ok(Vec::new()),
            asks => asks,
        }
    }

    async fn replay(&self, runtime: &Runtime, run: &RunId) -> Result<Replay<SwarmMachine>> {
        let failed = |source| Error::Runtime { source, partial: None };
        let records = runtime.journal().read(run).await;
        let records = records.map_err(|error: JournalError| failed(error.into()))?;
        replay(run, &records, |kind, state| {
            SwarmMachine::check_kind(kind)?;
            self.restore(state)
        })
        .map_err(failed)
    }

    /// A run of this swarm below another, for an executor of your own: a new one, or one from the state that its machine saved
    /// before its first input.
    ///
    /// # Errors
    /// When the state is not one of this swarm.
    pub fn child(&self, task: &str, saved: Option<&Value>) -> Result<Child, ToolError> {
        let machine = match saved {
            Some(state) => self.restore(state).map_err(ToolError::failed)?,
            None => SwarmMachine::new(self.inner.rules.clone(), self.begin(task.to_owned())),
        };
        Ok(Child::new(machine, self.executor(), self.inner.limits))
    }

    /// What makes the runs of its workers.
    pub fn executor(&self) -> Arc<dyn Executor> {
        self.inner.executor.clone()
    }

    /// What drives its runs.
    pub fn runtime(&self) -> &Runtime {
        &self.inner.runtime
    }

    /// The machine that a run of this swarm is driven by, for an engine of your own.
    pub fn machine(&self, goal: impl Into<String>) -> SwarmMachine {
        SwarmMachine::new(self.inner.rules.clone(), self.begin(goal.into()))
    }

    /// Builds the machine again from the state that it saved before its first input.
    ///
    /// # Errors
    /// When the state is not one of this swarm.
    pub fn restore(&self, state: &Value) -> Result<SwarmMachine, String> {
        SwarmMachine::restore(self.inner.rules.clone(), state)
    }

    pub(crate) fn begin(&self, goal: String) -> Start {
        let pattern = self.inner.rules.pattern.name().to_owned();
        Start { pattern, goal, limits: self.inner.limits, ..Start::default() }
    }

    /// What was done before, by id; none, for a first plan.
    pub(crate) fn none() -> BTreeMap<Arc<str>, usize> {
        BTreeMap::new()
    }
}

impl Error {
    pub(crate) fn from_agent(error: levity_loop::Error) -> Self {
        match error {
            levity_loop::Error::Runtime { source, .. } => Self::Runtime { source, partial: None },
            error => Self::Agent(Box::new(error)),
        }
    }
}

impl fmt::Debug for Swarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Swarm")
            .field("pattern", &self.inner.rules.pattern.name())
            .field("workers", &self.inner.rules.order)
            .finish_non_exhaustive()
    }
}
