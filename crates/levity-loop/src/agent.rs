use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use levity_core::text::is_blank;
use levity_core::{
    Child, ChildLease, ContextSource, ConversationId, Error, Executor, History, Lease, Limits,
    MachineKind, Message, ModelCard, Part, Reached, RunId, RunRequest, SharedError, ToolError,
};
use levity_runtime::{
    Beginning, Conversational, Delivery, LeaseFuture, Made, Run, RunHandle, Runnable, Runtime,
    TypedOutput,
};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::answer::{AgentDetails, Answer};
use crate::builder::AgentBuilder;
use crate::child_task::ChildTask;
use crate::executor::AgentExecutor;
use crate::gather::Gathered;
use crate::guards::Goal;
use crate::machine::{AgentMachine, Past, Start, Talk};
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
    /// The shape that answers must have.
    pub(crate) output: Option<Arc<OutputCheck>>,
}

pub(crate) struct Inner {
    pub(crate) spec: Arc<AgentSpec>,
    pub(crate) executor: Arc<AgentExecutor>,
    /// The executor with the guards around it, if there are any.
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
    /// Begins an agent on this model.
    pub fn builder(model: impl levity_core::Model + 'static) -> AgentBuilder {
        AgentBuilder::new(Arc::new(model))
    }

    /// The same agent, to be changed: another tool, another instruction. What is built of it shares
    /// models, tools, memory, journal and approver with this one, and counts its own [concurrent
    /// calls](AgentBuilder::max_concurrent_tools).
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

    /// Works on a goal, on the caller's own task: await what is returned, after setting what is to
    /// be set. Dropping the future stops the work. A goal without visible text, or something else
    /// such as a picture, gives [`Error::EmptyPrompt`](crate::Error::EmptyPrompt).
    ///
    /// ```
    /// # use levity_loop::Agent;
    /// # use levity_test::ScriptedModel;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_loop::Result<()> {
    /// # let agent = Agent::builder(ScriptedModel::new().reply("Hello!").reply("Still here.")).build()?;
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
    /// The answer can be wanted as a type:
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
    /// A run that waits for a person can be left in its journal:
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
    /// let Err(Error::Parked { run, .. }) = agent.run("Send it").park().await else { panic!("it asks") };
    /// // Days later, perhaps in another process:
    /// for ask in agent.asks(&run).await? {
    ///     agent.runtime().tell(&ask.run, RunRequest::Decide { effect: ask.effect, decision: Decision::Allow }).await?;
    /// }
    /// assert_eq!(agent.resume(run).await?.text(), "Sent.");
    /// # Ok(())
    /// # }
    /// ```
    pub fn run(&self, goal: impl Into<AgentInput>) -> Run<Self> {
        Run::new(self.clone(), goal)
    }

    /// Works on a goal on a task of its own, and returns a handle on it at once.
    ///
    /// # Panics
    /// When called outside a tokio runtime.
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

    /// Goes on with a run that an earlier process left, from its journal.
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

