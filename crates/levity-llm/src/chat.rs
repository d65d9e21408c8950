//! OpenAI's Chat Completions, and the many servers that speak it more or less.

use async_trait::async_trait;
use levity_core::{Delta, Finish, ModelCard, ModelError, OutputSchema, Request, ThinkingMode, ToolChoice};
use serde_json::{Value, json};

use crate::body::{Body, list};
use crate::http::{Asked, Endpoint, Framing, Remote, Secret, Sink, Wire, provider};

mod decode;
mod encode;

/// The name under which data of this protocol rides on messages.
pub(crate) const NAME: &str = "openai_chat";

/// A model behind OpenAI's Chat Completions, or behind any server that speaks it: llama.cpp, vLLM, LM Studio,
/// Groq, Mistral, DeepSeek, OpenRouter, xAI, Together and others.
///
/// Replies are read leniently: fields may be missing or unknown, calls without index or id, arguments as
/// objects, token counts in odd places, reasoning under several names.
///
/// ```
/// use levity_core::Model as _;
/// use levity_llm::ChatModel;
///
/// let model = ChatModel::compatible("http://127.0.0.1:8080/v1", "qwen3");
/// assert_eq!(model.card().id, "qwen3");
/// ```
#[derive(Clone, Debug)]
pub struct ChatModel(Remote<Chat>);

/// How the servers differ in what they take.
#[derive(Clone, Debug)]
pub(crate) struct Chat {
    key: Option<Secret>,
    /// The field for the longest reply.
    max_tokens: &'static str,
    /// Whether the model's thoughts go back to it.
    recalls: bool,
}

impl ChatModel {
    /// A model of OpenAI's.
    pub fn openai(key: impl Into<Secret>, model: impl Into<String>) -> Self {
        let chat = Chat { key: Some(key.into()), max_tokens: "max_completion_tokens", recalls: false };
        let endpoint = Endpoint::new("https://api.openai.com/v1");
        Self(Remote::new(chat, ModelCard::new("openai", model), endpoint))
    }

    /// A model of a server that speaks the same; its address ends where `/chat/completions` begins.
    pub fn compatible(base_url: impl AsRef<str>, model: impl Into<String>) -> Self {
        let chat = Chat { key: None, max_tokens: "max_tokens", recalls: true };
        Self(Remote::new(chat, ModelCard::new("compatible", model), Endpoint::new(base_url)))
    }

    /// Sends this key.
    #[must_use]
    pub fn with_key(mut self, key: impl Into<Secret>) -> Self {
        self.0.wire.key = Some(key.into());
        self
    }
}

provider!(ChatModel);

#[async_trait]
impl Wire for Chat {
    const FRAMING: Framing = Framing::Sse;
    type Decoder = decode::Decoder;

    fn path(&self, _: &ModelCard, _: bool) -> String {
        "/chat/completions".to_owned()
    }

    async fn headers(&self) -> Result<Vec<(&'static str, Secret)>, ModelError> {
        let bearer = |key: &Secret| ("authorization", Secret::new(format!("Bearer {}", key.expose())));
        Ok(self.key.iter().map(bearer).collect())
    }

    fn body(&self, asked: Asked<'_>) -> Result<Vec<u8>, ModelError> {
        let Asked { card, request, stream, endpoint } = asked;
        let mut body = Body::new();
        body.field("model", &card.id);
        body.raw("messages", |bytes| list(bytes, |list| encode::messages(request, self.recalls, list)));
        if !request.tools.is_empty() {
            body.raw("tools", |bytes| list(bytes, |list| encode::tools(request, list)));
            choose(&mut body, &request.tool_choice);
        }
        if let Some(output) = &request.output {
            body.field("response_format", &response_format(output));
        }
        self.options(&mut body, request);
        if stream {
            body.field("stream", &true);
            body.field("stream_options", &json!({"include_usage": true}));
        }
        for (name, value) in endpoint.extra().iter().chain(&request.options.extra) {
            body.field(name, value);
        }
        Ok(body.finish())
    }

    fn decoder(&self) -> Self::Decoder {
        decode::Decoder::default()
    }

    fn whole(&self, reply: &Value, sink: &mut Sink) -> Result<(), ModelError> {
        decode::whole(reply, sink)
    }
}

impl Chat {
    fn options(&self, body: &mut Body, request: &Request) {
        let options = &request.options;
        body.optional("temperature", options.temperature.as_ref());
        body.optional("top_p", options.top_p.as_ref());
        body.optional(self.max_tokens, options.max_tokens.as_ref());
        body.optional("seed", options.seed.as_ref());
        if !options.stop.is_empty() {
            body.field("stop", &options.stop);
        }
        let effort = match options.thinking {
            Some(ThinkingMode::Off) => Some("none"),
            Some(ThinkingMode::Low) => Some("low"),
            Some(ThinkingMode::Medium) => Some("medium"),
            Some(ThinkingMode::High) => Some("high"),
            Some(ThinkingMode::Budget(tokens)) => Some(match tokens {
                0 => "none",
                1..4_096 => "low",
                4_096..16_384 => "medium",
                _ => "high",
            }),
            _ => None,
        };
        body.optional("reasoning_effort", effort);
    }
}

fn choose(body: &mut Body, choice: &ToolChoice) {
    match choice {
        ToolChoice::None => body.field("tool_choice", "none"),
        ToolChoice::Required => body.field("tool_choice", "required"),
        ToolChoice::Tool(name) => {
            body.field("tool_choice", &json!({"type": "function", "function": {"name": name}}));
        }
        _ => {}
    }
}

fn response_format(output: &OutputSchema) -> Value {
    json!({"type": "json_schema", "json_schema": {"name": output.name, "schema": output.schema}})
}

/// Why the model stopped, in the protocol's words.
pub(crate) fn finish(word: &str) -> Option<Finish> {
    Some(match word {
        "" => return None,
        "stop" | "eos" | "end_turn" | "stop_sequence" => Finish::Stop,
        "tool_calls" | "function_call" | "tool_use" => Finish::ToolCalls,
        "length" | "max_tokens" | "model_length" => Finish::Length,
        "content_filter" | "safety" => Finish::ContentFilter,
        other => Finish::Other(other.to_owned()),
    })
}

pub(crate) fn push_finish(word: &str, sink: &mut Sink) {
    if let Some(finish) = finish(word) {
        sink.push(Delta::Finish(finish));
    }
}
