use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use levity_core::{ConversationId, Limits, Price};
use levity_loop::Agent;

use crate::swarm::Swarm;

/// A member of a swarm that does work: an agent or a nested swarm, with a name and a description.
///
/// ```
/// use std::time::Duration;
/// use levity_loop::Agent;
/// use levity_swarm::{WorkerMemory, Worker};
/// use levity_test::ScriptedModel;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let agent = Agent::builder(ScriptedModel::new()).build()?;
/// let worker = Worker::new("surveyor", "Measures land and draws maps.", agent)
///     .keywords(["map", "measure", "survey"])
///     .memory(WorkerMemory::Run)
///     .timeout(Duration::from_secs(60))
///     .retries(2);
/// assert_eq!(worker.name(), "surveyor");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Worker {
    pub(crate) card: Card,
    pub(crate) runner: AgentOrSwarm,
}

/// The properties of a worker, without its agent or swarm.
///
/// The machine sees cards only. Agents stay in the executor, because a machine does no I/O.
#[derive(Clone, Debug)]
pub(crate) struct Card {
    pub(crate) name: Arc<str>,
    pub(crate) description: Arc<str>,
    pub(crate) keywords: Vec<String>,
    pub(crate) limits: Option<Limits>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) retries: u32,
    pub(crate) stand_in: Option<Arc<str>>,
    pub(crate) scope: WorkerMemory,
    pub(crate) is_swarm: bool,
    /// The price of a million input and output tokens of its model, if known.
    pub(crate) price: Option<Price>,
}

/// The agent or swarm that does the work.
#[derive(Clone)]
pub(crate) enum AgentOrSwarm {
    Agent(Agent),
    Swarm(Swarm),
}

/// The memory of a worker between tasks.
///
/// A memory has at most the last 20 completed tasks of the run; a conversation has the limits of
/// its store.
///
/// ```
/// use levity_loop::Agent;
/// use levity_swarm::{Worker, WorkerMemory};
/// use levity_test::ScriptedModel;
///
/// # fn main() -> levity_swarm::Result<()> {
/// let agent = Agent::builder(ScriptedModel::new()).build()?;
/// let clerk = Worker::new("clerk", "Keeps the log.", agent)
///     .memory(WorkerMemory::Named("ship's log".into()));
/// assert_eq!(clerk.name(), "clerk");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkerMemory {
    /// No memory: each task is independent.
    #[default]
    Task,
    /// Its earlier tasks of the run: those of earlier rounds, and those that the task depends on.
    Run,
    /// All its tasks of a conversation, over many runs, in the memory of its agent. The key
    /// consists of the run's conversation
    /// ([`Run::conversation`](levity_runtime::Run::conversation)) and the worker's name. Its tasks
    /// run sequentially. In a run without a conversation, this is the same as [`Run`](Self::Run).
    Conversation,
    /// The same, in a conversation with this id, regardless of the run's conversation.
    Named(ConversationId),
}

impl Worker {
    /// Creates a worker from an agent. Planners choose a worker by its description. The names
    /// `router`, `synthesizer`, `judge`, `user` and `*` are reserved.
    pub fn new(name: impl Into<Arc<str>>, description: impl Into<Arc<str>>, agent: Agent) -> Self {
        Self::of(name.into(), description.into(), AgentOrSwarm::Agent(agent))
    }