    /// Goes another way from a record of an old run, with this agent's model, instructions and
    /// tools.
    ///
    /// ```
    /// # use levity_loop::Agent;
    /// # use levity_runtime::{MemoryJournal, Runtime};
    /// # use levity_test::ScriptedModel;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_loop::Result<()> {
    /// let runtime = Runtime::new().with_journal(MemoryJournal::new());
    /// let agent = |word: &str| Agent::builder(ScriptedModel::new().reply(word)).runtime(runtime.clone());
    /// let old = agent("Good morning!").build()?.run("Say hello").await?;
    /// let new = agent("Howdy!").instructions("Be casual.").build()?.fork(old.run().clone()).await?;
    /// assert_eq!((old.text(), new.text()), ("Good morning!", "Howdy!"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn fork(&self, run: impl Into<RunId>) -> Run<Self> {
        Run::fork(self.clone(), run)
    }

    /// The machine that a run of this agent is driven by, for an engine of your own. Context
    /// sources are not read, and no guard looks at the goal: the
    /// [screener](levity_core::Inspection::screener) of the [executor](Self::executor) has them
    /// look.
    pub fn machine(&self, goal: impl Into<Message>) -> AgentMachine {
        let gathered = Gathered {
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
        gathered: Gathered,
        output: Option<OutputCheck>,
    ) -> AgentMachine {
        let Gathered { system, beside } = gathered;
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

    /// Builds the machine again from a state that it saved at any time. A run whose answer was
    /// wanted as a type needs an agent that is [expecting](levity_runtime::TypedOutput::expecting)
    /// it.
    ///
    /// # Errors
    /// When the state is not one of an agent, is damaged, or its answer was wanted as something
    /// else.
    pub fn restore(&self, state: &Value) -> Result<AgentMachine, String> {
        AgentMachine::restore(self.inner.spec.clone(), state, self.output())
    }

    fn output(&self) -> Option<OutputCheck> {
        self.output.as_deref().cloned()
    }

    /// What performs this agent's effects.
    pub fn executor(&self) -> Arc<dyn Executor> {
        self.inner.performer.clone()
    }

    /// What dispatches its tools: under its policy, within its time limits.
    pub fn dispatcher(&self) -> &levity_tools::Dispatcher {
        &self.inner.executor.tools
    }

    /// What it is called, if it has a name.
    pub fn name(&self) -> Option<&str> {
        self.inner.name.as_deref()
    }

    /// What is known of its model: provider, id, window, abilities and price.
    pub fn card(&self) -> &ModelCard {
        self.inner.executor.model.card()
    }

    /// What drives its runs.
    pub fn runtime(&self) -> &Runtime {
        &self.inner.runtime
    }

    /// Tells something to a run of this agent that this process does not drive, as
    /// [`Runtime::tell`] does. Where nobody drives it, this agent's guards look at what people say
    /// before it is written down.
    ///
    /// # Errors
    /// As [`Runtime::tell_by`].
    pub async fn tell(
        &self,
        run: &RunId,
        post: RunRequest,
    ) -> Result<Delivery, levity_core::RuntimeError> {
        self.inner
            .runtime
            .tell_by(&*self.inner.performer, run, post)
            .await
    }

    /// A run of this agent below another, for an executor of your own: a new one, or one from a
    /// state that its machine saved. What its context sources said at first is in what was saved,
    /// and so is all that the task says.
    ///
    /// ```
    /// # use levity_core::Machine;
    /// # use levity_loop::{Agent, ChildTask};
    /// # use levity_test::ScriptedModel;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let agent = Agent::builder(ScriptedModel::new()).build()?;
    /// let new = agent.child(ChildTask::new("Do it").with_said(), None).await?;
    /// let saved = new.machine.save();
    /// // In another process, from the journal:
    /// let same = agent.child("Do it", Some(&saved)).await?;
    /// assert_eq!(same.machine.save(), saved);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When a context source fails, the conversation cannot be had, or the state is not one of an
    /// agent.
    pub async fn child(
        &self,
        task: impl Into<ChildTask>,
        saved: Option<&Value>,
    ) -> Result<Child, ToolError> {
        let (machine, lease) = match saved {
            Some(state) => {
                let machine = self.restore(state).map_err(ToolError::failed)?;
                let lease = self.lease_of(&machine).map(ChildLease::Wanted);
                (machine, lease)
            }
            None => {
                let (machine, lease) = self.set_out(task.into()).await?;
                (machine, lease.map(ChildLease::Held))
            }
        };
        let child = Child::new(machine, self.executor(), self.inner.limits);
        Ok(match lease {
            Some(lease) => child.with_lease(lease),
            None => child,
        })
    }

    /// What the guards make of a goal.
    pub(crate) async fn screened(&self, goal: Message) -> Goal {
        match &self.inner.executor.screen {
            Some(screen) => screen.goal(goal).await,
            None => goal.into(),
        }
    }

    /// What was before a run.
    pub(crate) async fn past_of(
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

    fn begin(&self, input: AgentInput, _: &Limits) -> Result<Beginning<AgentMachine>, Error> {
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
            .is_some_and(|screen| screen.hears());
        if conversation.is_none() && self.inner.context.is_empty() && !screens {
            let gathered = Gathered {
                system: self.inner.spec.instructions.clone(),
                beside: None,
            };
            let past = Past {
                history,
                ..Past::default()
            };
            return Ok(Beginning::now(self.set_in(
                goal,
                past,
                gathered,
                self.output(),
            )));
        }
        // What the context sources say is part of the first state, so a resumed run sees what the
        // first one saw.
        let agent = self.clone();
        Ok(Beginning::later(async move {
            let goal = agent.screened(goal).await;
            let (past, lease) = agent.past_of(history, conversation).await?;
            let gathered = agent
                .gather(&goal.message.text(), past.talk.as_ref().map(Talk::id))
                .await?;
            Ok(Made::with_lease(
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

    fn conclude(&self, reached: Reached<AgentMachine>) -> Result<Answer, Error> {
        reached.finish(AgentDetails::new)
    }

    fn name(&self) -> Option<Arc<str>> {
        self.inner.name.clone()
    }

    fn audits(&self) -> bool {
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
    fn expecting<T: DeserializeOwned + JsonSchema>(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            output: Some(Arc::new(OutputCheck::of::<T>())),
        }
    }

    fn parse<T: DeserializeOwned>(answer: &Answer) -> Result<T, Error> {
        answer.parse()
    }
}

/// The input of an agent's run: the goal, and what was said before.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AgentInput {
    /// What is to be done.
    pub goal: Message,
    /// What was said before; with a conversation, that comes from the agent's memory.
    pub history: History,
    /// The conversation that the run is part of.
    pub conversation: Option<ConversationId>,
}

impl AgentInput {
    /// Returns whether nobody can see anything in the goal.
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
