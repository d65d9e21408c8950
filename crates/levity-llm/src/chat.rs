//! OpenAI's Chat Completions, and the many servers that speak it more or less.

use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{Delta, Finish, ModelCard, ModelError, OutputSchema, Request, ThinkingMode, ToolChoice};
use serde_json::{Value, json};

use crate::body::{Body, list};
use crate::http::{Asked, Endpoint, Framing, Remote, Secret, Sink, Wire, provider};
use crate::schema::nulls::Nulls;
use crate::schema::offer::Offers;

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
    /// How tools and answers are put to it.
    offers: Offers,
}

impl ChatModel {
    /// A model of OpenAI's.
    pub fn openai(key: impl Into<Secret>, model: impl Into<String>) -> Self {
        let model = model.into();
        let (max_tokens, offers) = ("max_completion_tokens", Offers::openai(&model));
        let chat = Chat { key: Some(key.into()), max_tokens, recalls: false, offers };
        let endpoint = Endpoint::new("https://api.openai.com/v1");
        Self(Remote::new(chat, ModelCard::new("openai", model), endpoint))
    }

    /// A model of a server that speaks the same; its address ends where `/chat/completions` begins.
    pub fn compatible(base_url: impl AsRef<str>, model: impl Into<String>) -> Self {
        let chat = Chat { key: None, max_tokens: "max_tokens", recalls: true, offers: Offers::new(false) };
        Self(Remote::new(chat, ModelCard::new("compatible", model), Endpoint::new(base_url)))
    }

    /// Sends this key.
    #[must_use]
    pub fn with_key(mut self, key: impl Into<Secret>) -> Self {
        self.0.wire.key = Some(key.into());
        self
    }

    /// Holds the model to the schemas of tools and answers ("strict mode") where that does not change what they
    /// accept; so it is for OpenAI's own models, but for tuned ones.
    ///
    /// A property of a tool that may be left out is then offered as one that may be null, and such nulls are taken
    /// out of the arguments again. What strict mode has no words for is said in the description.
    #[must_use]
    pub fn with_strict(mut self) -> Self {
        self.0.wire.offers = Offers::new(true);
        self
    }

    /// Shows the model schemas as they are written, and does not hold it to them.
    #[must_use]
    pub fn without_strict(mut self) -> Self {
        self.0.wire.offers = Offers::new(false);
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
            let offer = self.offers.tools(&request.tools, encode::tool);
            body.raw("tools", |bytes| list(bytes, |list| list.add(&offer.json)));
            choose(&mut body, &request.tool_choice);
        }
        if let Some(output) = &request.output {
            body.field("response_format", &self.response_format(output));
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

    fn nulls(&self, request: &Request) -> Option<Arc<Nulls>> {
        self.offers.tools(&request.tools, encode::tool).nulls.clone()
    }

    fn decoder(&self) -> Self::Decoder {
        decode::Decoder::default()
    }

    fn whole(&self, reply: &Value, sink: &mut Sink) -> Result<(), ModelError> {
        decode::whole(reply, sink)
    }
}

impl Chat {
    fn response_format(&self, output: &Arc<OutputSchema>) -> Value {
        let schema = match &*self.offers.output(output) {
            Some(schema) => json!({"name": output.name, "schema": schema, "strict": true}),
            None => json!({"name": output.name, "schema": output.schema}),
        };
        json!({"type": "json_schema", "json_schema": schema})
    }

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
