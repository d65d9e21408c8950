use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{Ask, Cause, ConversationId, Event, Message, RunId};
use levity_loop::Agent;
use levity_runtime::{Control, Runtime, Watcher};
use levity_tools::Dispatcher;

use crate::error::{Error, Result};

/// What works on goals for others: an agent, a swarm, a team.
///
/// # Contract
/// - `start` returns at once; what it returned is driven only while its `ended` is there.
/// - Each event of the run goes to the watcher, in order, and the last one of the run itself is
///   [`RunEnded`](levity_core::EventKind::RunEnded) unless it could not be driven to its end.
/// - `resume`, `history` and `asks` know every run that `start` has begun, as far as the runtime's journal keeps it.
#[async_trait]
pub trait Runner: Send + Sync {
    /// What drives the runs, and where they are kept.
    fn runtime(&self) -> &Runtime;

    /// Whether its runs can be part of conversations, which are kept.
    fn talks(&self) -> bool;

    /// Its tools, if they can be called by themselves; none by default.
    fn tools(&self) -> Option<Dispatcher> {
        None
    }

    /// Begins a run.
    ///
    /// # Errors
    /// When it cannot begin as it is wanted.
    fn start(&self, goal: &str, setup: Setup) -> Result<Started>;

    /// Goes on with a run of the journal that nobody drives.
    ///
    /// # Errors
    /// When that is known to be impossible; all else is found out while it is driven.
    async fn resume(&self, run: &RunId, watcher: Watcher) -> Result<Started>;

    /// What a run has told by now, but for what was fleeting, from the journal.
    ///
    /// # Errors
    /// When there is no such run, or another kind of runner has begun it.
    async fn history(&self, run: &RunId) -> Result<Vec<Event>>;

    /// The questions that wait for an answer in a run that nobody drives.
    ///
    /// # Errors
    /// As for [`history`](Self::history).
    async fn asks(&self, run: &RunId) -> Result<Vec<Ask>>;
}

/// How a run is to begin.
#[derive(Clone)]
#[non_exhaustive]
pub struct Setup {
    /// Its id.
    pub id: RunId,
    /// The conversation that it is part of.
    pub conversation: Option<ConversationId>,
    /// Is called with each event.
    pub watcher: Watcher,
    /// Is called with the messages of a run that has an answer, before its `ended` is there, by runners that keep them: the goal
    /// first, and each call of a tool with its result.
    pub on_messages: Option<MessageSink>,
}

/// Takes the messages of a run.
pub type MessageSink = Arc<dyn Fn(&[Arc<Message>]) + Send + Sync>;

impl Setup {
    /// A run of this id, whose events go to `watcher`.
    pub fn new(id: impl Into<RunId>, watcher: Watcher) -> Self {
        Self { id: id.into(), conversation: None, watcher, on_messages: None }
    }

    /// Makes it part of a conversation.
    #[must_use]
    pub fn with_conversation(mut self, id: Option<ConversationId>) -> Self {
        self.conversation = id;
        self
    }
}

impl Setup {
    /// Takes the messages of the run at its end.
    #[must_use]
    pub fn with_messages(mut self, sink: Option<MessageSink>) -> Self {
        self.on_messages = sink;
        self
    }
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A run that has begun.
#[non_exhaustive]
#[must_use = "dropping it stops the run"]
pub struct Started {
    /// Tells it what to do.
    pub control: Control,
    /// Gives why the run could not be driven to its end, if it could not; how it ended is among its events. Dropping it
    /// stops the run.
    pub ended: Pin<Box<dyn Future<Output = Option<Cause>> + Send>>,
}

impl Started {
    /// A run that has begun, and its end: `None` when it had one, be it good or bad.
    pub fn new(control: Control, ended: impl Future<Output = Option<Cause>> + Send + 'static) -> Self {
        Self { control, ended: Box::pin(ended) }
    }
}

impl fmt::Debug for Started {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Started").field(&self.control).finish()
    }
}

#[async_trait]
impl<R: Runner + ?Sized> Runner for Arc<R> {
    fn runtime(&self) -> &Runtime {
        (**self).runtime()
    }

    fn talks(&self) -> bool {
        (**self).talks()
    }

    fn tools(&self) -> Option<Dispatcher> {
        (**self).tools()
    }

    fn start(&self, goal: &str, setup: Setup) -> Result<Started> {
        (**self).start(goal, setup)
    }

    async fn resume(&self, run: &RunId, watcher: Watcher) -> Result<Started> {
        (**self).resume(run, watcher).await
    }

    async fn history(&self, run: &RunId) -> Result<Vec<Event>> {
        (**self).history(run).await
    }

    async fn asks(&self, run: &RunId) -> Result<Vec<Ask>> {
        (**self).asks(run).await
    }
}

#[async_trait]
impl Runner for Agent {
    fn runtime(&self) -> &Runtime {
        Agent::runtime(self)
    }

    fn talks(&self) -> bool {
        self.conversations().is_some()
    }

    fn tools(&self) -> Option<Dispatcher> {
        Some(self.dispatcher().clone())
    }

    fn start(&self, goal: &str, setup: Setup) -> Result<Started> {
        let Setup { id, conversation, watcher, on_messages } = setup;
        let mut run = self.run(goal).id(id).on_event(move |event| watcher(event));
        if let Some(conversation) = conversation {
            run = run.conversation(conversation);
        }
        let handle = run.start();
        let control = handle.control().clone();
        Ok(Started::new(control, async move {
            let answer = handle.await;
            if let (Ok(answer), Some(sink)) = (&answer, on_messages) {
                sink(answer.messages());
            }
            answer.err().and_then(agent_stopped)
        }))
    }

    async fn resume(&self, run: &RunId, watcher: Watcher) -> Result<Started> {
        let handle = Agent::resume(self, run.clone()).on_event(move |event| watcher(event)).start();
        let control = handle.control().clone();
        Ok(Started::new(control, async { handle.await.err().and_then(agent_stopped) }))
    }

    async fn history(&self, run: &RunId) -> Result<Vec<Event>> {
        Ok(self.replay(run).await.map_err(|error| lost(run, error))?.events)
    }

    async fn asks(&self, run: &RunId) -> Result<Vec<Ask>> {
        Agent::asks(self, run).await.map_err(|error| lost(run, error))
    }
}

/// Why a run of an agent was not driven to its end, if it was not.
fn agent_stopped(error: levity_loop::Error) -> Option<Cause> {
    use levity_loop::Error as E;
    match error {
        E::Runtime { source, .. } => Some(Cause::new(source)),
        E::Memory { partial: Some(_), .. } => None,
        error @ (E::Memory { .. }
        | E::Parked { .. }
        | E::EmptyPrompt
        | E::Setting { .. }
        | E::Tools(_)
        | E::NoModel(_)) => Some(Cause::new(error)),
        _ => None,
    }
}

/// A run that could not be looked at: that there is none is said as such.
fn lost(run: &RunId, error: levity_loop::Error) -> Error {
    match error {
        levity_loop::Error::Runtime { source: levity_runtime::Error::NotFound(run), .. } => Error::NoRun(run),
        error => Error::run(run, error),
    }
}

#[cfg(feature = "swarm")]
mod swarm;
#[cfg(feature = "dag")]
mod team;
