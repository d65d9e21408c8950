use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{Ask, ConversationId, Event, Message, RunId, SharedError};
use levity_runtime::{Control, End, Run, Runnable, Runtime, Watcher};

use crate::error::{Error, Result};

/// What works on goals for others: an agent, a swarm, a team, and whatever else is [`Runnable`] and
/// begins with a text.
///
/// # Contract
/// - `start` returns at once; what it returned is driven only while its `ended` is there.
/// - Each event of the run goes to the watcher, in order, and the last one of the run itself is
///   [`RunEnded`](levity_core::EventKind::RunEnded) unless it could not be driven to its end.
/// - `resume`, `history` and `asks` know every run that `start` has begun, as far as the runtime's
///   journal keeps it.
#[async_trait]
pub trait Runner: Send + Sync {
    /// What drives the runs, and where they are kept.
    fn runtime(&self) -> &Runtime;

    /// Whether its runs can be part of conversations, which are kept.
    fn talks(&self) -> bool;

    /// Begins a run.
    ///
    /// # Errors
    /// When it cannot begin as it is wanted.
    fn start(&self, goal: &str, setup: RunSetup) -> Result<Started>;

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
pub struct RunSetup {
    /// Its id.
    pub id: RunId,
    /// The conversation that it is part of.
    pub conversation: Option<ConversationId>,
    /// Is called with each event.
    pub watcher: Watcher,
    /// Is called with the messages of a run that has an answer, before its `ended` is there, by
    /// runners that keep them: the goal first, and each call of a tool with its result.
    pub on_messages: Option<MessageSink>,
}

/// Takes the messages of a run.
pub type MessageSink = Arc<dyn Fn(&[Arc<Message>]) + Send + Sync>;

impl RunSetup {
    /// A run of this id, whose events go to `watcher`.
    pub fn new(id: impl Into<RunId>, watcher: Watcher) -> Self {
        Self {
            id: id.into(),
            conversation: None,
            watcher,
            on_messages: None,
        }
    }

    /// Makes it part of a conversation.
    #[must_use]
    pub fn with_conversation(mut self, id: Option<ConversationId>) -> Self {
        self.conversation = id;
        self
    }
}

impl RunSetup {
    /// Takes the messages of the run at its end.
    #[must_use]
    pub fn with_messages(mut self, sink: Option<MessageSink>) -> Self {
        self.on_messages = sink;
        self
    }
}

impl fmt::Debug for RunSetup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunSetup")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// A run that has begun.
#[non_exhaustive]
#[must_use = "dropping it stops the run"]
pub struct Started {
    /// Tells it what to do.
    pub control: Control,
    /// Gives why the run could not be driven to its end, if it could not; how it ended is among its
    /// events. Dropping it stops the run.
    pub ended: Pin<Box<dyn Future<Output = Option<SharedError>> + Send>>,
}

impl Started {
    /// A run that has begun, and its end: `None` when it had one, be it good or bad.
    pub fn new(
        control: Control,
        ended: impl Future<Output = Option<SharedError>> + Send + 'static,
    ) -> Self {
        Self {
            control,
            ended: Box::pin(ended),
        }
    }
}

impl fmt::Debug for Started {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Started").field(&self.control).finish()
    }
}

#[async_trait]
impl<W> Runner for W
where
    W: Runnable<Input: From<String>>,
{
    fn runtime(&self) -> &Runtime {
        Runnable::runtime(self)
    }

    fn talks(&self) -> bool {
        self.keeps_conversations()
    }

    fn start(&self, goal: &str, setup: RunSetup) -> Result<Started> {
        let RunSetup {
            id,
            conversation,
            watcher,
            on_messages,
        } = setup;
        let mut input = W::Input::from(goal.to_owned());
        if let Some(conversation) = conversation {
            let place = W::conversation(&mut input);
            let none = || {
                Error::setting(
                    "conversation",
                    "is not kept by what works here; leave it out",
                )
            };
            *place.ok_or_else(none)? = Some(conversation);
        }
        let run = Run::new(self.clone(), input)
            .id(id)
            .on_event(move |event| watcher(event));
        Ok(started(run, on_messages))
    }

    async fn resume(&self, run: &RunId, watcher: Watcher) -> Result<Started> {
        let run = Run::resume(self.clone(), run.clone()).on_event(move |event| watcher(event));
        Ok(started(run, None))
    }

    async fn history(&self, run: &RunId) -> Result<Vec<Event>> {
        let replay = levity_runtime::replay_run(self, run).await;
        Ok(replay.map_err(|error| lost(run, error))?.events)
    }

    async fn asks(&self, run: &RunId) -> Result<Vec<Ask>> {
        levity_runtime::asks(self, run)
            .await
            .map_err(|error| lost(run, error))
    }
}

fn started<W: Runnable>(run: Run<W>, on_messages: Option<MessageSink>) -> Started {
    let handle = run.start();
    let control = handle.control().clone();
    Started::new(control, async move {
        match handle.end().await {
            End::Ended(Ok(output)) => {
                if let (Some(sink), Some(messages)) = (on_messages, W::messages(&output)) {
                    sink(messages);
                }
                None
            }
            End::Ended(Err(_)) => None,
            End::Stopped(error) => Some(SharedError::new(error)),
        }
    })
}

/// A run that could not be looked at: that there is none is said as such.
fn lost(run: &RunId, error: levity_core::RuntimeError) -> Error {
    match error {
        levity_core::RuntimeError::NotFound(run) => Error::NoRun(run),
        error => Error::run(run, error),
    }
}
