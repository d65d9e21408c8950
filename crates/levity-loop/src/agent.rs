//! The agent: its settings, its executor and its runtime, ready to run.
//!
//! An agent is immutable. A run takes what it needs from it by reference counting, so an agent may
//! be dropped while its runs continue.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use levity_core::text::is_blank;
use levity_core::{
    Child, ChildLease, ContextSource, ConversationId, Error, Executor, History, Lease, Limits,
    MachineKind, Message, ModelCard, Part, RunId, RunRequest, SharedError, StoppedRun, ToolError,
};
use levity_runtime::{
    Conversational, Delivery, LeaseFuture, LeasedMachine, MachineStart, Run, RunHandle, Runnable,
    Runtime, TypedOutput,
};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::answer::{AgentDetails, Answer};
use crate::builder::AgentBuilder;
use crate::child_task::{ChildTask, labelled};
use crate::executor::AgentExecutor;
use crate::gather::GatheredContext;
use crate::guards::Goal;
use crate::machine::{AgentMachine, ConversationState, Past, Start};
use crate::output::OutputCheck;
use crate::spec::AgentSpec;

/// A model with instructions and tools that works on goals. Cloning costs nothing.
///
/// ```
/// use levity_loop::Agent;
/// use levity_test::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> levity_loop::Result<()> {
/// let agent = Agent::builder(ScriptedModel::new().reply("Good morning!")).build()?;
/// assert_eq!(agent.run("Hello").await?.text(), "Good morning!");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Agent {
    pub(crate) inner: Arc<Inner>,
    /// The schema that answers must match.
    pub(crate) output: Option<Arc<OutputCheck>>,
}

/// The parts that all clones of an agent share. `made_of` is the builder, so that
/// [`Agent::to_builder`] can change single settings.
pub(crate) struct Inner {
    pub(crate) spec: Arc<AgentSpec>,
    pub(crate) executor: Arc<AgentExecutor>,
    /// The executor, wrapped in the guards if there are any.
    pub(crate) performer: Arc<dyn Executor>,
    pub(crate) runtime: Runtime,
    pub(crate) limits: Limits,
    pub(crate) context: Vec<Arc<dyn ContextSource>>,
    pub(crate) context_budget: usize,
    pub(crate) audit: bool,
    pub(crate) name: Option<Arc<str>>,
    pub(crate) made_of: Arc<AgentBuilder>,
}

impl Agent {
    /// Starts building an agent on this model.
    pub fn builder(model: impl levity_core::Model + 'static) -> AgentBuilder {
        AgentBuilder::new(Arc::new(model))
    }

    /// Returns a builder with this agent's settings, so that you can change some of them.
    ///
    /// The new agent shares models, tools, memory, journal and approver with this one. It counts
    /// its own [concurrent calls](AgentBuilder::max_concurrent_tools).
    ///
    /// ```
    /// # use levity_loop::Agent;
    /// # use levity_test::ScriptedModel;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_loop::Result<()> {
    /// let agent = Agent::builder(ScriptedModel::new().reply("Yes.").reply("No.")).build()?;
    /// let strict = agent.to_builder().instructions("Trust nobody.").build()?;
    /// assert_eq!(agent.run("Is it so?").await?.text(), "Yes.");
    /// assert_eq!(strict.run("Is it so?").await?.text(), "No.");
    /// # Ok(())
    /// # }
    /// ```
    pub fn to_builder(&self) -> AgentBuilder {
        AgentBuilder::clone(&self.inner.made_of)
    }

    pub(crate) fn new(inner: Inner) -> Self {
        Self {
            inner: Arc::new(inner),
            output: None,
        }
    }

