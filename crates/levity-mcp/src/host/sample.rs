use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{Finish, Message, Part, ToolChoice, ToolSpec};

use super::Refusal;

/// Has a model reply to what a server asks ("sampling").
///
/// [`ModelSampler`](crate::ModelSampler) is one, with limits.
///
/// # Contract
/// - What is asked is a stranger's text. Nothing of the agent's own conversation goes into the
///   reply.
/// - Dropping the future of `sample` ends the work: the server no longer wants the reply, or is
///   gone.
#[async_trait]
pub trait Sampler: Send + Sync {
    /// Replies, or says why not. `server` is the name of the server that asks.
    async fn sample(&self, server: &str, ask: SampleAsk) -> Result<SampleReply, Refusal>;

    /// Whether requests may bring tools for the model to call; servers are told. They may not, by
    /// default.
    fn takes_tools(&self) -> bool {
        false
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<S: Sampler + ?Sized> Sampler for Arc<S> {
    async fn sample(&self, server: &str, ask: SampleAsk) -> Result<SampleReply, Refusal> {
        (**self).sample(server, ask).await
    }

    fn takes_tools(&self) -> bool {
        (**self).takes_tools()
    }
}

/// What a server asks a model. It has been looked at: at most 256 messages and 64 tools, and 1 MiB
/// together.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SampleAsk {
    /// The messages, oldest first.
    pub messages: Vec<Arc<Message>>,
    /// Instructions that stand before them.
    pub system: Option<String>,
    /// The longest reply, in tokens.
    pub max_tokens: u64,
    /// Randomness of the choice of words.
    pub temperature: Option<f64>,
    /// Texts that end the reply.
    pub stop: Vec<String>,
    /// Tools that the model may call; the server makes the calls.
    pub tools: Vec<Arc<ToolSpec>>,
    /// Whether and which tool the model may or must call.
    pub tool_choice: ToolChoice,
    /// Names of models that the server would like, the best first.
    pub hints: Vec<String>,
}

impl SampleAsk {
    /// A request of one message.
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

/// What a model replied to a server.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SampleReply {
    /// The reply: text, and calls of the server's tools.
    pub parts: Vec<Part>,
    /// The name of the model.
    pub model: String,
    /// Why it stopped.
    pub finish: Finish,
}

impl SampleReply {
    /// A reply in words.
    pub fn text(model: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            parts: vec![Part::text(text)],
            model: model.into(),
            finish: Finish::Stop,
        }
    }
}
