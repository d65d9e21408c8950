//! The interface between this crate and anything that runs goals.
//!
//! [`Runs`](crate::Runs) stores runners as trait objects, so servers have no type parameters. The
//! blanket implementation covers every [`Runnable`] whose input can be made from a text; implement
//! [`Runner`] yourself only to change how runs start.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{ArgumentProblem, Ask, ConversationId, Event, Message, RunId, SharedError};
use levity_runtime::{Control, End, Run, Runnable, Runtime, Watcher};
use serde_json::Value;

use crate::error::{Error, Result};

mod models;
mod offered;

pub(crate) use models::ModelRunner;
pub use models::OfferedModel;
use offered::Offered;

/// Runs goals for clients: an agent, a swarm, a team, or anything else that is [`Runnable`] and
/// starts from a text.
///
/// # Contract
/// - `start` returns at once. The run it returns is driven only while its `ended` future exists.
/// - Each event of the run goes to the watcher, in order. The last event of the run itself is
///   [`RunEnded`](levity_core::EventKind::RunEnded), unless the run could not be driven to its end.
/// - `resume`, `history` and `asks` find every run that `start` has started, provided the runtime's
///   journal stores it.
///
/// Agents, swarms and teams implement this trait already. This example adds a prefix to each goal
/// and forwards everything else:
///
/// ```
/// use async_trait::async_trait;
/// use levity_core::{Ask, Event, RunId};
/// use levity_loop::Agent;
/// use levity_runtime::{Runtime, Watcher};
/// use levity_serve::{NewRun, Result, RunSetup, Runner, Runs, StartedRun};
/// use levity_test::ScriptedModel;
///
/// struct Polite(Agent);
///
/// #[async_trait]
/// impl Runner for Polite {
///     fn runtime(&self) -> &Runtime {
///         Runner::runtime(&self.0)
///     }
///     fn supports_conversations(&self) -> bool {
///         self.0.supports_conversations()
///     }
///     fn start(&self, goal: &str, setup: RunSetup) -> Result<StartedRun> {
///         Runner::start(&self.0, &format!("Please: {goal}"), setup)
///     }
///     async fn resume(&self, run: &RunId, watcher: Watcher) -> Result<StartedRun> {
///         Runner::resume(&self.0, run, watcher).await
///     }
///     async fn history(&self, run: &RunId) -> Result<Vec<Event>> {
///         Runner::history(&self.0, run).await
///     }
///     async fn asks(&self, run: &RunId) -> Result<Vec<Ask>> {
///         Runner::asks(&self.0, run).await
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
/// let agent = Agent::builder(ScriptedModel::new().reply("Of course.")).build()?;
/// let runs = Runs::new(Polite(agent));
/// let run = runs.start(NewRun::new("sum it up"))?;
/// run.outcome().await;
/// assert_eq!(run.status().goal, "Please: sum it up");
/// # Ok(())
/// # }
/// ```
#[async_trait]
pub trait Runner: Send + Sync {
    /// Returns the runtime that drives and stores the runs.
    ///
    /// Its journal decides if runs can be resumed, and its world generates ids.
    fn runtime(&self) -> &Runtime;

    /// Returns `true` if runs can be part of stored conversations.
    fn supports_conversations(&self) -> bool;

    /// Starts a run.
    ///
    /// # Errors
    /// Fails if the run cannot start with this setup.
    fn start(&self, goal: &str, setup: RunSetup) -> Result<StartedRun>;

    /// Resumes a run of the journal that no process drives.
    ///
    /// # Errors
    /// Fails if the run is known to be impossible to resume. Other problems appear while it is
    /// driven.
    async fn resume(&self, run: &RunId, watcher: Watcher) -> Result<StartedRun>;

    /// Returns the events of a run up to now from the journal, without transient ones.
    ///
    /// # Errors
    /// Fails if there is no such run, or if another kind of runner started it.
    async fn history(&self, run: &RunId) -> Result<Vec<Event>>;

    /// Returns the events of a run and all runs below it from the journal, in the order in which
    /// they happened, without transient ones.
    ///
    /// By default, these are only the events of the run itself. Over HTTP, a question of a child
    /// run in the journal can be decided only if these events contain it.
    ///
    /// # Errors
    /// Fails under the same conditions as [`history`](Self::history).
    async fn history_with_children(&self, run: &RunId) -> Result<Vec<Event>> {
        self.history(run).await
    }

    /// Starts a new run that begins with the records of an old one.
    ///
    /// By default, forks are not supported.
    ///
    /// # Errors
    /// Fails if the runner does not support forks, if there is no such run, or if the fork cannot
    /// begin after the given record.
    async fn fork(&self, fork: ForkSetup) -> Result<StartedRun> {
        let _ = fork;
        Err(Error::Unsupported("this runner does not support forks"))
    }