    /// Runs the agent on a goal, on the caller's own task.
    ///
    /// Set options on the returned [`Run`], then await it. Dropping the future stops the run. A
    /// goal without visible text or other content, such as an image, returns
    /// [`Error::EmptyPrompt`](crate::Error::EmptyPrompt).
    ///
    /// ```
    /// # use levity_loop::Agent;
    /// # use levity_test::ScriptedModel;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_loop::Result<()> {
    /// # let model = ScriptedModel::new().reply("Hello!").reply("Still here.");
    /// # let agent = Agent::builder(model).build()?;
    /// let first = agent.run("Hello").await?;
    /// let second = agent.run("Are you there?").history(first.history().clone()).await?;
    /// assert_eq!(second.history().len(), 4);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// With a memory, a run is part of a conversation:
    ///
    /// ```
    /// # use levity_loop::Agent;
    /// # use levity_memory::InMemory;
    /// # use levity_test::ScriptedModel;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_loop::Result<()> {
    /// # let model = ScriptedModel::new().reply("Good to know.").reply("Blue.");
    /// let agent = Agent::builder(model).memory(InMemory::new()).build()?;
    /// agent.run("My favourite colour is blue.").conversation("c1").await?;
    /// let answer = agent.run("What is my favourite colour?").conversation("c1").await?;
    /// assert_eq!(answer.history().len(), 4);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Use `typed` to get the answer as a type:
    ///
    /// ```
    /// # use levity_loop::Agent;
    /// # use levity_test::ScriptedModel;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_loop::Result<()> {
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Sum {
    ///     total: f64,
    /// }
    ///
    /// # let agent = Agent::builder(ScriptedModel::new().reply(r#"{"total": 7}"#)).build()?;
    /// let sum: Sum = agent.run("What is 2 + 5?").typed().await?;
    /// assert_eq!(sum.total, 7.0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A run that waits for a person can be parked in its journal:
    ///
    /// ```
    /// # use levity_core::{Decision, RunRequest};
    /// # use levity_loop::{Agent, Error};
    /// # use levity_runtime::{MemoryJournal, Runtime};
    /// # use levity_test::{RecordingTool, ScriptedModel};
    /// # use serde_json::json;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let model = ScriptedModel::new().call("send", json!({})).reply("Sent.");
    /// # let send = RecordingTool::new("send", |_| Ok(levity_core::ToolOutput::text("sent")));
    /// # let send = send.with_hints(levity_core::Hints::new().destructive());
    /// # let runtime = Runtime::new().with_journal(MemoryJournal::new());
    /// let agent = Agent::builder(model).tool(send).runtime(runtime).build()?;
    /// let Err(Error::Parked { run, .. }) = agent.run("Send it").park().await else {
    ///     panic!("it asks")
    /// };
    /// // Days later, perhaps in another process:
    /// for ask in agent.pending_asks(&run).await? {
    ///     let request = RunRequest::Decide { effect: ask.effect, decision: Decision::Allow };
    ///     agent.runtime().send_request(&ask.run, request).await?;
    /// }
    /// assert_eq!(agent.resume(run).await?.text(), "Sent.");
    /// # Ok(())
    /// # }
    /// ```
    pub fn run(&self, goal: impl Into<AgentInput>) -> Run<Self> {
        Run::new(self.clone(), goal)
    }

    /// Runs the agent on a goal on a separate task, and returns a handle to it at once.
    ///
    /// # Panics
    /// Panics when called outside a tokio runtime.
    ///
    /// ```
    /// # use levity_core::EventKind;
    /// # use levity_loop::Agent;
    /// # use levity_test::ScriptedModel;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_loop::Result<()> {
    /// # let agent = Agent::builder(ScriptedModel::new().reply("Done.")).build()?;
    /// let mut run = agent.start("Do it");
    /// let mut events = run.events();
    /// while let Some(event) = events.next().await {
    ///     if let EventKind::Asked(ask) = event.kind {
    ///         run.approve(&ask).await.ok();
    ///     }
    /// }
    /// assert_eq!(run.await?.text(), "Done.");
    /// # Ok(())
    /// # }
    /// ```
    pub fn start(&self, goal: impl Into<AgentInput>) -> RunHandle<Self> {
        self.run(goal).start()
    }

    /// Resumes a run of an earlier process from its journal.
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
    /// // The run has ended, so its answer is read from the journal, and no model is called.
    /// assert_eq!(agent.resume(answer.run().clone()).await?.text(), "Done.");
    /// # Ok(())
    /// # }
    /// ```
    pub fn resume(&self, run: impl Into<RunId>) -> Run<Self> {
        Run::resume(self.clone(), run)
    }

    /// Forks an old run at one of its records, with this agent's model, instructions and tools.
    ///
    /// ```
    /// # use levity_loop::Agent;
    /// # use levity_runtime::{MemoryJournal, Runtime};
    /// # use levity_test::ScriptedModel;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_loop::Result<()> {
    /// let runtime = Runtime::new().with_journal(MemoryJournal::new());
    /// let model = |word: &str| ScriptedModel::new().reply(word);
    /// let agent = |word: &str| Agent::builder(model(word)).runtime(runtime.clone());
    /// let old = agent("Good morning!").build()?.run("Say hello").await?;
    /// let casual = agent("Howdy!").instructions("Be casual.").build()?;
    /// let new = casual.fork(old.run().clone()).await?;
    /// assert_eq!((old.text(), new.text()), ("Good morning!", "Howdy!"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn fork(&self, run: impl Into<RunId>) -> Run<Self> {
        Run::fork(self.clone(), run)
    }

