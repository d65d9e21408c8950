//! OpenAI's Chat Completions, and the many servers that speak it more or less.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{Finish, ModelCard, ModelError, OutputSchema, Request, ToolChoice};
use serde_json::{Map, Value, json};

use crate::body::{Body, extra, list};
use crate::effort;
use crate::http::{Asked, Decode as _, Endpoint, Framing, Remote, Secret, Sink, Wire, provider};
use crate::schema::answer;
use crate::schema::nulls::Nulls;
use crate::schema::offer::Offers;

mod calls;
mod chunk;
mod decode;
mod embed;
mod encode;
mod many;
mod media;
mod number;
mod usage;

pub use embed::OpenAiEmbedder;
use encode::To;

/// The name under which data of this protocol rides on messages.
pub(crate) const NAME: &str = "openai_chat";

/// The type of a call whose input is a text of its own.
const CUSTOM: &str = "custom";

/// A model behind OpenAI's Chat Completions, or behind any server that speaks it: llama.cpp, vLLM,
/// LM Studio, Groq, Mistral, DeepSeek, OpenRouter, xAI, Together and others.
///
/// Replies are read leniently: fields may be missing or unknown, calls without index or id,
/// arguments as objects, token counts in odd places, reasoning under several names.
///
/// ```
/// use levity_core::Model as _;
/// use levity_llm::ChatModel;
///
/// let model = ChatModel::compatible("http://127.0.0.1:8080/v1", "qwen3");
/// assert_eq!(model.card().id, "qwen3");
/// ```
///
/// What a model thought goes back to it under the name it came with, which some servers demand
/// where tools were called. Parts of the protocol's own that levity has no name for can be sent as
/// [`Part::ProviderState`] of the provider `openai_chat` in a user's message, and fields of the
/// body by [`Options::extra`](levity_core::Options::extra). Tools that are given so, such as custom
/// ones, stand behind the request's own.
///
/// [`Part::ProviderState`]: levity_core::Part::Opaque
#[derive(Clone, Debug)]
pub struct ChatModel(Remote<Chat>);

#[derive(Clone, Debug)]
pub(crate) struct Chat {
    key: Option<Secret>,
    dialect: Dialect,
    /// Whether the key has a header of its own, as Azure wants it.
    bare_key: bool,
    /// Whether thoughts are looked for in the text.
    tags: bool,
    /// How tools and answers are put to it.
    offers: Offers,
}

/// How the servers differ in what they take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// OpenAI's own, which knows no thoughts, and counts them to the longest reply.
    OpenAi,
    /// What all others speak.
    Compatible,
    /// The same, without thoughts.
    Thoughtless,
}

impl Dialect {
    /// The name for messages that are encoded in this way.
    fn wire(self) -> &'static str {
        match self {
            Self::OpenAi => "openai_chat, openai",
            Self::Compatible => "openai_chat, compatible",
            Self::Thoughtless => "openai_chat, compatible, without thoughts",
        }
    }

    /// Whether the model's thoughts go back to it.
    fn recalls(self) -> bool {
        self == Self::Compatible
    }

    /// The field for the longest reply.
    fn max_tokens(self) -> &'static str {
        if self == Self::OpenAi {
            "max_completion_tokens"
        } else {
            "max_tokens"
        }
    }
}

/// Where in a reply thoughts stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    ReasoningContent,
    Reasoning,
    /// As a part of the content.
    Parts,
    /// In the text, between tags.
    Tags,
}

impl Field {
    const ALL: [Self; 4] = [
        Self::ReasoningContent,
        Self::Reasoning,
        Self::Parts,
        Self::Tags,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::ReasoningContent => "reasoning_content",
            Self::Reasoning => "reasoning",
            Self::Parts => "content",
            Self::Tags => "tags",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.name() == name)
    }
}

impl Chat {
    fn new(dialect: Dialect, offers: Offers) -> Self {
        Self {
            key: None,
            dialect,
            bare_key: false,
            tags: false,
            offers,
        }
    }

