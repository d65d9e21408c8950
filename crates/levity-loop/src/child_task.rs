//! Tasks for agents that run as children of other runs: in swarms, graphs and your own executors.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use levity_core::text::one_line;
use levity_core::{
    ArgumentProblem, Child, ChildRun, ConversationId, Effect, EffectCx, Eventual, Executor,
    History, Inspection, Lease, Media, MediaSource, MemoryError, Message, Outcome, OutputSchema,
    Part, PrepareCx, Prepared, Resolution, SharedError, ToolCall, ToolError,
};
use serde_json::Value;

use crate::agent::{Agent, AgentInput};
use crate::machine::{AgentMachine, ConversationState};
use crate::output::OutputCheck;

/// The task of an agent that runs as the child of another run; see [`Agent::child`].
///
/// ```
/// # use levity_core::{History, Message};
/// # use levity_loop::ChildTask;
/// let mut history = History::new();
/// history.push(Message::user("My name is on the list."))?;
/// let task = ChildTask::new("Find it").history(history).include_messages();
/// # Ok::<(), levity_core::HistoryError>(())
/// ```
#[must_use = "a task does nothing until it is passed to an agent"]
pub struct ChildTask {
    input: AgentInput,
    output: Option<Arc<OutputSchema>>,
    said: bool,
    label: Option<Arc<str>>,
    media: Vec<Media>,
}

impl ChildTask {
    /// Creates a task with this goal.
    pub fn new(goal: impl Into<Message>) -> Self {
        Self {
            input: goal.into().into(),
            output: None,
            said: false,
            label: None,
            media: Vec::new(),
        }
    }

    /// Continues from an earlier conversation.
    pub fn history(mut self, history: History) -> Self {
        self.input.history = history;
        self
    }

    /// Continues a conversation in the agent's memory, in place of a history; see
    /// [`Run::conversation`](levity_runtime::Run::conversation).
    ///
    /// The child waits for other users of the conversation. Do not use the conversation of the
    /// parent run: the two would wait for each other.
    pub fn conversation(mut self, id: impl Into<ConversationId>) -> Self {
        self.input.conversation = Some(id.into());
        self
    }

    /// Sets the schema of the answer.
    ///
    /// The answer is validated and retried, as for [`Run::typed`](levity_runtime::Run::typed). The
    /// value is in [`Ending::value`](levity_core::Ending::value).
    pub fn output(mut self, schema: impl Into<Arc<OutputSchema>>) -> Self {
        self.output = Some(schema.into());
        self
    }

    /// Adds images and other media to the goal. If the model of the agent accepts no images, a note
    /// that names each of them replaces it.
    ///
    /// ```
    /// # use levity_core::Media;
    /// # use levity_loop::{Agent, ChildTask};
    /// # use levity_test::ScriptedModel;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let agent = Agent::builder(ScriptedModel::new()).build()?;
    /// let chart = Media::url("image/png", "https://example.com/chart.png");
    /// let child = agent.child(ChildTask::new("Describe it.").media([chart]), None).await?;
    /// assert!(child.machine.save().to_string().contains("chart.png"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn media(mut self, media: impl IntoIterator<Item = Media>) -> Self {
        self.media.extend(media);
        self
    }

    /// Sets a name for the model calls of the task in logs, such as the agent and its step. It does
    /// not affect the run.
    ///
    /// ```
    /// # use levity_loop::ChildTask;
    /// let task = ChildTask::new("Find it").label("searcher find");
    /// ```
    pub fn label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Removes the name for logs.
    pub(crate) fn take_label(&mut self) -> Option<Arc<str>> {
        self.label.take()
    }

    /// Includes the messages of the run in its [`Ending::messages`](levity_core::Ending::messages).
    pub fn include_messages(mut self) -> Self {
        self.said = true;
        self
    }
}

impl From<&str> for ChildTask {
    fn from(goal: &str) -> Self {
        Self::new(goal)
    }
}

impl From<String> for ChildTask {
    fn from(goal: String) -> Self {
        Self::new(goal)
    }
}

impl From<Message> for ChildTask {
    fn from(goal: Message) -> Self {
        Self::new(goal)
    }
}

