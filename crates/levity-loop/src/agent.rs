use std::fmt;
use std::sync::Arc;

use levity_core::{
    Cause, Child, ContextSource, ConversationId, Executor, History, Limits, Message, ModelCard, Post, RunId,
    ToolError,
};
use levity_runtime::{Job, Runtime, Told};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::builder::AgentBuilder;
use crate::errand::Errand;
use crate::executor::AgentExecutor;
use crate::fork::Fork;
use crate::gather::Gathered;
use crate::guards::Goal;
use crate::machine::{AgentMachine, Past, Start, Talk};
use crate::output::OutputCheck;
use crate::resume::Resume;
use crate::run::{AgentRun, Run};
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
}

pub(crate) struct Inner {
    pub(crate) spec: Arc<AgentSpec>,
    pub(crate) executor: Arc<AgentExecutor>,
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

    /// The same agent, to be changed: another tool, another instruction. What is built of it shares models, tools,
    /// memory, journal and approver with this one, and counts its own
    /// [concurrent calls](AgentBuilder::max_concurrent_tools).
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
        Self { inner: Arc::new(inner) }
    }

    /// Works on a goal, on the caller's own task: await what is returned, after setting what is to be
    /// set. Dropping the future stops the work. A goal without visible text, or something else such as a picture, gives
    /// [`Error::EmptyPrompt`](crate::Error::EmptyPrompt).
    pub fn run(&self, goal: impl Into<Message>) -> Run {
        Run::new(self.clone(), goal.into())
    }

    /// Works on a goal on a task of its own, and returns a handle on it at once.
    ///
    /// # Panics
    /// When called outside a tokio runtime.
    pub fn start(&self, goal: impl Into<Message>) -> AgentRun {
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
    pub fn resume(&self, run: impl Into<RunId>) -> Resume {
        Resume::new(self.clone(), run.into())
    }

    /// Goes another way from a record of an old run, with this agent's model, instructions and tools.
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
    pub fn fork(&self, run: impl Into<RunId>) -> Fork {
        Fork::new(self.clone(), run.into())
    }

    /// The machine that a run of this agent is driven by, for an engine of your own. Context sources are
    /// not read, and no guard looks at the goal: [`hear`](Executor::hear) of the [executor](Self::executor) has them look.
    pub fn machine(&self, goal: impl Into<Message>) -> AgentMachine {
        let gathered = Gathered { system: self.inner.spec.instructions.clone(), beside: None };
        let goal: Message = goal.into();
        self.begin(goal, Past::default(), gathered, None)
    }

    pub(crate) fn begin(
        &self,
        goal: impl Into<Goal>,
        past: Past,
        gathered: Gathered,
        output: Option<OutputCheck>,
    ) -> AgentMachine {
        let Gathered { system, beside } = gathered;
        let Goal { message: goal, guarded } = goal.into();
        AgentMachine::new(self.inner.spec.clone(), Start { goal, guarded, past, system, beside, output })
    }

    /// Builds the machine again from the state it saved before its first input. A run whose answer was wanted
    /// as a type needs [`restore_typed`](Self::restore_typed).
    ///
    /// # Errors
    /// When the state is not one of an agent.
    pub fn restore(&self, state: &Value) -> Result<AgentMachine, String> {
        AgentMachine::restore(self.inner.spec.clone(), state, None)
    }

    /// Builds the machine of a run again whose answer was wanted as a `T`.
    ///
    /// # Errors
    /// When the state is not one of an agent, or its answer was wanted as something else.
    pub fn restore_typed<T: DeserializeOwned + JsonSchema>(
        &self,
        state: &Value,
    ) -> Result<AgentMachine, String> {
        self.restore_as(state, Some(OutputCheck::of::<T>()))
    }

    pub(crate) fn restore_as(
        &self,
        state: &Value,
        output: Option<OutputCheck>,
    ) -> Result<AgentMachine, String> {
        AgentMachine::restore(self.inner.spec.clone(), state, output)
    }

    /// What performs this agent's effects.
    pub fn executor(&self) -> Arc<dyn Executor> {
        self.inner.executor.clone()
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

    /// Tells something to a run of this agent that this process does not drive, as [`Runtime::tell`] does. Where nobody
    /// drives it, this agent's guards look at what people say before it is written down.
    ///
    /// # Errors
    /// As [`Runtime::tell_by`].
    pub async fn tell(&self, run: &RunId, post: Post) -> Result<Told, levity_runtime::Error> {
        self.inner.runtime.tell_by(&*self.inner.executor, run, post).await
    }

    /// A run of this agent below another, for an executor of your own: a new one, or one from the state that its machine
    /// saved before its first input. What its context sources said at first is in what was saved, and so is all that
    /// the errand says.
    ///
    /// ```
    /// # use levity_core::Machine;
    /// # use levity_loop::{Agent, Errand};
    /// # use levity_test::ScriptedModel;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let agent = Agent::builder(ScriptedModel::new()).build()?;
    /// let new = agent.child(Errand::new("Do it").with_said(), None).await?;
    /// let saved = new.machine.save();
    /// // In another process, from the journal:
    /// let same = agent.child("Do it", Some(&saved)).await?;
    /// assert_eq!(same.machine.save(), saved);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When a context source fails, the conversation cannot be had, or the state is not one of an agent.
    pub async fn child(&self, errand: impl Into<Errand>, saved: Option<&Value>) -> Result<Child, ToolError> {
        let machine = match saved {
            Some(state) => self.restore(state).map_err(ToolError::failed)?,
            None => self.set_out(errand.into()).await?,
        };
        let escort = machine.conversation().map(|id| self.escort(id.clone()));
        let child = Child::new(machine, self.executor(), self.inner.limits);
        Ok(match escort {
            Some(escort) => child.with_escort(escort),
            None => child,
        })
    }

    pub(crate) fn limits(&self) -> Limits {
        self.inner.limits
    }

    /// The job of a run. What the context sources say is part of its first state, so a resumed run
    /// sees what the first one saw.
    pub(crate) fn job(
        &self,
        goal: Message,
        before: Before,
        output: Option<OutputCheck>,
    ) -> Job<AgentMachine> {
        let before = match before {
            Before::History(history) if self.inner.context.is_empty() && !self.inner.executor.hears() => {
                let gathered = Gathered { system: self.inner.spec.instructions.clone(), beside: None };
                let past = Past { history, ..Past::default() };
                return Job::new(self.begin(goal, past, gathered, output), self.executor());
            }
            before => before,
        };
        let agent = self.clone();
        let machine = async move {
            let goal = agent.inner.executor.goal(goal).await;
            let past = agent.before(before).await?;
            let gathered = agent.gather(&goal.message.text(), past.talk.as_ref().map(Talk::id)).await?;
            Ok(agent.begin(goal, past, gathered, output))
        };
        Job::deferred(machine, self.executor())
    }

    /// What was before a run.
    pub(crate) async fn before(&self, before: Before) -> Result<Past, Cause> {
        match before {
            Before::History(history) => Ok(Past { history, ..Past::default() }),
            Before::Conversation(id) => self.past(&id).await,
        }
    }

    /// A job that is looked over at its end, if the agent's are.
    pub(crate) fn audited(&self, job: Job<AgentMachine>, output: Option<OutputCheck>) -> Job<AgentMachine> {
        if !self.inner.audit {
            return job;
        }
        let agent = self.clone();
        job.audit(move |_, state| async move { agent.restore_as(&state, output) })
    }
}

/// What a run goes on from.
pub(crate) enum Before {
    History(History),
    Conversation(ConversationId),
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent").field("executor", &self.inner.executor).finish_non_exhaustive()
    }
}
