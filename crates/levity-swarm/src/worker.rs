use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use levity_core::{ConversationId, Limits, Price};
use levity_loop::Agent;

use crate::swarm::Swarm;

/// Somebody who does work in a swarm: an agent, or a swarm of its own, with a name and a
/// description that others go by.
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
    pub(crate) does: Does,
}

/// What is known of a worker beside what does its work.
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
    /// What a million tokens cost that its model is sent and that it says, if that is known.
    pub(crate) price: Option<Price>,
}

/// What does the work.
#[derive(Clone)]
pub(crate) enum Does {
    Agent(Agent),
    Swarm(Swarm),
}

/// What a worker remembers from one task to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkerMemory {
    /// Nothing: each task stands for itself.
    #[default]
    Task,
    /// Its earlier tasks of the run: those of earlier rounds, and those that the task depends on.
    Run,
    /// All its tasks of a conversation, over many runs, in the memory of its agent: the
    /// conversation of the run ([`Run::conversation`](levity_runtime::Run::conversation)) and the
    /// worker's name. Its tasks are done one after the other. In a run without a conversation it is
    /// as [`Run`](Self::Run).
    Conversation,
    /// The same, in a conversation of this name, whatever the run's is.
    Named(ConversationId),
}

impl Worker {
    /// An agent that does work under this name. The description says what it is good for. The names
    /// `router`, `synthesizer`, `judge`, `user` and `*` stand for others.
    pub fn new(name: impl Into<Arc<str>>, description: impl Into<Arc<str>>, agent: Agent) -> Self {
        Self::of(name.into(), description.into(), Does::Agent(agent))
    }

    /// A swarm that does work under this name.
    pub fn swarm(
        name: impl Into<Arc<str>>,
        description: impl Into<Arc<str>>,
        swarm: Swarm,
    ) -> Self {
        Self::of(name.into(), description.into(), Does::Swarm(swarm))
    }

    fn of(name: Arc<str>, description: Arc<str>, does: Does) -> Self {
        let price = match &does {
            Does::Agent(agent) => agent.card().price,
            Does::Swarm(_) => None,
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
            is_swarm: matches!(does, Does::Swarm(_)),
        };
        Self { card, does }
    }

    /// Words by which a task is known to be for this worker, when no router can say; beside them
    /// the words of its name and its description count.
    pub fn keywords<W: Into<String>>(mut self, words: impl IntoIterator<Item = W>) -> Self {
        self.card.keywords.extend(words.into_iter().map(Into::into));
        self
    }

    /// What it may use for a task, all attempts together; by default its share of what the swarm
    /// may, and what its agent was built with.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.card.limits = Some(limits);
        self
    }

    /// How long it may take for a task, from beginning to end: waiting for a person counts, also
    /// while the run is left in its journal. Not limited by default: each call of a model or a tool
    /// has a limit of its own, and the turns are counted.
    pub fn timeout(mut self, time: Duration) -> Self {
        self.card.timeout = Some(time);
        self
    }

    /// How often it tries a task again that it failed at; once by default.
    pub fn retries(mut self, times: u32) -> Self {
        self.card.retries = times;
        self
    }

    /// Who takes its task when it has failed; nobody by default.
    pub fn stand_in(mut self, name: impl Into<Arc<str>>) -> Self {
        self.card.stand_in = Some(name.into());
        self
    }

    /// What it remembers from one task to the next; nothing by default. A worker that is a swarm
    /// remembers nothing.
    pub fn memory(mut self, scope: WorkerMemory) -> Self {
        self.card.scope = scope;
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.card.name
    }

    /// What it is good for.
    pub fn description(&self) -> &str {
        &self.card.description
    }

    /// The agent that does its work, if it is one.
    pub fn agent(&self) -> Option<&Agent> {
        match &self.does {
            Does::Agent(agent) => Some(agent),
            Does::Swarm(_) => None,
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