    /// Returns the machine that decides a run of this agent, for use with your own engine.
    ///
    /// The machine reads no context sources and passes the goal to no guard. To screen the goal,
    /// use the [screener](levity_core::Inspection::screener) of the [executor](Self::executor).
    ///
    /// ```
    /// use levity_core::{Effect, Input, Machine, MachineOutput};
    /// use levity_loop::Agent;
    /// use levity_test::ScriptedModel;
    ///
    /// let agent = Agent::builder(ScriptedModel::new()).build()?;
    /// let (mut machine, mut step) = (agent.machine("Say hello"), MachineOutput::new());
    /// machine.apply(Input::Begin { run: "r1".into(), wrap: None }, &mut step);
    /// assert!(matches!(step.effects[0].1, Effect::Model(_)), "it asks its model first");
    /// # Ok::<(), levity_core::Error>(())
    /// ```
    pub fn machine(&self, goal: impl Into<Message>) -> AgentMachine {
        let gathered = GatheredContext {
            system: self.inner.spec.instructions.clone(),
            beside: None,
        };
        let goal: Message = goal.into();
        self.set_in(goal, Past::default(), gathered, None)
    }

    pub(crate) fn set_in(
        &self,
        goal: impl Into<Goal>,
        past: Past,
        gathered: GatheredContext,
        output: Option<OutputCheck>,
    ) -> AgentMachine {
        let GatheredContext { system, beside } = gathered;
        let Goal {
            message: goal,
            guarded,
        } = goal.into();
        AgentMachine::new(
            self.inner.spec.clone(),
            Start {
                goal,
                guarded,
                past,
                system,
                beside,
                output,
            },
        )
    }

    /// Rebuilds the machine from a state that it saved at any time.
    ///
    /// If the run has a typed answer, the agent must be
    /// [expecting](levity_runtime::TypedOutput::with_output_type) that type.
    ///
    /// # Errors
    /// Returns an error if the state does not belong to an agent, is damaged, or expects another
    /// type of answer.
    pub fn restore(&self, state: &Value) -> Result<AgentMachine, String> {
        AgentMachine::restore(self.inner.spec.clone(), state, self.output())
    }

    fn output(&self) -> Option<OutputCheck> {
        self.output.as_deref().cloned()
    }

    /// Returns the executor that performs this agent's effects.
    pub fn executor(&self) -> Arc<dyn Executor> {
        self.inner.performer.clone()
    }

    /// Returns the dispatcher of this agent's tools, which applies its policy and timeouts.
    pub fn dispatcher(&self) -> &levity_tools::Dispatcher {
        &self.inner.executor.tools
    }

    /// Returns the name of the agent, if it has one.
    pub fn name(&self) -> Option<&str> {
        self.inner.name.as_deref()
    }

    /// Returns the card of the agent's model: provider, id, window, capabilities and price.
    ///
    /// ```
    /// # use levity_core::ModelCard;
    /// # use levity_loop::Agent;
    /// # use levity_test::ScriptedModel;
    /// let model = ScriptedModel::new().with_card(ModelCard::new("test", "small"));
    /// assert_eq!(Agent::builder(model).build()?.card().id, "small");
    /// # Ok::<(), levity_core::Error>(())
    /// ```
    pub fn card(&self) -> &ModelCard {
        self.inner.executor.model.card()
    }

    /// Returns the maximum number of turns of a run; see [`AgentBuilder::max_turns`].
    ///
    /// ```
    /// # use levity_loop::Agent;
    /// # use levity_test::ScriptedModel;
    /// let agent = Agent::builder(ScriptedModel::new()).max_turns(4).build()?;
    /// assert_eq!(agent.max_turns(), 4);
    /// # Ok::<(), levity_core::Error>(())
    /// ```
    pub fn max_turns(&self) -> u64 {
        self.inner.spec.max_turns
    }