    pub(crate) fn compatible() -> Self {
        Self::new(Dialect::Compatible, Offers::new(false))
    }
}

impl ChatModel {
    fn new(provider: &str, endpoint: Endpoint, model: impl Into<String>, dialect: Dialect) -> Self {
        let model = model.into();
        let offers = if dialect == Dialect::OpenAi {
            Offers::openai(&model)
        } else {
            Offers::new(false)
        };
        let mut remote = Remote::new(
            Chat::new(dialect, offers),
            ModelCard::new(provider, model),
            endpoint,
        );
        remote.rescues = dialect != Dialect::OpenAi;
        Self(remote)
    }

    /// A model of OpenAI's.
    pub fn openai(key: impl Into<Secret>, model: impl Into<String>) -> Self {
        let endpoint = Endpoint::new("https://api.openai.com/v1");
        Self::new("openai", endpoint, model, Dialect::OpenAi).with_key(key)
    }

    /// A model of OpenAI's that Azure serves under the name of a deployment. The address is the
    /// resource's: `https://NAME.openai.azure.com`.
    pub fn azure(
        resource: impl AsRef<str>,
        key: impl Into<Secret>,
        deployment: impl Into<String>,
    ) -> Self {
        let base = format!(
            "{}/openai/v1",
            resource.as_ref().trim().trim_end_matches('/')
        );
        let mut model =
            Self::new("azure", Endpoint::new(base), deployment, Dialect::OpenAi).with_key(key);
        model.0.wire.bare_key = true;
        model
    }

    /// A model of a server that speaks the same; its address ends where `/chat/completions` begins.
    pub fn compatible(base_url: impl AsRef<str>, model: impl Into<String>) -> Self {
        Self::new(
            "compatible",
            Endpoint::new(base_url),
            model,
            Dialect::Compatible,
        )
    }

    /// Sends this key.
    #[must_use]
    pub fn with_key(mut self, key: impl Into<Secret>) -> Self {
        self.0.wire.key = Some(key.into());
        self
    }

    /// Holds the model to the schemas of tools and answers ("strict mode") where that does not
    /// change what they accept; so it is for OpenAI's own models, but for tuned ones.
    ///
    /// A property of a tool that may be left out is then offered as one that may be null, and such
    /// nulls are taken out of the arguments again. What strict mode has no words for is said in the
    /// description.
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

    /// Does not send thoughts back, for a server that refuses those of another one: Groq and
    /// Mistral do.
    #[must_use]
    pub fn without_thoughts(mut self) -> Self {
        if self.0.wire.dialect == Dialect::Compatible {
            self.0.wire.dialect = Dialect::Thoughtless;
        }
        self
    }

    /// Takes what stands between `<think>` and `</think>` at the beginning of the text for
    /// thoughts. By default it is text, since a server that knows its model tells them apart
    /// itself.
    #[must_use]
    pub fn with_think_tags(mut self) -> Self {
        self.0.wire.tags = true;
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
        let header = |key: &Secret| match self.bare_key {
            true => ("api-key", key.clone()),
            false => (
                "authorization",
                Secret::new(format!("Bearer {}", key.expose())),
            ),
        };
        Ok(self.key.iter().map(header).collect())
    }

    fn account(&self) -> Option<&str> {
        self.key.as_ref().map(Secret::expose)
    }

    fn body(&self, asked: Asked<'_>) -> Result<Vec<u8>, ModelError> {
        let Asked {
            card,
            request,
            stream,
            endpoint,
            origin,
        } = asked;
        let mut extra = extra(asked);
        let hosted = hosted(&mut extra);
        let mut body = Body::over(&extra);
        let request = match self.dialect {
            Dialect::OpenAi => answer::of_object(request),
            _ => Cow::Borrowed(request),
        };
        let request = &*request;
        body.reserve(&request.history);
        body.field("model", &card.id);
        let mut sent = Ok(());
        body.raw("messages", |bytes| {
            list(bytes, |list| {
                sent = encode::messages(
                    request,
                    To {
                        origin,
                        dialect: self.dialect,
                    },
                    list,
                );
            });
        });
        sent?;
        if !request.tools.is_empty() || !hosted.is_empty() {
            let offer = self.offers.tools(&request.tools, encode::tool);
            body.raw("tools", |bytes| {
                list(bytes, |list| {
                    list.add(&offer.json);
                    hosted.iter().for_each(|tool| list.item(tool));
                });
            });
            choose(&mut body, &request.tool_choice);
        }
        if let Some(output) = &request.output {
            body.field("response_format", &self.response_format(output));
        }
        self.options(&mut body, card, endpoint.base(), request);
        if stream {
            body.field("stream", &true);
            body.field("stream_options", &json!({"include_usage": true}));
        }
        Ok(body.finish())
    }

