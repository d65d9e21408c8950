//! Tasks for agents that run as children of other runs: in swarms, graphs and your own executors.

use std::fmt;
use std::sync::Arc;

use levity_core::{
    ConversationId, History, Lease, MemoryError, Message, OutputSchema, SharedError, ToolError,
};

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
}

impl ChildTask {
    /// Creates a task with this goal.
    pub fn new(goal: impl Into<Message>) -> Self {
        Self {
            input: goal.into().into(),
            output: None,
            said: false,
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
                    goal,
                    history,
                    conversation,
                },
            output,
            said,
        } = task;
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
