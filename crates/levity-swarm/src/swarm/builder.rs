//! Builds a swarm, and gives each member the tools and guards of the swarm.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use levity_core::{Error, Guard, Limits, Result};
use levity_loop::{Agent, AgentBuilder};
use levity_runtime::Runtime;

use super::{Inner, Swarm};
use crate::bus::Bus;
use crate::executor::{Member, SwarmExecutor};
use crate::message_tool;
use crate::names::{RESERVED, short};
use crate::pattern::{Pattern, PatternTool};
use crate::rules::Rules;
use crate::worker::{AgentOrSwarm, Card, Worker};

/// A builder for a [`Swarm`].
///
/// | setting | default |
/// |---|---|
/// | [`max_parallel`](Self::max_parallel) | 16 workers |
/// | [`context_tokens`](Self::context_tokens) | 2,000 tokens |
/// | [`bus_limits`](Self::bus_limits) | 10,000 messages and 16 MiB |
/// | [`worker_messages`](Self::worker_messages) | off |
/// | [`limits`](Self::limits) | 10,000 model calls and 100,000 tool calls |
///
/// ```
/// use levity_loop::Agent;
/// use levity_swarm::{Error, Router, Swarm};
/// use levity_test::ScriptedModel;
///
/// # fn main() -> levity_swarm::Result<()> {
/// let agent = || Agent::builder(ScriptedModel::new()).build();
/// let swarm = Swarm::builder(Router::keywords()).agent("pilot", "Knows the tides.", agent()?);
/// assert!(swarm.max_parallel(4).worker_messages().build().is_ok());
///
/// let error = Swarm::builder(Router::keywords()).agent("router", "Plans.", agent()?).build();
/// assert!(matches!(error, Err(Error::Setting { setting: "worker", .. })));
/// # Ok(())
/// # }
/// ```
#[must_use = "a builder does nothing until `build`"]
pub struct SwarmBuilder {
    pattern: Pattern,
    workers: Vec<Worker>,
    guards: Vec<Arc<dyn Guard>>,
    parallel: usize,
    context: usize,
    bus: (usize, usize),
    talk: bool,
    limits: Limits,
    runtime: Runtime,
}

impl SwarmBuilder {
    /// The default number of workers that run in parallel: 16.
    pub const DEFAULT_PARALLEL: usize = 16;
    /// The default size of the bus messages shown with each task: 2,000 tokens.
    pub const DEFAULT_CONTEXT: usize = 2_000;

    pub(super) fn new(pattern: Pattern) -> Self {
        let limits = Limits::new()
            .model_calls(Swarm::DEFAULT_MODEL_CALLS)
            .tool_calls(Swarm::DEFAULT_TOOL_CALLS);
        Self {
            pattern,
            workers: Vec::new(),
            guards: Vec::new(),
            parallel: Self::DEFAULT_PARALLEL,
            context: Self::DEFAULT_CONTEXT,
            bus: (Bus::MAX_MESSAGES, Bus::MAX_BYTES),
            talk: false,
            limits,
            runtime: Runtime::new(),
        }
    }

    /// Adds a worker to the swarm.
    pub fn worker(mut self, worker: Worker) -> Self {
        self.workers.push(worker);
        self
    }

    /// Adds several workers at once.
    pub fn workers(mut self, workers: impl IntoIterator<Item = Worker>) -> Self {
        self.workers.extend(workers);
        self
    }

    /// Adds an agent as a worker; see [`Worker::new`].
    pub fn agent(
        self,
        name: impl Into<Arc<str>>,
        description: impl Into<Arc<str>>,
        agent: Agent,
    ) -> Self {
        self.worker(Worker::new(name, description, agent))
    }

    /// Adds a guard that inspects the input and output of all members: the workers, the router and
    /// the judge. It runs after their own guards. A worker that is a swarm, and agents that a
    /// worker calls, have their own guards.
    ///
    /// The input of each member is a task in the pattern's wording, which includes the goal. The
    /// goal itself remains unchanged in the swarm's journal; `docs/guards.md` describes how to
    /// guard it first.
    pub fn guard(mut self, guard: impl Guard + 'static) -> Self {
        self.guards.push(Arc::new(guard));
        self
    }

