//! Tools that talk to their caller, and the calls that they get.

use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{CallId, CancelToken, Progress, ToolSpec};
use serde_json::Value;

use super::{Client, HandlerReply, RequestError, TaskSupport};

/// A tool that also talks to its caller.
///
/// A plain [`Tool`](levity_core::Tool) needs none of this: pass it to
/// [`McpServerBuilder::tool`](super::McpServerBuilder::tool) directly.
///
/// # Contract
/// - `spec` always returns the same value, which is sent to clients unchanged.
/// - `call` receives only arguments that match the input schema.
/// - Dropping the future of `call` cancels it. That happens if the client cancels the call,
///   disconnects, or does not answer a question within
///   [`McpLimits::answer`](super::McpLimits::answer).
/// - Between a question and its answer, another task than before may poll the future.
///
/// ```
/// use async_trait::async_trait;
/// use levity_core::ToolSpec;
/// use levity_serve::mcp::{
///     ElicitForm, ElicitReply, Handler, HandlerCall, HandlerReply, RequestError,
/// };
/// use serde_json::json;
///
/// struct Order(ToolSpec);
///
/// #[async_trait]
/// impl Handler for Order {
///     fn spec(&self) -> &ToolSpec {
///         &self.0
///     }
///
///     async fn call(&self, call: HandlerCall) -> Result<HandlerReply, RequestError> {
///         let form = ElicitForm::new("Order a pizza?", json!({
///             "type": "object",
///             "properties": {"size": {"type": "string", "enum": ["small", "large"]}},
///             "required": ["size"],
///         }));
///         match call.client.elicit(form).await? {
///             ElicitReply::Accept(choice) => Ok(HandlerReply::text(format!(
///                 "A {} one is on its way.",
///                 choice["size"]
///             ))),
///             _ => Ok(HandlerReply::text("Nothing was ordered.")),
///         }
///     }
/// }
/// ```
#[async_trait]
pub trait Handler: Send + Sync {
    /// Returns the name, description, schemas and hints.
    fn spec(&self) -> &ToolSpec;

    /// Returns how calls use tasks. By default, they do not.
    fn task_support(&self) -> TaskSupport {
        TaskSupport::Forbidden
    }

    /// Handles a call.
    ///
    /// # Errors
    /// The model gets a [`ToolError`](levity_core::ToolError), and the calling program any other
    /// [`RequestError`].
    async fn call(&self, call: HandlerCall) -> Result<HandlerReply, RequestError>;
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<H: Handler + ?Sized> Handler for Arc<H> {
    fn spec(&self) -> &ToolSpec {
        (**self).spec()
    }

    fn task_support(&self) -> TaskSupport {
        (**self).task_support()
    }

    async fn call(&self, call: HandlerCall) -> Result<HandlerReply, RequestError> {
        (**self).call(call).await
    }
}

/// A call of a [`Handler`].
///
/// ```
/// use levity_serve::mcp::{HandlerCall, HandlerReply, RequestError};
///
/// async fn count(call: HandlerCall) -> Result<HandlerReply, RequestError> {
///     let mut total = 0;
///     for step in 1..=3 {
///         if call.cancel.is_cancelled() {
///             break;
///         }
///         call.progress.report(format!("step {step}"));
///         total += step;
///     }
///     Ok(HandlerReply::value(serde_json::json!({"total": total})))
/// }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HandlerCall {
    /// The arguments of the call.
    pub args: Value,
    /// The id of the call, assigned by this server.
    pub id: CallId,
    /// The client that calls.
    pub client: Client,
    /// Reports progress to the client, if the client wants it.
    pub progress: Progress,
    /// Cancelled when the result is no longer needed.
    pub cancel: CancelToken,
}