    /// Returns the runtime that drives the agent's runs.
    pub fn runtime(&self) -> &Runtime {
        &self.inner.runtime
    }

    /// Sends a message to a run of this agent that this process does not drive, as
    /// [`Runtime::send_request`] does.
    ///
    /// If no process drives the run, this agent's guards check the message before it is stored.
    ///
    /// # Errors
    /// Fails in the same cases as [`Runtime::send_screened_request`].
    ///
    /// ```
    /// use levity_core::{ControlCommand, Message, RunId, RunRequest, RuntimeError};
    /// use levity_loop::Agent;
    ///
    /// /// Adds a message to a run that waits in its journal.
    /// async fn tell(agent: &Agent, run: &RunId, text: &str) -> Result<(), RuntimeError> {
    ///     let message = Message::user(text).into();
    ///     agent.send_request(run, RunRequest::Command(ControlCommand::Say { message })).await?;
    ///     Ok(())
    /// }
    /// ```
    pub async fn send_request(
        &self,
        run: &RunId,
        post: RunRequest,
    ) -> Result<Delivery, levity_core::RuntimeError> {
        self.inner
            .runtime
            .send_screened_request(&*self.inner.performer, run, post)
            .await
    }

    /// Creates a run of this agent as the child of another run, for use in your own executor.
    ///
    /// The run is new, or continues from a state that its machine saved. A saved state contains the
    /// first output of the context sources and everything in the task.
    ///
    /// ```
    /// # use levity_core::Machine;
    /// # use levity_loop::{Agent, ChildTask};
    /// # use levity_test::ScriptedModel;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let agent = Agent::builder(ScriptedModel::new()).build()?;
    /// let new = agent.child(ChildTask::new("Do it").include_messages(), None).await?;
    /// let saved = new.machine.save();
    /// // In another process, from the journal:
    /// let same = agent.child("Do it", Some(&saved)).await?;
    /// assert_eq!(same.machine.save(), saved);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns an error if a context source fails, the conversation cannot be loaded, or the state
    /// does not belong to an agent.
    pub async fn child(
        &self,
        task: impl Into<ChildTask>,
        saved: Option<&Value>,
    ) -> Result<Child, ToolError> {
        let mut task = task.into();
        let label = task.take_label();
        let (machine, lease) = match saved {
            Some(state) => {
                let machine = self.restore(state).map_err(ToolError::failed)?;
                let lease = self.lease_of(&machine).map(ChildLease::Wanted);
                (machine, lease)
            }
            None => {
                let (machine, lease) = self.new_child_machine(task).await?;
                (machine, lease.map(ChildLease::Held))
            }
        };
        let executor = labelled(self.executor(), label);
        let child = Child::new(machine, executor, self.inner.limits);
        Ok(match lease {
            Some(lease) => child.with_lease(lease),
            None => child,
        })
    }

    /// Passes a goal through the guards.
    pub(crate) async fn screen_goal(&self, goal: Message) -> Goal {
        match &self.inner.executor.screen {
            Some(screen) => screen.goal(goal).await,
            None => goal.into(),
        }
    }

    /// Returns the history that a run starts with.
    pub(crate) async fn load_past(
        &self,
        history: History,
        conversation: Option<ConversationId>,
    ) -> Result<(Past, Option<Lease>), SharedError> {
        match conversation {
            None => Ok((
                Past {
                    history,
                    ..Past::default()
                },
                None,
            )),
            Some(id) => self
                .past(&id)
                .await
                .map(|(past, lease)| (past, Some(lease))),
        }
    }
}

impl Runnable for Agent {
    type Input = AgentInput;
    type Machine = AgentMachine;
    type Output = Answer;

    fn runtime(&self) -> &Runtime {
        Self::runtime(self)
    }

    fn executor(&self) -> Arc<dyn Executor> {
        Self::executor(self)
    }

    fn limits(&self) -> Limits {
        self.inner.limits
    }

