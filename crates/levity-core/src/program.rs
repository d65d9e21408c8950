use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use crate::{Child, Executor, Permit, ToolError, ToolSpec};

/// A tool whose calls are child runs, for example code that calls other tools.
///
/// A child run gets the same treatment as its caller. Its effects are journaled, so a crash does
/// not repeat them. Policy applies to them, the caller's limits hold, and observers see them. Add
/// programs to an agent with `AgentBuilder::program`; the model sees them as tools.
///
/// # Contract
/// - `spec` always returns the same value.
/// - `child` only receives arguments that match the input schema.
/// - `child` builds the same machine again from the same arguments and the state that machine
///   saved.
/// - The child ends with [`Status::Failed`](crate::Status::Failed) and
///   [`Failure::Program`](crate::Failure::Program) to report a failed call to its caller.
///
/// ```
/// use std::sync::Arc;
///
/// use async_trait::async_trait;
/// use levity_core::{Child, Executor, Limits, Machine, Program, ToolError, ToolSpec};
/// use serde_json::Value;
///
/// /// Runs a machine that this function builds from the arguments or from its saved state.
/// struct Script {
///     spec: ToolSpec,
///     build: fn(&Value, Option<&Value>) -> Result<Box<dyn Machine>, ToolError>,
/// }
///
/// #[async_trait]
/// impl Program for Script {
///     fn spec(&self) -> &ToolSpec {
///         &self.spec
///     }
///
///     async fn child(
///         &self,
///         args: &Value,
///         saved: Option<&Value>,
///         caller: Arc<dyn Executor>,
///     ) -> Result<Child, ToolError> {
///         Ok(Child::new((self.build)(args, saved)?, caller, Limits::new()))
///     }
/// }
/// ```
#[async_trait]
pub trait Program: Send + Sync {
    /// Returns the name, description, schemas and hints.
    fn spec(&self) -> &ToolSpec;

    /// Creates the run of a call, either new or from the `saved` state of its machine. `caller`
    /// performs the caller's effects, including its tools. The child's own executor forwards to it
    /// every effect that it does not perform itself.
    ///
    /// # Errors
    /// Returns an error if the arguments are invalid or `saved` is not a state of this machine.
    async fn child(
        &self,
        args: &Value,
        saved: Option<&Value>,
        caller: Arc<dyn Executor>,
    ) -> Result<Child, ToolError>;

    /// Returns the permit for a call, like [`Tool::permit`](crate::Tool::permit).
    fn permit(&self, args: &Value) -> Permit {
        let _ = args;
        Permit::Allow
    }

    /// Returns `true` if `permit` blocks, like [`Tool::permit_blocks`](crate::Tool::permit_blocks).
    fn permit_blocks(&self) -> bool {
        false
    }
}
