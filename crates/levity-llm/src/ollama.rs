//! Models behind Ollama's native API.

use std::borrow::Cow;
use std::time::Duration;

use async_trait::async_trait;
use levity_core::{
    ModelCard, ModelError, ModelErrorKind, Options, Request, ThinkingMode, ToolChoice,
};
use serde_json::{Map, Value};

use crate::body::{Body, extra, list};
use crate::http::{Endpoint, Framing, Remote, Secret, Sink, Wire, WireRequest, provider};

mod decode;
mod embed;
mod encode;
mod errors;
mod schema;
mod tags;

pub use embed::OllamaEmbedder;
pub use tags::OllamaEntry;

/// The provider name of this protocol's state in messages.
pub(crate) const NAME: &str = "ollama";

/// A model that an Ollama server runs, on this machine, another machine or in Ollama's cloud.
///
/// ```
/// use std::time::Duration;
///
/// use levity_core::Model as _;
/// use levity_llm::{Endpoint, OllamaModel};
///
/// let model = OllamaModel::new("qwen3:4b")
///     .with_endpoint(|_| Endpoint::new("http://192.168.1.20:11434"))
///     .with_window(32_768)
///     .with_keep_alive(Duration::from_secs(1_800));
/// assert_eq!(model.card().window, Some(32_768));
/// ```
///
/// Images are sent as bytes. Other media and requests that require a call are rejected, because
/// Ollama leaves calls to the model. Without [`with_window`](Self::with_window), Ollama truncates a
/// long conversation to its own default window, which is small.
#[derive(Clone, Debug)]
pub struct OllamaModel(Remote<Ollama>);

#[derive(Clone, Debug, Default)]
pub(crate) struct Ollama {
    key: Option<Secret>,
    window: Option<u64>,
    keep_alive: Option<Duration>,
    levels: bool,
}

impl OllamaModel {
    /// Creates a model of the Ollama server on this machine, at `http://127.0.0.1:11434`.
    pub fn new(model: impl Into<String>) -> Self {
        let card = ModelCard::new("ollama", model);
        // This is the only family with thinking levels at the time of writing; it accepts nothing
        // else.
        let wire = Ollama {
            levels: card.id.contains("gpt-oss"),
            ..Ollama::default()
        };
        let mut remote = Remote::new(wire, card, Endpoint::new("http://127.0.0.1:11434"));
        remote.parses_text_calls = true;
        Self(remote)
    }

    /// Creates a model in Ollama's cloud.
    pub fn cloud(key: impl Into<Secret>, model: impl Into<String>) -> Self {
        Self::new(model)
            .with_key(key)
            .with_endpoint(|_| Endpoint::new("https://ollama.com"))
    }

    /// Sends this key with every request.
    #[must_use]
    pub fn with_key(mut self, key: impl Into<Secret>) -> Self {
        self.0.wire.key = Some(key.into());
        self
    }

    /// Requests a window of this many tokens, for a request and its reply together (`num_ctx`), and
    /// sets it on the card. A larger window needs more memory.
    #[must_use]
    pub fn with_window(mut self, tokens: u64) -> Self {
        self.0.wire.window = Some(tokens);
        self.0.card.window = Some(tokens);
        self
    }

    /// Sets how long the model stays in memory after a reply: 5 minutes by default. With
    /// [`Duration::ZERO`] it is unloaded immediately, with [`Duration::MAX`] it stays.
    #[must_use]
    pub fn with_keep_alive(mut self, time: Duration) -> Self {
        self.0.wire.keep_alive = Some(time);
        self
    }

    /// Declares that the model supports thinking levels: low, medium, high. Models whose name
    /// contains `gpt-oss` are known to; for others, thinking is only enabled or disabled.
    #[must_use]
    pub fn with_thinking_levels(mut self) -> Self {
        self.0.wire.levels = true;
        self
    }

    /// Lists the models that an Ollama server has.
    ///
    /// ```no_run
    /// # use levity_llm::{Endpoint, OllamaModel};
    /// # async fn list() -> Result<(), levity_core::ModelError> {
    /// for model in OllamaModel::list(&Endpoint::new("http://127.0.0.1:11434")).await? {
    ///     println!("{} takes {} bytes", model.name, model.size);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns an error if no Ollama server responds, or its reply is not a list.
    pub async fn list(endpoint: &Endpoint) -> Result<Vec<OllamaEntry>, ModelError> {
        tags::list(endpoint).await
    }
}