    fn begin(&self, input: AgentInput, _: &Limits) -> Result<MachineStart<AgentMachine>, Error> {
        if input.is_blank() {
            return Err(Error::EmptyPrompt);
        }
        let AgentInput {
            goal,
            history,
            conversation,
        } = input;
        let screens = self
            .inner
            .executor
            .screen
            .as_ref()
            .is_some_and(|screen| screen.watches_input());
        if conversation.is_none() && self.inner.context.is_empty() && !screens {
            let gathered = GatheredContext {
                system: self.inner.spec.instructions.clone(),
                beside: None,
            };
            let past = Past {
                history,
                ..Past::default()
            };
            return Ok(MachineStart::now(self.set_in(
                goal,
                past,
                gathered,
                self.output(),
            )));
        }
        // The output of the context sources is part of the first state, so a resumed run sees what
        // the first one saw.
        let agent = self.clone();
        Ok(MachineStart::later(async move {
            let goal = agent.screen_goal(goal).await;
            let (past, lease) = agent.load_past(history, conversation).await?;
            let gathered = agent
                .gather(
                    &goal.message.text(),
                    past.talk.as_ref().map(ConversationState::id),
                )
                .await?;
            Ok(LeasedMachine::with_lease(
                agent.set_in(goal, past, gathered, agent.output()),
                lease,
            ))
        }))
    }

    fn restore(&self, kind: &MachineKind, state: &Value) -> Result<AgentMachine, String> {
        AgentMachine::check_kind(kind)?;
        Self::restore(self, state)
    }

    fn inspect(&self, kind: &MachineKind, state: &Value) -> Result<AgentMachine, String> {
        AgentMachine::check_kind(kind)?;
        AgentMachine::restore_untyped(self.inner.spec.clone(), state)
    }

    fn conclude(&self, reached: StoppedRun<AgentMachine>) -> Result<Answer, Error> {
        reached.finish(AgentDetails::new)
    }

    fn name(&self) -> Option<Arc<str>> {
        self.inner.name.clone()
    }

    fn verifies_replay(&self) -> bool {
        self.inner.audit
    }

    fn adapt(&self, machine: AgentMachine) -> BoxFuture<'static, Result<AgentMachine, String>> {
        let agent = self.clone();
        Box::pin(async move {
            let gathered = agent
                .gather(&machine.goal().text(), machine.conversation())
                .await;
            Ok(machine.forked(gathered.map_err(|error| error.to_string())?))
        })
    }

    fn lease(&self, machine: &AgentMachine) -> Option<LeaseFuture> {
        self.lease_of(machine)
    }

    fn keeps_conversations(&self) -> bool {
        self.conversations().is_some()
    }

    fn messages(answer: &Answer) -> Option<&[Arc<Message>]> {
        Some(answer.messages())
    }

    fn conversation(input: &mut AgentInput) -> Option<&mut Option<ConversationId>> {
        Some(&mut input.conversation)
    }

    fn history(input: &mut AgentInput) -> Option<&mut History> {
        Some(&mut input.history)
    }
}

impl Conversational for Agent {}

impl TypedOutput for Agent {
    fn with_output_type<T: DeserializeOwned + JsonSchema>(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            output: Some(Arc::new(OutputCheck::of::<T>())),
        }
    }

    fn parse<T: DeserializeOwned>(answer: &Answer) -> Result<T, Error> {
        answer.parse()
    }
}

/// The input of an agent's run: the goal and the earlier conversation.
///
/// ```
/// use levity_core::{History, Message};
/// use levity_loop::AgentInput;
///
/// let mut input = AgentInput::from("What is the capital of France?");
/// input.history.push(Message::user("Answer in one word."))?;
/// assert_eq!((input.history.len(), input.conversation.is_none()), (1, true));
/// # Ok::<(), levity_core::HistoryError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AgentInput {
    /// The goal of the run.
    pub goal: Message,
    /// The earlier messages. With a conversation, they come from the agent's memory.
    pub history: History,
    /// The conversation that the run is part of.
    pub conversation: Option<ConversationId>,
}

impl AgentInput {
    /// Returns `true` if the goal has no visible content.
    fn is_blank(&self) -> bool {
        self.goal
            .parts
            .iter()
            .all(|part| matches!(part, Part::Text(_)))
            && is_blank(&self.goal.text())
    }
}

impl<G: Into<Message>> From<G> for AgentInput {
    fn from(goal: G) -> Self {
        Self {
            goal: goal.into(),
            history: History::new(),
            conversation: None,
        }
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent")
            .field("executor", &self.inner.executor)
            .finish_non_exhaustive()
    }
}
