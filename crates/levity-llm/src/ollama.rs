//! Ollama's own API.

use std::borrow::Cow;
use std::time::Duration;

use async_trait::async_trait;
use levity_core::{
    ModelCard, ModelError, ModelErrorKind, Options, Request, ThinkingMode, ToolChoice,
};
use serde_json::{Map, Value};

use crate::body::{Body, extra, list};
use crate::http::{Asked, Endpoint, Framing, Remote, Secret, Sink, Wire, provider};

mod decode;
mod embed;
mod encode;
mod errors;
mod schema;
mod tags;

pub use embed::OllamaEmbedder;
pub use tags::OllamaEntry;

/// The name under which data of this protocol rides on messages.
pub(crate) const NAME: &str = "ollama";

/// A model that an Ollama runs, on this machine or another, or in Ollama's cloud.
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
/// Images are sent as bytes; anything else beside text is refused, and so is a request that demands
/// a call, since Ollama leaves that to the model. Without [`with_window`](Self::with_window) Ollama
/// cuts a long conversation at a window of its own, which is a small one.
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
    /// A model of the Ollama on this machine, at `http://127.0.0.1:11434`.
    pub fn new(model: impl Into<String>) -> Self {
        let card = ModelCard::new("ollama", model);
        // The only family that takes a level at the time of writing; it takes nothing else.
        let wire = Ollama {
            levels: card.id.contains("gpt-oss"),
            ..Ollama::default()
        };
        let mut remote = Remote::new(wire, card, Endpoint::new("http://127.0.0.1:11434"));
        remote.rescues = true;
        Self(remote)
    }

    /// A model in Ollama's cloud.
    pub fn cloud(key: impl Into<Secret>, model: impl Into<String>) -> Self {
        Self::new(model)
            .with_key(key)
            .with_endpoint(|_| Endpoint::new("https://ollama.com"))
    }

    /// Sends this key.
    #[must_use]
    pub fn with_key(mut self, key: impl Into<Secret>) -> Self {
        self.0.wire.key = Some(key.into());
        self
    }

    /// Asks for a window of so many tokens, for a request and its reply together (`num_ctx`), and
    /// says so on the card. A larger one takes more memory.
    #[must_use]
    pub fn with_window(mut self, tokens: u64) -> Self {
        self.0.wire.window = Some(tokens);
        self.0.card.window = Some(tokens);
        self
    }

    /// How long the model stays in memory after a reply: 5 minutes unless set. With
    /// [`Duration::ZERO`] it goes at once, with [`Duration::MAX`] it stays.
    #[must_use]
    pub fn with_keep_alive(mut self, time: Duration) -> Self {
        self.0.wire.keep_alive = Some(time);
        self
    }

    /// Says that the model takes a level of thinking: low, medium, high. Models whose name holds
    /// `gpt-oss` are known to; others are only told to think or not to.
    #[must_use]
    pub fn with_thinking_levels(mut self) -> Self {
        self.0.wire.levels = true;
        self
    }

    /// The models that an Ollama has.
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
    /// When no Ollama answers there, or not with a list.
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

    /// Any name will do.
    fn tool_name<'n>(&self, name: &'n str) -> Cow<'n, str> {
        Cow::Borrowed(name)
    }

    fn body(&self, asked: Asked<'_>) -> Result<Vec<u8>, ModelError> {
        let Asked {
            card,
            request,
            stream,
            ..
        } = asked;
        let mut extra = extra(asked);
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
    /// Settings of the runner; those of the user's own come last.
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

/// Whether the model is told of the tools. It cannot be made to call one.
fn offers_tools(request: &Request) -> Result<bool, ModelError> {
    match &request.tool_choice {
        _ if request.tools.is_empty() => Ok(false),
        ToolChoice::None => Ok(false),
        ToolChoice::Auto => Ok(true),
        _ => {
            let message = "Ollama cannot be made to call a tool; leave the choice to the model \
                (`ToolChoice::Auto`)";
            Err(ModelError::new(ModelErrorKind::BadRequest, message))
        }
    }
}

/// A time as Ollama reads it. More than it can count is for ever.
fn keep_alive(time: Duration) -> Value {
    const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);
    if time > CENTURY {
        Value::from(-1)
    } else {
        format!("{}ms", time.as_millis()).into()
    }
}
