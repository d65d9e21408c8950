use std::fmt;
use std::sync::Arc;

use levity_core::{
    Context, Ending, Finish, History, Message, RunId, Signal, Stats, Status, Usage, WorkspaceView,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::machine::{AgentMachine, Parts};
use crate::spec::AgentSpec;

/// What an agent answered, with the conversation that led there.
///
/// It is shown as its text.
#[derive(Clone)]
pub struct Answer {
    run: RunId,
    ending: Ending,
    history: History,
    own: Vec<Arc<Message>>,
    intent: Arc<Message>,
    spec: Arc<AgentSpec>,
    memory: Value,
}

impl Answer {
    pub(crate) fn new(run: RunId, ending: Ending, machine: AgentMachine) -> Self {
        let memory = machine.remembered();
        let Parts { history, own, goal, spec } = machine.into_parts();
        Self { run, ending, history, own, intent: goal, spec, memory }
    }

    /// The answer in words.
    pub fn text(&self) -> &str {
        &self.ending.text
    }

    /// The answer as a value, when a shape was wanted.
    pub fn value(&self) -> Option<&Value> {
        self.ending.value.as_ref()
    }

    /// How the run ended.
    pub fn status(&self) -> &Status {
        &self.ending.status
    }

    /// Why the model stopped at its last words. [`Finish::Length`] means that they are cut short.
    pub fn finish(&self) -> Option<&Finish> {
        self.ending.finish.as_ref()
    }

    /// The answer's value as a `T`.
    ///
    /// # Errors
    /// [`Error::Output`] when no shape was wanted, or the value has another one.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T> {
        T::deserialize(self.value().unwrap_or(&Value::Null))
            .map_err(|error| Error::Output { complaint: error.to_string(), partial: Box::new(self.clone()) })
    }

    /// Whether a limit made the agent answer before it was done.
    pub fn is_best_effort(&self) -> bool {
        matches!(self.ending.status, Status::BestEffort(_))
    }

    /// The tokens it took, those of child runs included.
    pub fn usage(&self) -> Usage {
        self.ending.usage
    }

    /// What was done.
    pub fn stats(&self) -> Stats {
        self.ending.stats
    }

    /// What the model told whoever runs it, by tools that are [signals](crate::AgentBuilder::signal), in that order.
    pub fn signals(&self) -> &[Signal] {
        &self.ending.signals
    }

    /// The whole conversation; give it to the next run to go on from here.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// The messages of this run: its goal first, and each call of a tool with its result, also of a call that was denied. What the
    /// model was told on the side is left out.
    pub fn messages(&self) -> &[Arc<Message>] {
        &self.own
    }

    /// Intent, workspace, steps and memory as one value.
    ///
    /// The workspace is the one that the builder was [told](crate::AgentBuilder::workspace). Otherwise it is the folder of the
    /// agent's file tools, whose files are listed now: that reads from the disk and blocks meanwhile.
    pub fn context(&self) -> Context {
        let workspace = match &self.spec.workspace_source {
            Some(source) if self.spec.workspace == WorkspaceView::default() => source.view_now(),
            _ => self.spec.workspace.clone(),
        };
        Context::new(self.intent.text())
            .with_workspace(workspace)
            .with_history(&self.history)
            .with_memory(self.memory.clone())
    }

    /// The run that gave it.
    pub fn run(&self) -> &RunId {
        &self.run
    }
}

/// Shows how it ended and how long the conversation is, and nothing of what was said.
impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("run", &self.run)
            .field("status", &self.ending.status)
            .field("messages", &self.history.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}