    /// Creates a worker from a swarm.
    ///
    /// ```
    /// use levity_loop::Agent;
    /// use levity_swarm::{Router, Swarm, Worker};
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_swarm::Result<()> {
    /// let pilot = Agent::builder(ScriptedModel::new().reply("At six.")).build()?;
    /// let crew = Swarm::builder(Router::keywords())
    ///     .agent("pilot", "Knows the tides.", pilot)
    ///     .build()?;
    /// let harbour = Swarm::builder(Router::keywords())
    ///     .worker(Worker::swarm("crew", "Sails the ship.", crew))
    ///     .build()?;
    /// assert_eq!(harbour.run("When is the tide high?").await?.text(), "At six.");
    /// # Ok(())
    /// # }
    /// ```
    pub fn swarm(
        name: impl Into<Arc<str>>,
        description: impl Into<Arc<str>>,
        swarm: Swarm,
    ) -> Self {
        Self::of(name.into(), description.into(), AgentOrSwarm::Swarm(swarm))
    }

    fn of(name: Arc<str>, description: Arc<str>, runner: AgentOrSwarm) -> Self {
        let price = match &runner {
            AgentOrSwarm::Agent(agent) => agent.card().price,
            AgentOrSwarm::Swarm(_) => None,
        };
        let card = Card {
            name,
            description,
            keywords: Vec::new(),
            limits: None,
            timeout: None,
            retries: 1,
            stand_in: None,
            scope: WorkerMemory::Task,
            price,
            is_swarm: matches!(runner, AgentOrSwarm::Swarm(_)),
        };
        Self { card, runner }
    }

    /// Adds keywords that identify tasks for this worker if no router decides. The words of its
    /// name and its description count as well.
    ///
    /// ```
    /// use levity_loop::Agent;
    /// use levity_swarm::Worker;
    /// use levity_test::ScriptedModel;
    ///
    /// # fn main() -> levity_swarm::Result<()> {
    /// let agent = Agent::builder(ScriptedModel::new()).build()?;
    /// let pilot = Worker::new("pilot", "Reads charts.", agent).keywords(["tide", "high water"]);
    /// assert_eq!(pilot.description(), "Reads charts.");
    /// assert!(pilot.agent().is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn keywords<W: Into<String>>(mut self, words: impl IntoIterator<Item = W>) -> Self {
        self.card.keywords.extend(words.into_iter().map(Into::into));
        self
    }

    /// Sets the limits for a task, over all attempts. By default, the worker's share of the swarm's
    /// limits and the limits of its agent apply.
    ///
    /// The smaller limit counts, field by field.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.card.limits = Some(limits);
        self
    }

    /// Sets the timeout for each attempt at a task, from start to end. Time spent waiting for a
    /// person counts, even while the run is parked in its journal. There is no timeout by default:
    /// each call of a model or a tool has its own, and the turns are limited.
    pub fn timeout(mut self, time: Duration) -> Self {
        self.card.timeout = Some(time);
        self
    }

    /// Sets the number of retries after a failed task; 1 by default.
    ///
    /// A worker that reaches its own limit, or that the host stops, is not retried. Except in
    /// a handoff, an attempt after a failure sees the error of the previous one.
    pub fn retries(mut self, times: u32) -> Self {
        self.card.retries = times;
        self
    }

    /// Sets the fallback worker that takes over a failed task; none by default.
    ///
    /// The fallback has retries and limits of its own, and may have a fallback itself. A worker
    /// gets the same task only once, so a cycle of fallbacks ends.
    ///
    /// ```
    /// use levity_core::ModelErrorKind;
    /// use levity_loop::Agent;
    /// use levity_swarm::{Router, Swarm, Worker};
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_swarm::Result<()> {
    /// let broken = Agent::builder(ScriptedModel::new().fail(ModelErrorKind::Auth)).build()?;
    /// let deputy = Agent::builder(ScriptedModel::new().reply("At six.")).build()?;
    /// let swarm = Swarm::builder(Router::keywords())
    ///     .worker(Worker::new("pilot", "Knows tides.", broken).retries(0).fallback("deputy"))
    ///     .worker(Worker::new("deputy", "Helps out.", deputy))
    ///     .build()?;
    /// let finished = swarm.run("When is the tide high?").await?;
    /// assert_eq!(&*finished.reports()[0].worker, "deputy");
    /// assert_eq!(finished.text(), "At six.");
    /// # Ok(())
    /// # }
    /// ```
    pub fn fallback(mut self, name: impl Into<Arc<str>>) -> Self {
        self.card.stand_in = Some(name.into());
        self
    }

    /// Sets the memory between tasks; none by default. A worker that is a swarm has no memory.
    pub fn memory(mut self, scope: WorkerMemory) -> Self {
        self.card.scope = scope;
        self
    }

    /// Returns the name of the worker.
    pub fn name(&self) -> &str {
        &self.card.name
    }

    /// Returns the description of the worker.
    pub fn description(&self) -> &str {
        &self.card.description
    }

    /// Returns the agent that does the work, if it is not a swarm.
    pub fn agent(&self) -> Option<&Agent> {
        match &self.runner {
            AgentOrSwarm::Agent(agent) => Some(agent),
            AgentOrSwarm::Swarm(_) => None,
        }
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("name", &self.card.name)
            .finish_non_exhaustive()
    }
}
