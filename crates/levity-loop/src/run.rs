use std::fmt;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use levity_core::text::is_blank;
use levity_core::{
    Ask, Cause, ConversationId, Ending, Event, Failure, History, Limits, Machine, MemoryError, Message, Part,
    RunId, Status,
};
use levity_runtime::{Control, ControlError, Done, Events, Job, RunHandle, Stopped};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::agent::{Agent, Before};
use crate::answer::Answer;
use crate::error::{Error, Result};
use crate::machine::AgentMachine;
use crate::output::OutputCheck;
use crate::way::Way;

/// A run that is about to begin: await it for the answer, or set something first.
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
#[must_use = "a run does nothing until it is awaited or started"]
pub struct Run {
    goal: Message,
    before: Before,
    way: Way,
}

impl Run {
    pub(crate) fn new(agent: Agent, goal: Message) -> Self {
        Self { goal, before: Before::History(History::new()), way: Way::new(agent) }
    }

    /// Goes on from an earlier conversation.
    pub fn history(mut self, history: History) -> Self {
        self.before = Before::History(history);
        self
    }

    /// Goes on with a conversation in the agent's memory, in place of a history: what was said before is there, and what
    /// is said now is kept. Whoever else works on the conversation is waited for.
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
    pub fn conversation(mut self, id: impl Into<ConversationId>) -> Self {
        self.before = Before::Conversation(id.into());
        self
    }

    /// What this run may use, in place of the agent's limits.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.way.limits = Some(Box::new(limits));
        self
    }

    /// The run's id; a random one by default. A dot stands between a run and its children.
    pub fn id(mut self, run: impl Into<RunId>) -> Self {
        self.way.id = Some(run.into());
        self
    }

    /// Calls `watcher` with each event, in order; it must not block. What a blocking tool reports of its
    /// progress comes from that tool's thread, all else from the task that drives the run.
    pub fn on_event(mut self, watcher: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.way.watch(watcher);
        self
    }

    /// Leaves the run in its journal when all it does is wait, for a person or a time: awaiting it then gives
    /// [`Error::Parked`], and until [`Agent::resume`] goes on with it, it takes up nothing but its place in the
    /// journal. Without a journal, it makes no difference.
    ///
    /// ```
    /// # use levity_core::{Decision, Post};
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
    ///     agent.runtime().tell(&ask.run, Post::Decide { effect: ask.effect, decision: Decision::Allow }).await?;
    /// }
    /// assert_eq!(agent.resume(run).await?.text(), "Sent.");
    /// # Ok(())
    /// # }
    /// ```
    pub fn park(mut self) -> Self {
        self.way.park = true;
        self
    }

    /// Wants the answer as a `T`: the model is given its schema, the answer is checked against it, mended
    /// where that is safe, and asked for again when it is wrong.
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
    pub fn typed<T: DeserializeOwned + JsonSchema>(mut self) -> TypedRun<T> {
        self.way.output = Some(OutputCheck::of::<T>());
        TypedRun { run: self, as_type: PhantomData }
    }

    /// Works on a task of its own, and returns a handle on it at once.
    ///
    /// # Panics
    /// When called outside a tokio runtime.
    pub fn start(self) -> AgentRun {
        let (way, job) = self.into_job();
        way.start(job)
    }

    fn into_job(self) -> (Way, Job<AgentMachine>) {
        let agent = &self.way.agent;
        if is_blank_goal(&self.goal) {
            let job = Job::deferred(async { Err(Cause::new(Blank)) }, agent.executor());
            return (self.way, job);
        }
        // What is set on the run itself comes later, and counts.
        let job = agent.job(self.goal, self.before, self.way.output.clone()).limits(agent.limits());
        (self.way, job)
    }
}

/// Returns whether nobody can see anything in a goal.
fn is_blank_goal(goal: &Message) -> bool {
    goal.parts.iter().all(|part| matches!(part, Part::Text(_))) && is_blank(&goal.text())
}

/// The reason to refuse a goal without visible text; it becomes [`Error::EmptyPrompt`].
#[derive(Clone, Debug)]
struct Blank;

impl fmt::Display for Blank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Error::EmptyPrompt)
    }
}