    /// Returns the pending questions of a run that no process drives.
    ///
    /// # Errors
    /// Fails under the same conditions as [`history`](Self::history).
    async fn asks(&self, run: &RunId) -> Result<Vec<Ask>>;

    /// Returns the problems of other arguments for the call of a pending question, in a run that no
    /// process drives.
    ///
    /// By default, there are none.
    ///
    /// # Errors
    /// Fails under the same conditions as [`history`](Self::history).
    async fn check_edit(
        &self,
        run: &RunId,
        ask: &Ask,
        args: &Value,
    ) -> Result<Vec<ArgumentProblem>> {
        let _ = (run, ask, args);
        Ok(Vec::new())
    }
}

/// The parameters for starting a run.
///
/// ```
/// use std::sync::Arc;
/// use levity_loop::Agent;
/// use levity_serve::{RunSetup, Runner};
/// use levity_test::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let agent = Agent::builder(ScriptedModel::new().reply("Yes.")).build()?;
/// let watcher = Arc::new(|event: &levity_core::Event| println!("{}", event.kind.name()));
/// let setup = RunSetup::new("r1", watcher);
/// let run = Runner::start(&agent, "Is it?", setup)?;
/// assert!(run.ended.await.is_none(), "the run reached its end");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct RunSetup {
    /// The id of the run.
    pub id: RunId,
    /// The conversation that the run is part of.
    pub conversation: Option<ConversationId>,
    /// A function that is called with each event.
    pub watcher: Watcher,
    /// A function that is called with the messages of an answered run, before `ended` resolves. It
    /// receives the goal first, and each tool call with its result. Only runners that keep messages
    /// call it.
    pub on_messages: Option<MessageSink>,
    /// The name of the model that the client chose. It is recorded with the run.
    pub model: Option<Arc<str>>,
}

/// A function that receives the messages of a run.
///
/// Sinks run on the task that drives the run, so they must not block.
///
/// ```
/// use std::sync::Arc;
/// use levity_serve::MessageSink;
/// let sink: MessageSink = Arc::new(|messages| println!("{} messages", messages.len()));
/// sink(&[]);
/// ```
pub type MessageSink = Arc<dyn Fn(&[Arc<Message>]) + Send + Sync>;

impl RunSetup {
    /// Creates a setup for a run with this id, whose events go to `watcher`.
    pub fn new(id: impl Into<RunId>, watcher: Watcher) -> Self {
        Self {
            id: id.into(),
            conversation: None,
            watcher,
            on_messages: None,
            model: None,
        }
    }

    /// Makes the run part of a conversation.
    #[must_use]
    pub fn with_conversation(mut self, id: Option<ConversationId>) -> Self {
        self.conversation = id;
        self
    }
}

impl RunSetup {
    /// Sets the function that receives the messages of the run at its end.
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

/// The parameters for forking a run.
///
/// ```
/// use std::sync::Arc;
/// use levity_serve::ForkSetup;
///
/// let watcher = Arc::new(|event: &levity_core::Event| println!("{}", event.kind.name()));
/// let setup = ForkSetup::new("monday", "monday-again", watcher).after(9);
/// assert_eq!((setup.from.as_str(), setup.after), ("monday", Some(9)));
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct ForkSetup {
    /// The run whose records the fork begins with.
    pub from: RunId,
    /// The id of the fork.
    pub id: RunId,
    /// The number of the last record of the old run that the fork begins with. By default it is the
    /// last record, or the last one before the last model call if the run has ended.
    pub after: Option<u64>,
    /// A message that the fork receives at its start.
    pub message: Option<String>,
    /// The name of the model that the client chose, or that of the old run. It is recorded with the
    /// fork.
    pub model: Option<Arc<str>>,
    /// A function that is called with each new event.
    pub watcher: Watcher,
}

impl ForkSetup {
    /// Creates a setup for a fork with this id, whose new events go to `watcher`.
    pub fn new(from: impl Into<RunId>, id: impl Into<RunId>, watcher: Watcher) -> Self {
        Self {
            from: from.into(),
            id: id.into(),
            after: None,
            message: None,
            model: None,
            watcher,
        }
    }

    /// Sets the number of the last record that the fork begins with.
    #[must_use]
    pub fn after(mut self, record: u64) -> Self {
        self.after = Some(record);
        self
    }
}

impl fmt::Debug for ForkSetup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForkSetup")
            .field("from", &self.from)
            .field("id", &self.id)
            .field("after", &self.after)
            .finish_non_exhaustive()
    }
}

