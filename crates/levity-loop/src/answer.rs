use std::sync::Arc;

use levity_core::{Context, Finished, History, Message, WorkspaceView};
use serde_json::Value;

use crate::machine::{AgentMachine, Parts};
use crate::spec::AgentSpec;

/// The answer of an agent, with the conversation that led there; see [`Finished`] and
/// [`AgentDetails`].
pub type Answer = Finished<AgentDetails>;

/// The part of a result that only an agent's run has: the conversation that led there.
#[derive(Clone)]
pub struct AgentDetails {
    history: History,
    own: Vec<Arc<Message>>,
    intent: Arc<Message>,
    spec: Arc<AgentSpec>,
    memory: Value,
}

impl AgentDetails {
    pub(crate) fn new(machine: AgentMachine) -> Self {
        let memory = machine.remembered();
        let Parts {
            history,
            own,
            goal,
            spec,
        } = machine.into_parts();
        Self {
            history,
            own,
            intent: goal,
            spec,
            memory,
        }
    }

    /// The whole conversation; give it to the next run to go on from here.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// The messages of this run: its goal first, and each call of a tool with its result, also of a
    /// call that was denied. What the model was told on the side is left out.
    pub fn messages(&self) -> &[Arc<Message>] {
        &self.own
    }

    /// Intent, workspace, steps and memory as one value.
    ///
    /// The workspace is the one that the builder was [told](crate::AgentBuilder::workspace).
    /// Otherwise it is the folder of the agent's file tools, whose files are listed now: that reads
    /// from the disk and blocks meanwhile.
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
}

/// Shows how long the conversation is, and nothing of what was said.
impl std::fmt::Debug for AgentDetails {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentDetails")
            .field("messages", &self.history.len())
            .finish_non_exhaustive()
    }
}
