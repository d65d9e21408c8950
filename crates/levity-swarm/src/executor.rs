//! Creates the child runs of the members. A swarm requests no other effects.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{
    Child, ChildRun, Effect, EffectClass, EffectCx, Eventual, Executor, History, Inspection,
    Limits, Outcome, PrepareCx, Prepared, Stage, ToolError, ToolErrorKind, World,
};
use levity_loop::__private::Guards;
use levity_loop::{Agent, ChildTask};
use serde::Deserialize as _;
use serde_json::Value;

use crate::shared_state::Work;
use crate::worker::AgentOrSwarm;

/// Makes the child runs of a swarm's members.
pub(crate) struct SwarmExecutor {
    pub(crate) members: BTreeMap<Arc<str>, Member>,
    /// The guards of the swarm, for messages to it.
    pub(crate) guards: Guards,
    pub(crate) world: Arc<dyn World>,
}

/// A member of a swarm: a worker, the router or the judge.
pub(crate) struct Member {
    /// The agent or swarm with the tools that the pattern gives.
    pub(crate) equipped: AgentOrSwarm,
    /// The original agent, if the pattern adds tools.
    pub(crate) plain: Option<Agent>,
}

impl Member {
    async fn child(
        &self,
        work: Work,
        child: &ChildRun,
        saved: Option<&Value>,
    ) -> Result<Child, ToolError> {
        let agent = match (&self.equipped, &self.plain) {
            (AgentOrSwarm::Swarm(swarm), _) => {
                return swarm.child_with(&work.task, child.media.clone(), saved);
            }
            (_, Some(plain)) if work.plain => plain,
            (AgentOrSwarm::Agent(agent), _) => agent,
        };
        let label = child.label.as_ref().unwrap_or(&child.agent);
        let task = child_task(work)?
            .label(label.clone())
            .media(child.media.iter().cloned());
        agent.child(task, saved).await
    }
}

fn child_task(work: Work) -> Result<ChildTask, ToolError> {
    let mut child_task = ChildTask::new(work.task);
    if let Some(conversation) = work.conversation {
        child_task = child_task.conversation(conversation);
    } else if !work.history.is_empty() {
        let history = History::renamed(work.history);
        let wrong = |error| {
            ToolError::failed(
                "the earlier messages do not form a valid \
                conversation",
            )
            .with_source(error)
        };
        child_task = child_task.history(history.map_err(wrong)?);
    }
    if let Some(shape) = work.output {
        child_task = child_task.output(shape);
    }
    Ok(if work.said {
        child_task.include_messages()
    } else {
        child_task
    })
}

#[async_trait]
impl Executor for SwarmExecutor {
    fn prepare(&self, _: &Effect, _: &PrepareCx) -> Eventual<Prepared> {
        Prepared::new(EffectClass::ReadOnly).into()
    }

    async fn execute(&self, _: Effect, _: EffectCx) -> Outcome {
        // A swarm requests nothing but child runs.
        Outcome::Unknown
    }

    async fn child(&self, child: &ChildRun, saved: Option<&Value>) -> Result<Child, ToolError> {
        let Some(member) = self.members.get(&child.agent) else {
            let message = format!("the swarm has no worker `{}`", child.agent);
            return Err(ToolError::new(ToolErrorKind::NotFound, message));
        };
        let work = Work::deserialize(&child.input)
            .map_err(|_| ToolError::failed("cannot read the task of the worker"))?;
        let limits = work.limits;
        let mut made = member.child(work, child, saved).await?;
        made.limits = limits.map_or(made.limits, |limits| made.limits.within(&limits));
        Ok(made)
    }

    fn inspect(&self) -> Inspection {
        let mut setup = Vec::new();
        for (name, member) in &self.members {
            let parts = match &member.equipped {
                AgentOrSwarm::Agent(agent) => agent.executor().inspect().setup,
                AgentOrSwarm::Swarm(swarm) => swarm.executor().inspect().setup,
            };
            setup.extend(
                parts
                    .into_iter()
                    .map(|(part, digest)| (format!("worker `{name}`: {part}"), digest)),
            );
        }
        let screener = self.guards.screener(&[Stage::Input], &self.world);
        Inspection::new().with_setup(setup).with_screener(screener)
    }
}

impl fmt::Debug for SwarmExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SwarmExecutor")
            .field("members", &self.members.keys())
            .finish()
    }
}

/// Returns limits without those that apply only to the run as a whole.
pub(crate) fn unlimited() -> Limits {
    let mut limits = Limits::new();
    (limits.model_calls, limits.tool_calls, limits.depth) = (None, None, usize::MAX);
    limits
}
