use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{CallId, CancelToken, Progress, ToolSpec};
use serde_json::Value;

use super::{Client, HandlerReply, RequestError, TaskSupport};

/// A tool that also talks to who calls it.
///
/// A plain [`Tool`](levity_core::Tool) needs none of this:
/// [`McpServerBuilder::tool`](super::McpServerBuilder::tool) takes it as it is.
///
/// # Contract
/// - `spec` always returns the same. It goes to clients as it was written.
/// - `call` is only given arguments that match the input schema.
/// - Dropping the future of `call` cancels it. That happens when the client takes the call back,
///   goes away, or does not answer a question within
///   [`McpLimits::answer`](super::McpLimits::answer).
/// - Between a question and its answer the future may be polled by another task than before.
///
/// ```
/// use async_trait::async_trait;
/// use levity_core::ToolSpec;
/// use levity_serve::mcp::{HandlerCall, ElicitForm, ElicitReply, RequestError, Handler, HandlerReply};
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
///             "type": "object", "properties": {"size": {"type": "string", "enum": ["small", "large"]}}, "required": ["size"],
///         }));
///         match call.client.elicit(form).await? {
///             ElicitReply::Accept(choice) => Ok(HandlerReply::text(format!("A {} one is on its way.", choice["size"]))),
///             _ => Ok(HandlerReply::text("Nothing was ordered.")),
///         }
///     }
/// }
/// ```
#[async_trait]
pub trait Handler: Send + Sync {
    /// Name, docs, schemas and hints.
    fn spec(&self) -> &ToolSpec;

    /// Says whether calls go on as tasks. They do not, by default.
    fn task_support(&self) -> TaskSupport {
        TaskSupport::Forbidden
    }

    /// Does the work.
    ///
    /// # Errors
    /// A [`ToolError`](levity_core::ToolError) is told to the model, and any other [`RequestError`]
    /// to the program that called.
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
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HandlerCall {
    /// The arguments.
    pub args: Value,
    /// An id of this server's for the call.
    pub id: CallId,
    /// Who calls.
    pub client: Client,
    /// Takes word of how far the work is; the client is told where it wants to know.
    pub progress: Progress,
    /// Set when nobody wants the result any more.
    pub cancel: CancelToken,
}
