//! The result of an agent's run.

use std::sync::Arc;

use levity_core::{Context, History, Message, RunOutput, WorkspaceView};
use serde_json::Value;

use crate::machine::{AgentMachine, Parts};
use crate::spec::AgentSpec;

/// The answer of an agent, with the conversation that led there; see [`RunOutput`] and
/// [`AgentDetails`].
///
/// ```
/// use levity_loop::{Agent, Answer};
/// use levity_test::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> levity_loop::Result<()> {
/// let agent = Agent::builder(ScriptedModel::new().reply("Paris.")).build()?;
/// let answer: Answer = agent.run("What is the capital of France?").await?;
/// assert_eq!((answer.text(), answer.stats().turns), ("Paris.", 1));
/// # Ok(())
/// # }
/// ```
pub type Answer = RunOutput<AgentDetails>;

/// The part of a result that only an agent's run has: the conversation that led there.
///
/// ```
/// # use levity_loop::Agent;
/// # use levity_test::ScriptedModel;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> levity_loop::Result<()> {
/// # let agent = Agent::builder(ScriptedModel::new().reply("Paris.")).build()?;
/// let answer = agent.run("What is the capital of France?").await?;
/// assert_eq!(answer.messages().len(), 2); // the goal and the reply
/// assert_eq!(answer.context().intent, "What is the capital of France?");
/// # Ok(())
/// # }
/// ```
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

    /// Returns the whole conversation. Pass it to the next run to continue from here.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Returns the messages of this run: its goal first, then each tool call with its result,
    /// including denied calls.
    ///
    /// Notes that the loop added for the model are left out.
    pub fn messages(&self) -> &[Arc<Message>] {
        &self.own
    }

    /// Returns intent, workspace, steps and memory as one value.
    ///
    /// The workspace is the one that you [set](crate::AgentBuilder::workspace) on the builder.
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

/// Shows the length of the conversation and none of its content.
impl std::fmt::Debug for AgentDetails {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentDetails")
            .field("messages", &self.history.len())
            .finish_non_exhaustive()
    }
}
