//! A swarm as a tool of an agent.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{Child, Executor, Hints, Program, ToolError, ToolErrorKind, ToolSpec};
use serde_json::{Value, json};

use crate::swarm::Swarm;

/// A swarm as a tool: an agent passes a task to it and receives its answer. Created by
/// [`Swarm::as_tool`].
///
/// The swarm runs as a child run of the agent, within the agent's limits, and is resumed with it.
/// The model passes one argument, `task`; the swarm sees nothing else of the agent's conversation.
pub struct SwarmTool {
    swarm: Swarm,
    spec: ToolSpec,
}

impl SwarmTool {
    pub(crate) fn new(swarm: Swarm, name: String, description: String) -> Self {
        let input = json!({
            "type": "object",
            "properties": {"task": {
                "type": "string",
                "description": "What to do, with everything needed to do it: nothing else is known \
                    there.",
            }},
            "required": ["task"],
            "additionalProperties": false,
        });
        let spec = ToolSpec::new(name, description)
            .with_hints(Hints::new().parallel())
            .with_input(input);
        Self { swarm, spec }
    }
}

#[async_trait]
impl Program for SwarmTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn child(
        &self,
        args: &Value,
        saved: Option<&Value>,
        _: Arc<dyn Executor>,
    ) -> Result<Child, ToolError> {
        let Some(task) = args.get("task").and_then(Value::as_str) else {
            return Err(ToolError::new(
                ToolErrorKind::InvalidArgs,
                "`task` is missing or not a text",
            ));
        };
        self.swarm.child(task, saved)
    }
}

impl fmt::Debug for SwarmTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SwarmTool")
            .field("name", &self.spec.name)
            .field("swarm", &self.swarm)
            .finish()
    }
}