impl std::error::Error for Blank {}

impl IntoFuture for Run {
    type Output = Result<Answer>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        let (way, job) = self.into_job();
        way.answer(job)
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("agent", &self.way.agent).finish_non_exhaustive()
    }
}

/// A run whose answer is wanted as a `T`; see [`Run::typed`]. All else is set before.
#[must_use = "a run does nothing until it is awaited"]
pub struct TypedRun<T> {
    run: Run,
    as_type: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned + JsonSchema> TypedRun<T> {
    /// Waits for the answer as a `T`, together with all there is to know of it.
    ///
    /// # Errors
    /// As for any run, and [`Error::Output`] when the answer keeps having the wrong shape.
    pub async fn with_answer(self) -> Result<(T, Answer)> {
        let answer = self.run.await?;
        Ok((answer.parse()?, answer))
    }

    /// Works on a task of its own, and returns a handle on it at once; [`Answer::parse`] gives the `T`.
    ///
    /// # Panics
    /// When called outside a tokio runtime.
    pub fn start(self) -> AgentRun {
        self.run.start()
    }
}

impl<T: DeserializeOwned + JsonSchema + 'static> IntoFuture for TypedRun<T> {
    type Output = Result<T>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { Ok(self.with_answer().await?.0) })
    }
}

impl<T> fmt::Debug for TypedRun<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TypedRun").field(&self.run).finish()
    }
}

/// A run under way. Awaiting it gives the answer; dropping it stops the run.
///
/// The methods that tell the run something return once that is in its journal.
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
#[must_use = "dropping the handle stops the run"]
pub struct AgentRun {
    handle: RunHandle<AgentMachine>,
    agent: Agent,
    /// What is left to do once the run has ended.
    rest: Option<Pin<Box<dyn Future<Output = Result<Answer>> + Send>>>,
}

impl AgentRun {
    pub(crate) fn new(agent: Agent, handle: RunHandle<AgentMachine>) -> Self {
        Self { handle, agent, rest: None }
    }

    /// The run's id.
    pub fn id(&self) -> &RunId {
        self.handle.id()
    }

    /// What happens in the run and its children: at the first call from the start, later from now on.
    pub fn events(&mut self) -> Events {
        self.handle.events()
    }

    /// Stops the run where it is, as dropping the handle does, and waits until nothing of it is left.
    pub async fn stop(self) {
        self.handle.stop().await;
    }

    /// Tells the run what to do, from anywhere: it can be cloned and sent away.
    pub fn control(&self) -> &Control {
        self.handle.control()
    }

    /// Begins nothing new; what has begun goes on to its end.
    ///
    /// # Errors
    /// When the run has ended.
    pub async fn pause(&self) -> Result<(), ControlError> {
        self.control().pause().await
    }

    /// Goes on after a pause.
    ///
    /// # Errors
    /// When the run has ended.
    pub async fn resume(&self) -> Result<(), ControlError> {
        self.control().resume().await
    }

    /// Ends the run now; awaiting it then gives [`Error::Cancelled`] with what was reached.
    ///
    /// # Errors
    /// When the run has ended.
    pub async fn cancel(&self, reason: impl Into<String>) -> Result<(), ControlError> {
        self.control().cancel(reason).await
    }

    /// Says something, to be taken in before the next call of the model.
    ///
    /// # Errors
    /// When the run has ended.
    pub async fn say(&self, message: impl Into<Message>) -> Result<(), ControlError> {
        self.control().say(message).await
    }

    /// Allows what was asked.
    ///
    /// # Errors
    /// When nobody waits for the decision any more.
    pub async fn approve(&self, ask: &Ask) -> Result<(), ControlError> {
        self.control().approve(ask).await
    }

    /// Allows what was asked, with other arguments.
    ///
    /// # Errors
    /// When nobody waits for the decision any more.
    pub async fn edit(&self, ask: &Ask, args: Value) -> Result<(), ControlError> {
        self.control().edit(ask, args).await
    }

    /// Forbids what was asked; the model is told why.
    ///
    /// # Errors
    /// When nobody waits for the decision any more.
    pub async fn deny(&self, ask: &Ask, reason: impl Into<String>) -> Result<(), ControlError> {
        self.control().deny(ask, reason).await
    }