/// A run that has started.
///
/// ```
/// use levity_loop::Agent;
/// use levity_serve::{RunSetup, Runner, StartedRun};
/// use levity_test::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let agent = Agent::builder(ScriptedModel::new().hang()).build()?;
/// let setup = RunSetup::new("r1", std::sync::Arc::new(|_: &levity_core::Event| {}));
/// let StartedRun { control, ended, .. } = Runner::start(&agent, "Wait.", setup)?;
/// let (stopped, sent) = tokio::join!(ended, control.cancel("not needed"));
/// assert!(stopped.is_none() && sent.is_ok(), "a cancelled run has an ending, too");
/// # Ok(())
/// # }
/// ```
#[non_exhaustive]
#[must_use = "dropping it stops the run"]
pub struct StartedRun {
    /// The handle that controls the run.
    pub control: Control,
    /// A future that drives the run. It resolves to the reason if the run could not be driven to
    /// its end; the ending itself is among the events. Dropping it stops the run.
    pub ended: Pin<Box<dyn Future<Output = Option<SharedError>> + Send>>,
}

impl StartedRun {
    /// Creates a started run. `ended` resolves to `None` if the run reached its end, successful or
    /// not.
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

impl fmt::Debug for StartedRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StartedRun").field(&self.control).finish()
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

    fn supports_conversations(&self) -> bool {
        self.keeps_conversations()
    }

    fn start(&self, goal: &str, setup: RunSetup) -> Result<StartedRun> {
        let RunSetup {
            id,
            conversation,
            watcher,
            on_messages,
            model,
        } = setup;
        let mut input = W::Input::from(goal.to_owned());
        if let Some(conversation) = conversation {
            let slot = W::conversation(&mut input);
            let none = || {
                Error::setting(
                    "conversation",
                    "is not supported by this runner; leave it out",
                )
            };
            *slot.ok_or_else(none)? = Some(conversation);
        }
        Ok(match model {
            Some(model) => {
                let run = Run::new(Offered::new(self.clone(), model), input);
                start_run(run.id(id), &watcher, on_messages)
            }
            None => start_run(Run::new(self.clone(), input).id(id), &watcher, on_messages),
        })
    }

    async fn resume(&self, run: &RunId, watcher: Watcher) -> Result<StartedRun> {
        let run = Run::resume(self.clone(), run.clone());
        Ok(start_run(run, &watcher, None))
    }

    async fn history(&self, run: &RunId) -> Result<Vec<Event>> {
        let replay = levity_runtime::replay_run(self, run).await;
        Ok(replay.map_err(|error| read_error(run, error))?.events)
    }

    async fn history_with_children(&self, run: &RunId) -> Result<Vec<Event>> {
        levity_runtime::replay_with_children(self, run)
            .await
            .map_err(|error| read_error(run, error))
    }

    async fn fork(&self, fork: ForkSetup) -> Result<StartedRun> {
        let message = fork.message.clone();
        let StartedRun { control, ended, .. } = match fork.model.clone() {
            Some(model) => start_fork(Offered::new(self.clone(), model), fork),
            None => start_fork(self.clone(), fork),
        };
        let Some(text) = message else {
            return Ok(StartedRun { control, ended });
        };
        let teller = control.clone();
        let mut sending = Box::pin(async move { teller.send_message(text).await });
        // The first poll queues the message, so the fork reads it before its next model call.
        let early = futures_util::poll!(&mut sending).is_ready();
        let ended = async move {
            if early {
                return ended.await;
            }
            futures_util::join!(sending, ended).1
        };
        Ok(StartedRun::new(control, ended))
    }

    async fn asks(&self, run: &RunId) -> Result<Vec<Ask>> {
        levity_runtime::pending_asks(self, run)
            .await
            .map_err(|error| read_error(run, error))
    }

    async fn check_edit(
        &self,
        run: &RunId,
        ask: &Ask,
        args: &Value,
    ) -> Result<Vec<ArgumentProblem>> {
        levity_runtime::check_edit(self, run, ask, args)
            .await
            .map_err(|error| read_error(run, error))
    }
}

/// Splits a run into its control and the future that drives it. Messages are delivered only for an
/// answer, before the future resolves.
fn start_run<W: Runnable>(
    run: Run<W>,
    watcher: &Watcher,
    on_messages: Option<MessageSink>,
) -> StartedRun {
    let watcher = watcher.clone();
    let handle = run.on_event(move |event| watcher(event)).start();
    let control = handle.control().clone();
    StartedRun::new(control, async move {
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

fn start_fork<W: Runnable>(what: W, fork: ForkSetup) -> StartedRun {
    let run = Run::fork(what, fork.from).id(fork.id);
    let run = fork
        .after
        .iter()
        .fold(run, |run, record| run.after(*record));
    start_run(run, &fork.watcher, None)
}

/// Converts an error of reading a run; a missing run becomes [`Error::NoRun`].
pub(crate) fn read_error(run: &RunId, error: levity_core::RuntimeError) -> Error {
    match error {
        levity_core::RuntimeError::NotFound(run) => Error::NoRun(run),
        error => Error::run(run, error),
    }
}
