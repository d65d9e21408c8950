use std::fmt;
use std::sync::Arc;

use levity_core::{Ask, Child, Event, Executor, Limits, Media, Result, RunId, ToolError};
use levity_runtime::{Run, Runtime};
use serde_json::Value;

use crate::executor::SwarmExecutor;
use crate::machine::SwarmMachine;
use crate::pattern::Pattern;
use crate::rules::{Rules, Start};
use crate::run::SwarmInput;
use crate::tool::SwarmTool;

mod builder;

pub use builder::SwarmBuilder;

/// Workers that cooperate in a pattern. Cloning is cheap.
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
    /// The default limit on model calls in a run, over all workers: 10,000.
    pub const DEFAULT_MODEL_CALLS: u64 = 10_000;
    /// The default limit on tool calls in a run, over all workers: 100,000.
    pub const DEFAULT_TOOL_CALLS: u64 = 100_000;

    /// Creates a builder for a swarm with this pattern.
    pub fn builder(pattern: impl Into<Pattern>) -> SwarmBuilder {
        SwarmBuilder::new(pattern.into())
    }

    /// Works on a goal. Set options on the returned [`Run`], then await it. Dropping the future
    /// stops the work. A goal without visible text fails with
    /// [`Error::EmptyPrompt`](crate::Error::EmptyPrompt).
    pub fn run(&self, goal: impl Into<SwarmInput>) -> Run<Self> {
        Run::new(self.clone(), goal)
    }

    /// Resumes a run of an earlier process from its journal. Finished work is not repeated.
    ///
    /// The swarm must have the same pattern and workers with the same names. Work that the crash
    /// interrupted continues in its own child run.
    ///
    /// ```
    /// use levity_loop::Agent;
    /// use levity_runtime::{MemoryJournal, Runtime};
    /// use levity_swarm::{Router, Swarm};
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_swarm::Result<()> {
    /// let pilot = Agent::builder(ScriptedModel::new().reply("At six.")).build()?;
    /// let swarm = Swarm::builder(Router::keywords())
    ///     .agent("pilot", "Knows the tides.", pilot)
    ///     .runtime(Runtime::new().with_journal(MemoryJournal::new()))
    ///     .build()?;
    /// swarm.run("When is the tide high?").id("r1").await?;
    /// // The run is complete, so nothing is asked again.
    /// assert_eq!(swarm.resume("r1").await?.text(), "At six.");
    /// assert!(!swarm.history(&"r1".into()).await?.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub fn resume(&self, run: impl Into<RunId>) -> Run<Self> {
        Run::resume(self.clone(), run)
    }

    /// Forks a new run from a record of an old run.
    pub fn fork(&self, run: impl Into<RunId>) -> Run<Self> {
        Run::fork(self.clone(), run)
    }

    /// Returns this swarm as a tool for an agent; see `AgentBuilder::program`.
    ///
    /// ```
    /// use levity_core::Program;
    /// use levity_loop::Agent;
    /// use levity_swarm::{Router, Swarm};
    /// use levity_test::ScriptedModel;
    /// use serde_json::json;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_swarm::Result<()> {
    /// let pilot = Agent::builder(ScriptedModel::new().reply("At six.")).build()?;
    /// let swarm = Swarm::builder(Router::keywords())
    ///     .agent("pilot", "Knows the tides.", pilot)
    ///     .build()?;
    /// let tool = swarm.as_tool("harbour", "Answers questions about the harbour.");
    /// assert_eq!(tool.spec().name, "harbour");
    ///
    /// let model = ScriptedModel::new()
    ///     .call("harbour", json!({"task": "When is high water?"}))
    ///     .reply("High water is at six.");
    /// let agent = Agent::builder(model).program(tool).build()?;
    /// assert_eq!(agent.run("When do we sail?").await?.text(), "High water is at six.");
    /// # Ok(())
    /// # }
    /// ```
    pub fn as_tool(&self, name: impl Into<String>, description: impl Into<String>) -> SwarmTool {
        SwarmTool::new(self.clone(), name.into(), description.into())
    }

    /// Returns the names of the workers, in the order in which they were added.
    ///
    /// ```
    /// use levity_loop::Agent;
    /// use levity_swarm::{Router, Swarm};
    /// use levity_test::ScriptedModel;
    ///
    /// # fn main() -> levity_swarm::Result<()> {
    /// let agent = || Agent::builder(ScriptedModel::new()).build();
    /// let swarm = Swarm::builder(Router::keywords())
    ///     .agent("watch", "Looks at the sky.", agent()?)
    ///     .agent("pilot", "Knows the tides.", agent()?)
    ///     .build()?;
    /// assert_eq!(swarm.workers().collect::<Vec<_>>(), ["watch", "pilot"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn workers(&self) -> impl Iterator<Item = &str> {
        self.inner.rules.order.iter().map(|name| &**name)
    }

    /// Returns the events that a run has emitted, from its journal.
    ///
    /// # Errors
    /// Returns an error if the run does not exist, or if this swarm cannot have made it.
    pub async fn history(&self, run: &RunId) -> Result<Vec<Event>> {
        Ok(levity_runtime::replay_run(self, run).await?.events)
    }

    /// Returns the pending questions of a run and its child runs while no process drives the run.
    ///
    /// # Errors
    /// Returns the same errors as [`history`](Self::history).
    pub async fn asks(&self, run: &RunId) -> Result<Vec<Ask>> {
        Ok(levity_runtime::pending_asks(self, run).await?)
    }

    /// Creates a child run of this swarm for a custom executor: a new one, or one from a saved
    /// state of its machine.
    ///
    /// # Errors
    /// Returns an error if the state does not belong to this swarm.
    ///
    /// A custom executor calls it for the children of its own machine; [`as_tool`](Self::as_tool)
    /// does the same for an agent.
    pub fn child(&self, task: &str, saved: Option<&Value>) -> Result<Child, ToolError> {
        self.child_with(task, Arc::default(), saved)
    }

    /// Creates a child run whose goal has these media.
    pub(crate) fn child_with(
        &self,
        task: &str,
        media: Arc<[Media]>,
        saved: Option<&Value>,
    ) -> Result<Child, ToolError> {
        let machine = match saved {
            Some(state) => self.restore(state).map_err(ToolError::failed)?,
            None => {
                let mut start = self.begin_with(task.to_owned());
                start.media = media;
                SwarmMachine::new(self.inner.rules.clone(), start)
            }
        };
        Ok(Child::new(machine, self.executor(), self.inner.limits))
    }

    /// Returns the executor that makes the runs of its workers.
    pub fn executor(&self) -> Arc<dyn Executor> {
        self.inner.executor.clone()
    }

    /// Returns the runtime that drives its runs.
    pub fn runtime(&self) -> &Runtime {
        &self.inner.runtime
    }

    /// Returns the state machine of a run, for a custom engine.
    pub fn machine(&self, goal: impl Into<String>) -> SwarmMachine {
        SwarmMachine::new(self.inner.rules.clone(), self.begin_with(goal.into()))
    }

    /// Restores the state machine from a state that it saved at any time.
    ///
    /// # Errors
    /// Returns an error if the state does not belong to this swarm, or is damaged.
    pub fn restore(&self, state: &Value) -> Result<SwarmMachine, String> {
        SwarmMachine::restore(self.inner.rules.clone(), state)
    }

    pub(crate) fn begin_with(&self, goal: String) -> Start {
        let pattern = &self.inner.rules.pattern;
        let (pattern, state) = (pattern.name().to_owned(), pattern.state());
        Start {
            pattern,
            state,
            goal,
            limits: self.inner.limits,
            ..Start::default()
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