    /// Answers a question of the model's, or tells it this in place of what a call would return.
    ///
    /// # Errors
    /// When nobody waits for the decision any more.
    pub async fn answer(&self, ask: &Ask, text: impl Into<String>) -> Result<(), ControlError> {
        self.control().answer(ask, text).await
    }
}

impl Future for AgentRun {
    type Output = Result<Answer>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.rest.is_none() {
            let ended = std::task::ready!(Pin::new(&mut self.handle).poll(cx));
            if ended.as_ref().map_or(true, |done| done.machine.talk().is_none()) {
                return Poll::Ready(conclude(ended));
            }
            let agent = self.agent.clone();
            self.rest = Some(Box::pin(finish(agent, ended)));
        }
        match &mut self.rest {
            Some(rest) => rest.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }
}

impl fmt::Debug for AgentRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AgentRun").field(self.id()).finish()
    }
}

/// Does what is left to do for the conversation of a run, and says how the run ended.
pub(crate) async fn finish(
    agent: Agent,
    ended: Result<Done<AgentMachine>, Stopped<AgentMachine>>,
) -> Result<Answer> {
    if let Ok(done) = &ended {
        agent.settle(&done.machine).await;
    }
    conclude(ended)
}

/// Turns the end of a run into an answer, or an error that carries what was reached.
pub(crate) fn conclude(ended: Result<Done<AgentMachine>, Stopped<AgentMachine>>) -> Result<Answer> {
    match ended {
        Ok(Done { run, machine, .. }) => match machine.ending().cloned() {
            Some(ending) => judge(answer(run, machine, ending)),
            None => Err(Error::Runtime { source: levity_runtime::Error::Lost(run), partial: None }),
        },
        Err(Stopped { error: levity_runtime::Error::Parked { run, waiting }, .. }) => {
            Err(Error::Parked { run, waiting })
        }
        Err(Stopped { run, machine, error, .. }) => {
            if let Some(source) = cause_of::<MemoryError>(&error) {
                return Err(Error::Memory { source, partial: None });
            }
            if cause_of::<Blank>(&error).is_some() {
                return Err(Error::EmptyPrompt);
            }
            let partial = machine.map(|machine| {
                let (usage, stats) = machine.so_far();
                let mut ending = Ending::new(Status::Failed(Failure::Internal(error.to_string())));
                ending.text = machine.last_words();
                (ending.usage, ending.stats) = (usage, stats);
                ending.signals = machine.signals().to_vec();
                Box::new(answer(run, machine, ending))
            });
            Err(Error::Runtime { source: error, partial })
        }
    }
}

/// The reason why a run did not begin, if it was a `T`: for instance, a conversation that could not be loaded.
fn cause_of<T: std::error::Error + Clone + 'static>(error: &levity_runtime::Error) -> Option<T> {
    match error {
        levity_runtime::Error::Prepare { cause, .. } => cause.as_error().downcast_ref().cloned(),
        _ => None,
    }
}

fn answer(run: RunId, machine: AgentMachine, ending: Ending) -> Answer {
    Answer::new(run, ending, machine)
}

fn judge(answer: Answer) -> Result<Answer> {
    let status = answer.status().clone();
    let partial = Box::new(answer);
    Err(match status {
        Status::Partial(limit) => Error::Limit { limit, partial },
        Status::Cancelled { reason } => Error::Cancelled { reason, partial },
        Status::Failed(Failure::Model(source)) => Error::Model { source, partial },
        Status::Failed(Failure::Behaviour(what)) => Error::Behaviour { what, partial },
        Status::Failed(Failure::Output(complaint)) => Error::Output { complaint, partial },
        Status::Failed(Failure::Memory(source)) => Error::Memory { source, partial: Some(partial) },
        Status::Failed(Failure::Blocked(by)) => {
            let reason = by.blocked.unwrap_or_default();
            Error::Blocked { guard: by.guard, stage: by.stage, reason, partial }
        }
        Status::Failed(failure) => Error::Internal { what: failure.to_string(), partial },
        _ => return Ok(*partial),
    })
}