/// Shows none of the conversation's content.
impl fmt::Debug for ChildTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildTask")
            .field("said", &self.said)
            .finish_non_exhaustive()
    }
}

impl Agent {
    /// Creates the machine of a new child run.
    pub(crate) async fn new_child_machine(
        &self,
        task: ChildTask,
    ) -> Result<(AgentMachine, Option<Lease>), ToolError> {
        let ChildTask {
            input:
                AgentInput {
                    mut goal,
                    history,
                    conversation,
                },
            output,
            said,
            label: _,
            media,
        } = task;
        let sees = self.card().capabilities.images;
        goal.parts.extend(media.into_iter().map(|media| match sees {
            true => Part::Media(media),
            false => Part::text(invisible(&media)),
        }));
        let goal = self.screen_goal(goal).await;
        let (past, lease) = self
            .load_past(history, conversation)
            .await
            .map_err(conversation_error)?;
        let gathered = self
            .gather(
                &goal.message.text(),
                past.talk.as_ref().map(ConversationState::id),
            )
            .await
            .map_err(|error| {
                ToolError::failed("the agent's context could not be loaded").with_source(error)
            })?;
        let machine = self.set_in(goal, past, gathered, output.map(OutputCheck::new));
        Ok((
            if said {
                machine.include_messages()
            } else {
                machine
            },
            lease,
        ))
    }
}

/// Returns a note in place of media that the model does not accept.
fn invisible(media: &Media) -> String {
    let name = media.name.as_deref().map(|name| one_line(name, MAX_NAME));
    let name = name.map(|name| format!(" `{name}`")).unwrap_or_default();
    let mime = one_line(&media.mime, MAX_NAME);
    let place = match &media.source {
        MediaSource::Url(url) if !url.starts_with("data:") => {
            format!(" at {}", one_line(url, MAX_ADDRESS))
        }
        _ => String::new(),
    };
    format!("\n(The goal comes with{name} of type {mime}{place}, which you cannot see.)\n")
}

/// The maximum length of a file name and of a media type in a note, in characters.
const MAX_NAME: usize = 100;
/// The maximum length of an address in a note, in characters.
const MAX_ADDRESS: usize = 2_000;

/// Performs the effects of a child run, and labels its model calls.
struct Labelled {
    inner: Arc<dyn Executor>,
    label: Arc<str>,
}

impl Labelled {
    fn label(&self, mut effect: Effect) -> Effect {
        if let Effect::Model(call) = &mut effect {
            Arc::make_mut(&mut call.request.options).label = Some(self.label.clone());
        }
        effect
    }
}

/// Returns the executor of a child run with this label.
pub(crate) fn labelled(inner: Arc<dyn Executor>, label: Option<Arc<str>>) -> Arc<dyn Executor> {
    match label {
        Some(label) => Arc::new(Labelled { inner, label }),
        None => inner,
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Executor for Labelled {
    fn prepare(&self, effect: &Effect, cx: &PrepareCx) -> Eventual<Prepared> {
        self.inner.prepare(effect, cx)
    }

    // Written out, so that an effect needs only one boxed future.
    fn execute<'life0, 'async_trait>(
        &'life0 self,
        effect: Effect,
        cx: EffectCx,
    ) -> Pin<Box<dyn Future<Output = Outcome> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        self.inner.execute(self.label(effect), cx)
    }

    async fn child(&self, child: &ChildRun, saved: Option<&Value>) -> Result<Child, ToolError> {
        self.inner.child(child, saved).await
    }

    async fn resolve(&self, effect: &Effect, cx: &EffectCx) -> Resolution {
        self.inner.resolve(effect, cx).await
    }

    fn check_arguments(&self, call: &ToolCall) -> Vec<ArgumentProblem> {
        self.inner.check_arguments(call)
    }

    fn inspect(&self) -> Inspection {
        self.inner.inspect()
    }
}

/// Returns the error for a conversation that could not be loaded. The error of the store remains
/// its source.
fn conversation_error(cause: SharedError) -> ToolError {
    let error = ToolError::failed("the conversation could not be loaded");
    match cause.as_error().downcast_ref::<MemoryError>() {
        Some(memory) => error
            .with_retryable(memory.is_retryable())
            .with_source(memory.clone()),
        None => error.with_source(cause),
    }
}