    fn nulls(&self, request: &Request) -> Option<Arc<Nulls>> {
        self.offers
            .tools(&request.tools, encode::tool)
            .nulls
            .clone()
    }

    fn decoder(&self) -> Self::Decoder {
        decode::Decoder::with_tags(self.tags)
    }

    fn whole(&self, reply: &Value, sink: &mut Sink) -> Result<(), ModelError> {
        decode::whole(self.decoder(), reply, sink)
    }

    /// The pieces are those of a stream, so it reads like one; what is odd in it is looked at as a
    /// whole.
    fn usual(&self, body: &[u8], sink: &mut Sink) -> bool {
        let mut decoder = self.decoder();
        decoder.event("", body, sink).is_ok() && decoder.end(sink).is_ok() && sink.has_finish()
    }
}

impl Chat {
    fn response_format(&self, output: &Arc<OutputSchema>) -> Value {
        let name = if output.name.is_empty() {
            "answer"
        } else {
            &*output.name
        };
        let schema = match &*self.offers.output(output) {
            Some(schema) => json!({"name": name, "schema": schema, "strict": true}),
            None => json!({"name": name, "schema": output.schema}),
        };
        json!({"type": "json_schema", "json_schema": schema})
    }

    fn options(&self, body: &mut Body, card: &ModelCard, base: &str, request: &Request) {
        let options = &request.options;
        body.optional("temperature", options.temperature.as_ref());
        body.optional("top_p", options.top_p.as_ref());
        body.optional(self.dialect.max_tokens(), options.max_tokens.as_ref());
        body.optional("seed", options.seed.as_ref());
        body.optional("stop", Some(&options.stop).filter(|stop| !stop.is_empty()));
        // OpenAI's old models refuse the field as such.
        let thinks = self.dialect != Dialect::OpenAi || effort::thinks(&card.id, true);
        let mode = options
            .thinking
            .filter(|_| thinks || card.abilities.thinking);
        body.optional(
            "reasoning_effort",
            mode.and_then(|mode| effort::effort(base, &card.id, true, mode)),
        );
    }
}

/// Tools in the protocol's own words, such as custom ones, which stand behind the request's.
fn hosted(extra: &mut Map<String, Value>) -> Vec<Value> {
    match extra.shift_remove("tools") {
        Some(Value::Array(tools)) => tools,
        Some(other) => {
            extra.insert("tools".to_owned(), other);
            Vec::new()
        }
        None => Vec::new(),
    }
}

fn choose(body: &mut Body, choice: &ToolChoice) {
    match choice {
        ToolChoice::None => body.field("tool_choice", "none"),
        ToolChoice::Required => body.field("tool_choice", "required"),
        ToolChoice::Tool(name) => {
            body.field(
                "tool_choice",
                &json!({"type": "function", "function": {"name": name}}),
            );
        }
        _ => {}
    }
}

/// Why the model stopped, in the protocol's words.
fn finish(word: &str) -> Finish {
    match word {
        "stop" | "eos" | "end_turn" | "stop_sequence" => Finish::Stop,
        "tool_calls" | "function_call" | "tool_use" => Finish::ToolCalls,
        "length" | "max_tokens" | "model_length" => Finish::Length,
        "content_filter" | "safety" => Finish::ContentFilter,
        other => Finish::Other(other.to_owned()),
    }
}