    /// Sets the maximum number of workers that run in parallel;
    /// [`DEFAULT_PARALLEL`](Self::DEFAULT_PARALLEL) by default.
    ///
    /// A debate in turns runs one worker at a time, whatever the value.
    pub fn max_parallel(mut self, workers: usize) -> Self {
        self.parallel = workers;
        self
    }

    /// Sets how many tokens of bus messages a worker sees with its task;
    /// [`DEFAULT_CONTEXT`](Self::DEFAULT_CONTEXT) by default.
    pub fn context_tokens(mut self, tokens: usize) -> Self {
        self.context = tokens;
        self
    }

    /// Sets the maximum number of messages on the bus and their total size in bytes;
    /// [`Bus::MAX_MESSAGES`] and [`Bus::MAX_BYTES`] by default.
    pub fn bus_limits(mut self, messages: usize, bytes: usize) -> Self {
        self.bus = (messages, bytes);
        self
    }

    /// Lets workers leave messages for each other with a tool `send_message`. Workers receive them
    /// with their task if it depends on the sender's task or belongs to a later round.
    ///
    /// ```
    /// use levity_loop::Agent;
    /// use levity_swarm::{Delegation, MessageKind, Router, Swarm, SwarmInput};
    /// use levity_test::ScriptedModel;
    /// use serde_json::json;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_swarm::Result<()> {
    /// let pilot = ScriptedModel::new()
    ///     .call("send_message", json!({"to": "mate", "content": "Mind the rocks."}))
    ///     .reply("At six.");
    /// let mate = ScriptedModel::new().reply("We sail at six.");
    /// let swarm = Swarm::builder(Router::keywords())
    ///     .agent("pilot", "Knows the tides.", Agent::builder(pilot).build()?)
    ///     .agent("mate", "Decides.", Agent::builder(mate).build()?)
    ///     .worker_messages()
    ///     .build()?;
    /// let plan = [
    ///     Delegation::new("tide", "pilot", "When is high water?"),
    ///     Delegation::new("sail", "mate", "Decide.").after(["tide"]),
    /// ];
    /// let finished = swarm.run(SwarmInput::from("When do we sail?").plan(plan)).await?;
    /// let mut messages = finished.bus().messages();
    /// let note = messages.find(|message| message.kind == MessageKind::Note).unwrap();
    /// assert_eq!((note.to.as_str(), &*note.content), ("mate", "Mind the rocks."));
    /// # Ok(())
    /// # }
    /// ```
    pub fn worker_messages(mut self) -> Self {
        self.talk = true;
        self
    }

    /// Sets the limits of a run, over all workers. The default is [`Limits::new`] with
    /// [`Swarm::DEFAULT_MODEL_CALLS`] and [`Swarm::DEFAULT_TOOL_CALLS`].
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the runtime that drives its runs, including those of the workers; by default one
    /// without a journal.
    pub fn runtime(mut self, runtime: Runtime) -> Self {
        self.runtime = runtime;
        self
    }

    /// Builds the swarm from its settings.
    ///
    /// # Errors
    /// Returns an error if there are no workers, if two have the same name, or if a setting is
    /// invalid.
    pub fn build(self) -> Result<Swarm> {
        if self.parallel == 0 {
            return Err(Error::setting(
                "max_parallel",
                "is 0, so no worker could start; set 1 to run one at a time",
            ));
        }
        let cards = cards(&self.workers)?;
        let order: Vec<Arc<str>> = self
            .workers
            .iter()
            .map(|worker| worker.card.name.clone())
            .collect();
        self.pattern.check(&order)?;
        let rules = Rules {
            pattern: self.pattern,
            names: cards.keys().cloned().collect(),
            cards,
            order,
            parallel: self.parallel,
            context: self.context,
            bus: self.bus,
            talk: self.talk,
        };
        let members = members(self.workers, &rules, &self.guards)?;
        let (guards, runtime) = (self.guards.into_iter().collect(), self.runtime);
        let world = runtime.world().clone();
        let executor = Arc::new(SwarmExecutor {
            members,
            guards,
            world,
        });
        let limits = self.limits;
        Ok(Swarm {
            inner: Arc::new(Inner {
                rules: Arc::new(rules),
                executor,
                runtime,
                limits,
            }),
        })
    }
}