provider!(OllamaModel);

#[async_trait]
impl Wire for Ollama {
    const FRAMING: Framing = Framing::JsonLines;
    type Decoder = decode::Decoder;

    fn path(&self, _: &ModelCard, _: bool) -> String {
        "/api/chat".to_owned()
    }

    async fn headers(&self) -> Result<Vec<(&'static str, Secret)>, ModelError> {
        let bearer = |key: &Secret| {
            (
                "authorization",
                Secret::new(format!("Bearer {}", key.expose())),
            )
        };
        Ok(self.key.iter().map(bearer).collect())
    }

    /// Any tool name is valid.
    fn tool_name<'n>(&self, name: &'n str) -> Cow<'n, str> {
        Cow::Borrowed(name)
    }

    fn body(&self, wire_request: WireRequest<'_>) -> Result<Vec<u8>, ModelError> {
        let WireRequest {
            card,
            request,
            stream,
            ..
        } = wire_request;
        let mut extra = extra(wire_request);
        let options = self.options(&request.options, extra.remove("options"));
        let mut body = Body::over(&extra);
        body.field("model", &card.id);
        let mut sent = Ok(());
        body.raw("messages", |bytes| {
            list(bytes, |list| sent = encode::messages(request, list));
        });
        sent?;
        if offers_tools(request)? {
            body.raw("tools", |bytes| {
                list(bytes, |list| encode::tools(request, list));
            });
        }
        body.optional(
            "format",
            request.output.as_ref().map(|output| &output.schema),
        );
        body.optional(
            "think",
            request
                .options
                .thinking
                .map(|mode| self.think(mode))
                .as_ref(),
        );
        body.optional("keep_alive", self.keep_alive.map(keep_alive).as_ref());
        if !options.is_empty() {
            body.field("options", &options);
        }
        body.field("stream", &stream);
        Ok(body.finish())
    }

    fn decoder(&self) -> Self::Decoder {
        decode::Decoder::default()
    }

    fn whole(&self, reply: &Value, sink: &mut Sink) -> Result<(), ModelError> {
        decode::whole(reply, sink)
    }

    fn explain(&self, error: ModelError, card: &ModelCard, endpoint: &Endpoint) -> ModelError {
        errors::explain(error, Some(&card.id), endpoint)
    }
}

impl Ollama {
    /// Returns the settings of the runner; the user's fields take precedence.
    fn options(&self, options: &Options, own: Option<Value>) -> Map<String, Value> {
        let stop = Some(&options.stop).filter(|stop| !stop.is_empty());
        let set = [
            ("num_ctx", self.window.map(Value::from)),
            ("num_predict", options.max_tokens.map(Value::from)),
            ("temperature", options.temperature.map(Value::from)),
            ("top_p", options.top_p.map(Value::from)),
            ("seed", options.seed.map(Value::from)),
            ("stop", stop.map(|stop| stop.as_slice().into())),
        ];
        let mut all: Map<_, _> = set
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)))
            .collect();
        if let Some(Value::Object(own)) = own {
            all.extend(own);
        }
        all
    }

    fn think(&self, mode: ThinkingMode) -> Value {
        let level = match mode {
            ThinkingMode::Off | ThinkingMode::Budget(0) => return Value::Bool(false),
            ThinkingMode::Low | ThinkingMode::Budget(..4_096) => "low",
            ThinkingMode::Medium | ThinkingMode::Budget(..16_384) => "medium",
            ThinkingMode::High | ThinkingMode::Budget(_) => "high",
            _ => return Value::Bool(true),
        };
        if self.levels {
            level.into()
        } else {
            Value::Bool(true)
        }
    }
}

/// Returns `true` if tools are offered. Ollama cannot force a call.
fn offers_tools(request: &Request) -> Result<bool, ModelError> {
    match &request.tool_choice {
        _ if request.tools.is_empty() => Ok(false),
        ToolChoice::None => Ok(false),
        ToolChoice::Auto => Ok(true),
        _ => {
            let message = "Ollama cannot force a tool call; leave the choice to the model \
                (`ToolChoice::Auto`)";
            Err(ModelError::new(ModelErrorKind::BadRequest, message))
        }
    }
}

/// Converts a time for Ollama. A time beyond its range means forever.
fn keep_alive(time: Duration) -> Value {
    const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);
    if time > CENTURY {
        Value::from(-1)
    } else {
        format!("{}ms", time.as_millis()).into()
    }
}
