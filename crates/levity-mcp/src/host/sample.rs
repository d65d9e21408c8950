//! Requests of a server to a model.
//!
//! The types are levity's own and not those of the protocol, so an implementation can pass the
//! messages to any [`Model`](levity_core::Model). levity has converted and bounded the request
//! before the trait sees it.

use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{Finish, Message, Part, ToolChoice, ToolSpec};

use super::Refusal;

/// A handler that lets a model answer a server's request ("sampling").
///
/// [`ModelSampler`](crate::ModelSampler) is an implementation with limits.
///
/// # Contract
/// - The request is untrusted text. The reply contains nothing of the agent's own conversation.
/// - Dropping the future of `sample` stops the work: the server has cancelled the request or has
///   ended.
///
/// ```
/// use async_trait::async_trait;
/// use levity_mcp::{Refusal, SampleReply, SampleRequest, Sampler};
///
/// struct Canned;
///
/// #[async_trait]
/// impl Sampler for Canned {
///     async fn sample(&self, server: &str, ask: SampleRequest) -> Result<SampleReply, Refusal> {
///         match (server, ask.max_tokens) {
///             ("trusted", 1..) => Ok(SampleReply::text("canned", "All is well.")),
///             _ => Err(Refusal::denied("only `trusted` may use the model")),
///         }
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// assert!(Canned.sample("trusted", SampleRequest::new("Hello", 10)).await.is_ok());
/// assert!(Canned.sample("other", SampleRequest::new("Hello", 10)).await.is_err());
/// # }
/// ```
#[async_trait]
pub trait Sampler: Send + Sync {
    /// Returns a reply, or the reason for a refusal. `server` is the name of the requesting server.
    async fn sample(&self, server: &str, ask: SampleRequest) -> Result<SampleReply, Refusal>;

    /// Returns `true` if requests may contain tools for the model to call; `false` by default.
    /// levity announces this to servers.
    fn supports_tools(&self) -> bool {
        false
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<S: Sampler + ?Sized> Sampler for Arc<S> {
    async fn sample(&self, server: &str, ask: SampleRequest) -> Result<SampleReply, Refusal> {
        (**self).sample(server, ask).await
    }

    fn supports_tools(&self) -> bool {
        (**self).supports_tools()
    }
}

/// A server's request to a model. It has been validated: at most 256 messages, 64 tools and 1 MiB
/// in total.
///
/// ```
/// use levity_mcp::SampleRequest;
///
/// let mut ask = SampleRequest::new("Summarize the log.", 200);
/// ask.system = Some("Answer in one sentence.".to_owned());
/// assert_eq!((ask.messages.len(), ask.max_tokens), (1, 200));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SampleRequest {
    /// The messages, oldest first.
    pub messages: Vec<Arc<Message>>,
    /// The instructions before the messages.
    pub system: Option<String>,
    /// The maximum length of the reply, in tokens.
    pub max_tokens: u64,
    /// The sampling temperature of the reply.
    pub temperature: Option<f64>,
    /// The texts that end the reply.
    pub stop: Vec<String>,
    /// The tools that the model may call; the server runs the calls.
    pub tools: Vec<Arc<ToolSpec>>,
    /// The rule for which tool the model may or must call.
    pub tool_choice: ToolChoice,
    /// The names of models that the server prefers, best first.
    pub hints: Vec<String>,
}

impl SampleRequest {
    /// Creates a request with one message.
    pub fn new(message: impl Into<Message>, max_tokens: u64) -> Self {
        Self {
            messages: vec![Arc::new(message.into())],
            system: None,
            max_tokens,
            temperature: None,
            stop: Vec::new(),
            tools: Vec::new(),
            tool_choice: ToolChoice::Auto,
            hints: Vec::new(),
        }
    }
}

/// A model's reply to a server.
///
/// ```
/// use levity_core::Finish;
/// use levity_mcp::SampleReply;
///
/// let reply = SampleReply::text("small-model", "Two files changed.");
/// assert_eq!((reply.parts.len(), reply.finish), (1, Finish::Stop));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SampleReply {
    /// The parts of the reply: text, and calls of the server's tools.
    pub parts: Vec<Part>,
    /// The name of the model.
    pub model: String,
    /// The reason why the model stopped.
    pub finish: Finish,
}

impl SampleReply {
    /// Creates a reply with text only.
    pub fn text(model: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            parts: vec![Part::text(text)],
            model: model.into(),
            finish: Finish::Stop,
        }
    }
}
