//! A run that a client starts: its goal, and who follows it.

use std::fmt;
use std::sync::Arc;

use levity_core::{ConversationId, Event, Message, RunId};
use levity_runtime::Watcher;

use crate::runner::MessageSink;

/// A run to be started.
///
/// ```
/// use levity_serve::NewRun;
/// let run = NewRun::new("Summarize the notes").id("notes-1").conversation("c7");
/// assert_eq!(run.id.as_ref().unwrap().as_str(), "notes-1");
/// assert!(!format!("{run:?}").contains("Summarize"), "the goal is confidential");
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct NewRun {
    /// The goal of the run, as text.
    pub goal: String,
    /// The conversation that the run is part of.
    pub conversation: Option<ConversationId>,
    /// The id of the run; random by default.
    pub id: Option<RunId>,
    /// The name of a model that [`Runs::offer_model`](super::Runs::offer_model) offers; the default
    /// model otherwise.
    pub model: Option<Arc<str>>,
    pub(super) watcher: Option<Watcher>,
    pub(super) on_messages: Option<MessageSink>,
}

impl NewRun {
    /// Creates a run for a goal.
    pub fn new(goal: impl Into<String>) -> Self {
        Self {
            goal: goal.into(),
            conversation: None,
            id: None,
            model: None,
            watcher: None,
            on_messages: None,
        }
    }

    /// Makes the run part of a conversation.
    ///
    /// The runner must keep conversations; see
    /// [`Runs::supports_conversations`](super::Runs::supports_conversations). If another run
    /// uses the conversation, this one waits for it.
    #[must_use]
    pub fn conversation(mut self, id: impl Into<ConversationId>) -> Self {
        self.conversation = Some(id.into());
        self
    }

    /// Sets the id of the run.
    ///
    /// Ids with a dot are rejected, because a dot separates a run from its child runs. An id that
    /// the journal already has makes the start fail.
    #[must_use]
    pub fn id(mut self, id: impl Into<RunId>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Chooses a model of [`Runs::models`](super::Runs::models) by its name.
    ///
    /// ```
    /// use levity_loop::Agent;
    /// use levity_serve::{Error, NewRun, Runs};
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let large = Agent::builder(ScriptedModel::new().reply("42.")).build()?;
    /// let runs = Runs::new(Agent::builder(ScriptedModel::new()).build()?)
    ///     .offer_model("large", large);
    /// let run = runs.start(NewRun::new("How many?").model("large"))?;
    /// assert_eq!(run.outcome().await.ending().unwrap().text, "42.");
    /// let unknown = runs.start(NewRun::new("How many?").model("huge"));
    /// assert!(matches!(unknown, Err(Error::UnknownModel { .. })));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn model(mut self, name: impl Into<Arc<str>>) -> Self {
        self.model = Some(name.into());
        self
    }

    /// Calls `watcher` with each event of the run. The function must not block.
    ///
    /// The watchers of [`Runs::on_event`](super::Runs::on_event) are called as well.
    ///
    /// ```
    /// use std::sync::{Arc, atomic::{AtomicUsize, Ordering}};
    /// use levity_loop::Agent;
    /// use levity_serve::{NewRun, Runs};
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runs = Runs::new(Agent::builder(ScriptedModel::new().reply("Yes.")).build()?);
    /// let count = Arc::new(AtomicUsize::new(0));
    /// let seen = count.clone();
    /// let new = NewRun::new("Is it?").on_event(move |_| {
    ///     seen.fetch_add(1, Ordering::Relaxed);
    /// });
    /// runs.start(new)?.outcome().await;
    /// assert!(count.load(Ordering::Relaxed) > 0);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn on_event(mut self, watcher: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.watcher = Some(Arc::new(watcher));
        self
    }

    /// Calls `sink` with the messages of an answered run, before its outcome is known. Only agents
    /// have messages.
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// use levity_loop::Agent;
    /// use levity_serve::{NewRun, Runs};
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runs = Runs::new(Agent::builder(ScriptedModel::new().reply("Yes.")).build()?);
    /// let texts = Arc::new(Mutex::new(Vec::new()));
    /// let sink = texts.clone();
    /// let new = NewRun::new("Is it?").on_messages(move |messages| {
    ///     sink.lock().unwrap().extend(messages.iter().map(|message| message.text().to_string()));
    /// });
    /// runs.start(new)?.outcome().await;
    /// assert_eq!(*texts.lock().unwrap(), ["Is it?", "Yes."]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn on_messages(mut self, sink: impl Fn(&[Arc<Message>]) + Send + Sync + 'static) -> Self {
        self.on_messages = Some(Arc::new(sink));
        self
    }
}

/// Omits the goal, which may be confidential.
impl fmt::Debug for NewRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewRun")
            .field("conversation", &self.conversation)
            .field("id", &self.id)
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}
