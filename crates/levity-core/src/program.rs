use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use crate::{Child, Executor, Permit, ToolError, ToolSpec};

/// A tool whose calls are runs of their own: code that calls other tools, for instance.
///
/// What such a run does goes the same way as what its caller does: it is journaled, so it is not
/// done twice after a crash; policy is asked; the limits of the caller hold; those who watch see
/// it. An agent takes programs by `AgentBuilder::program`, and its model sees them as tools.
///
/// # Contract
/// - `spec` always returns the same.
/// - `child` is only given arguments that match the input schema.
/// - `child` builds the same machine again from the same arguments and what that machine had saved.
/// - The child ends with [`Status::Failed`](crate::Status::Failed) and
///   [`Failure::Program`](crate::Failure::Program) when the caller is to see a failed call.
#[async_trait]
pub trait Program: Send + Sync {
    /// Name, docs, schemas and hints.
    fn spec(&self) -> &ToolSpec;

    /// Makes the run of a call: a new one, or one from a state that its machine saved. `caller`
    /// performs the effects of the caller, its tools among them; the child's own executor hands on
    /// what it does not perform itself.
    ///
    /// # Errors
    /// When the arguments make no sense, or the state is not the machine's.
    async fn child(
        &self,
        args: &Value,
        saved: Option<&Value>,
        caller: Arc<dyn Executor>,
    ) -> Result<Child, ToolError>;

    /// As [`Tool::permit`](crate::Tool::permit).
    fn permit(&self, args: &Value) -> Permit {
        let _ = args;
        Permit::Allow
    }

    /// As [`Tool::permit_blocks`](crate::Tool::permit_blocks).
    fn permit_blocks(&self) -> bool {
        false
    }
}