/// Returns the workers by name, after checking that they fit together.
fn cards(workers: &[Worker]) -> Result<BTreeMap<Arc<str>, Card>> {
    if workers.is_empty() {
        return Err(Error::setting(
            "worker",
            "is missing; add at least one with `.worker(..)`",
        ));
    }
    let mut cards = BTreeMap::new();
    for worker in workers {
        let name = &worker.card.name;
        let invalid = |problem: &str| {
            Err(Error::setting(
                "worker",
                format!("`{}` {problem}", short(name)),
            ))
        };
        if name.trim().is_empty() {
            return invalid("cannot be the name of a worker: it is empty; give it a name");
        }
        if RESERVED.contains(&&**name) {
            let names = RESERVED.join("`, `");
            return invalid(&format!(
                "cannot be the name of a worker: the names `{names}` are reserved; choose another"
            ));
        }
        if name.trim() != &**name || name.contains(char::is_control) || name.len() > Bus::MAX_NAME {
            return invalid(
                "cannot be the name of a worker: it has more than 256 bytes, surrounding space or \
                    control characters; \
                 choose another",
            );
        }
        if cards.insert(name.clone(), worker.card.clone()).is_some() {
            return invalid("is used twice; rename one worker");
        }
    }
    for card in cards.values() {
        if let Some(other) = card
            .stand_in
            .as_ref()
            .filter(|other| !cards.contains_key(*other))
        {
            let problem = format!(
                "of `{}` names `{}`, which is not a worker of this swarm",
                short(&card.name),
                short(other)
            );
            return Err(Error::setting("fallback", problem));
        }
    }
    Ok(cards)
}

/// Returns all members with the tools that the pattern gives them.
fn members(
    workers: Vec<Worker>,
    rules: &Rules,
    guards: &[Arc<dyn Guard>],
) -> Result<BTreeMap<Arc<str>, Member>> {
    let mut members = BTreeMap::new();
    for worker in workers {
        let name = worker.card.name.clone();
        let runner = match worker.runner {
            AgentOrSwarm::Agent(agent) => AgentOrSwarm::Agent(guarded(agent, guards)?),
            runner => runner,
        };
        members.insert(name.clone(), equip(&name, runner, rules)?);
    }
    for (name, agent) in rules.pattern.lead_agents()? {
        let equipped = AgentOrSwarm::Agent(guarded(agent, guards)?);
        members.insert(
            name.into(),
            Member {
                equipped,
                plain: None,
            },
        );
    }
    Ok(members)
}

/// Returns the agent with the guards of the swarm added after its own.
fn guarded(agent: Agent, guards: &[Arc<dyn Guard>]) -> Result<Agent> {
    if guards.is_empty() {
        return Ok(agent);
    }
    let with = |builder: AgentBuilder, guard: &Arc<dyn Guard>| builder.guard(guard.clone());
    let builder = guards.iter().fold(agent.to_builder(), with);
    builder.build()
}

/// The agent without these tools is kept as well: a worker that must answer gets no tool to pass
/// the conversation on.
fn equip(name: &Arc<str>, runner: AgentOrSwarm, rules: &Rules) -> Result<Member> {
    let mut tools = rules.pattern.extra_tools(name, rules);
    tools.extend(
        rules
            .talk
            .then(|| PatternTool::Signal(message_tool::spec(name, &rules.order))),
    );
    let agent = match runner {
        AgentOrSwarm::Agent(agent) if !tools.is_empty() => agent,
        runner => {
            return Ok(Member {
                equipped: runner,
                plain: None,
            });
        }
    };
    let mut builder = agent.to_builder();
    for tool in tools {
        builder = match tool {
            PatternTool::Signal(spec) => builder.signal(spec),
            PatternTool::Last(spec) => builder.ending_signal(spec),
        };
    }
    let equipped = builder.build()?;
    Ok(Member {
        equipped: AgentOrSwarm::Agent(equipped),
        plain: Some(agent),
    })
}

impl fmt::Debug for SwarmBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SwarmBuilder")
            .field("pattern", &self.pattern)
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}
