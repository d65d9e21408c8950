//! Adapters for parts that several agents hold.
//!
//! An agent's builder takes a part by value, but an approver or a program is shared by all agents
//! of a team. [`Shared`] is the part behind an `Arc`, and forwards every method of the trait.
//! [`ReadOnly`] narrows a source of tools for agents that must not change anything.

use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{
    Approver, Ask, Child, Decision, EffectClass, Executor, Permit, Program, Tool, ToolError,
    ToolSource, ToolSpec,
};
use serde_json::Value;

/// A part that several agents share.
pub(crate) struct Shared<T: ?Sized>(pub(crate) Arc<T>);

/// The tools of a source with the read-only hint.
///
/// The filter applies on each listing, because the tools of a source may change while it runs.
/// Hints come from the server, so a policy still decides on each call.
pub(crate) struct ReadOnly(pub(crate) Arc<dyn ToolSource>);

#[deny(clippy::missing_trait_methods)]
impl ToolSource for ReadOnly {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        let mut tools = self.0.tools();
        tools.retain(|tool| only_reads(tool.spec()));
        tools
    }

    fn version(&self) -> u64 {
        self.0.version()
    }

    fn problems(&self) -> Vec<String> {
        self.0.problems()
    }

    fn part(&self, tool: &str) -> Option<String> {
        self.0.part(tool)
    }
}

/// Returns `true` if the hints of a tool declare it read-only.
///
/// A tool without hints counts as one that changes something.
pub(crate) fn only_reads(spec: &ToolSpec) -> bool {
    spec.hints.class == EffectClass::ReadOnly && !spec.hints.destructive
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Program for Shared<dyn Program> {
    fn spec(&self) -> &ToolSpec {
        self.0.spec()
    }

    async fn child(
        &self,
        args: &Value,
        saved: Option<&Value>,
        caller: Arc<dyn Executor>,
    ) -> Result<Child, ToolError> {
        self.0.child(args, saved, caller).await
    }

    fn permit(&self, args: &Value) -> Permit {
        self.0.permit(args)
    }

    fn permit_blocks(&self) -> bool {
        self.0.permit_blocks()
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Approver for Shared<dyn Approver> {
    async fn decide(&self, ask: &Ask) -> Decision {
        self.0.decide(ask).await
    }
}
