//! Models behind Ollama's native API.
//!
//! Ollama also speaks OpenAI's protocol, but only its own API sets the window, the time in memory
//! and the thinking of a model. Streams are JSON Lines instead of server-sent events. There is no
//! state to send back, so conversations move freely between Ollama and other providers.

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
///
/// # Errors
/// A server that does not run and a model that is not installed are the usual errors. Both name the
/// command that fixes them: `ollama serve` and `ollama pull`. Requests that Ollama cannot express
/// fail before they are sent:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use std::sync::Arc;
/// use levity_core::{Message, Model as _, ModelErrorKind, Request, ToolChoice, ToolSpec};
/// use levity_llm::OllamaModel;
///
/// let tools = vec![Arc::new(ToolSpec::new("now", "Returns the time."))];
/// let mut request = Request::new().with_message(Message::user("Hello")).with_tools(tools);
/// request.tool_choice = ToolChoice::Required;
/// let error = OllamaModel::new("qwen3:4b").complete(request).await.unwrap_err();
/// assert_eq!(error.kind(), ModelErrorKind::BadRequest);
/// assert_eq!(error.model(), Some("ollama:qwen3:4b"));
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct OllamaModel(Remote<Ollama>);

/// The settings of the protocol.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ollama {
    key: Option<Secret>,
    /// The window to request; the server's default if unset.
    window: Option<u64>,
    keep_alive: Option<Duration>,
    /// True if the model takes a thinking level instead of on and off.
    levels: bool,
}

impl OllamaModel {
    /// Creates a model of the Ollama server on this machine, at `http://127.0.0.1:11434`.
    ///
    /// Nothing is checked or started here: the first call fails if the server does not run. Use
    /// [`list`](Self::list) to see which models a server has.
    ///
    /// ```
    /// # use levity_core::Model as _;
    /// # use levity_llm::OllamaModel;
    /// let model = OllamaModel::new("qwen3:4b");
    /// assert_eq!((&*model.card().provider, &*model.card().id), ("ollama", "qwen3:4b"));
    /// ```
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
    ///
    /// ```
    /// # use levity_core::Model as _;
    /// # use levity_llm::OllamaModel;
    /// let model = OllamaModel::cloud("my-key", "gpt-oss:120b");
    /// assert_eq!(model.card().id, "gpt-oss:120b");
    /// assert!(!format!("{model:?}").contains("my-key"));
    /// ```
    pub fn cloud(key: impl Into<Secret>, model: impl Into<String>) -> Self {
        Self::new(model)
            .with_key(key)
            .with_endpoint(|_| Endpoint::new("https://ollama.com"))
    }

    /// Sends this key with every request.
    ///
    /// The key is sent as a bearer token. A local server needs none.
    #[must_use]
    pub fn with_key(mut self, key: impl Into<Secret>) -> Self {
        self.0.wire.key = Some(key.into());
        self
    }

    /// Requests a window of this many tokens, for a request and its reply together (`num_ctx`), and
    /// sets it on the card. A larger window needs more memory.
    ///
    /// An agent compacts its conversation before it exceeds the window on the card. Without a
    /// window, Ollama truncates it without an error.
    #[must_use]
    pub fn with_window(mut self, tokens: u64) -> Self {
        self.0.wire.window = Some(tokens);
        self.0.card.window = Some(tokens);
        self
    }

    /// Sets how long the model stays in memory after a reply: 5 minutes by default. With
    /// [`Duration::ZERO`] it is unloaded immediately, with [`Duration::MAX`] it stays.
    ///
    /// ```
    /// # use std::io::{Read as _, Write as _};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// # let base = format!("http://{}", server.local_addr()?);
    /// # let thread = std::thread::spawn(move || {
    /// #     let (mut socket, _) = server.accept().expect("a connection");
    /// #     let mut sent = vec![0; 16_384];
    /// #     let length = socket.read(&mut sent).expect("a request");
    /// #     sent.truncate(length);
    /// #     let reply = r#"{"message": {"content": "Hi"}, "done": true}"#;
    /// #     let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length";
    /// #     write!(socket, "{head}: {}\r\n\r\n{reply}", reply.len()).expect("a reply");
    /// #     let _ = socket.read_to_end(&mut sent);
    /// #     String::from_utf8_lossy(&sent).into_owned()
    /// # });
    /// use std::time::Duration;
    /// use levity_core::{Message, Model as _, Request};
    /// use levity_llm::{Endpoint, OllamaModel};
    ///
    /// // The model stays loaded until the server stops.
    /// let model = OllamaModel::new("qwen3:4b")
    ///     .with_endpoint(|_| Endpoint::new(base))
    ///     .with_keep_alive(Duration::MAX)
    ///     .without_streaming();
    /// model.complete(Request::new().with_message(Message::user("Hello"))).await?;
    /// assert!(thread.join().expect("the server").contains(r#""keep_alive":-1"#));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_keep_alive(mut self, time: Duration) -> Self {
        self.0.wire.keep_alive = Some(time);
        self
    }

    /// Declares that the model supports thinking levels: low, medium, high. Models whose name
    /// contains `gpt-oss` are known to; for others, thinking is only enabled or disabled.
    ///
    /// A budget below 4,096 tokens is `low`, one below 16,384 `medium` and any other `high`.
    ///
    /// ```
    /// # use levity_core::Model as _;
    /// # use levity_llm::OllamaModel;
    /// let model = OllamaModel::new("my-model").with_thinking_levels();
    /// assert_eq!(model.card().id, "my-model");
    /// ```
    #[must_use]
    pub fn with_thinking_levels(mut self) -> Self {
        self.0.wire.levels = true;
        self
    }

    /// Lists the models that an Ollama server has.
    ///
    /// ```
    /// # use std::io::{Read as _, Write as _};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// # let address = format!("http://{}", server.local_addr()?);
    /// # std::thread::spawn(move || {
    /// #     let (mut socket, _) = server.accept().expect("a connection");
    /// #     let _ = socket.read(&mut [0; 8_192]);
    /// #     let reply = r#"{"models": [{"name": "qwen3:4b", "size": 2600000000}]}"#;
    /// #     let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length";
    /// #     let _ = write!(socket, "{head}: {}\r\n\r\n{reply}", reply.len());
    /// #     let _ = socket.read_to_end(&mut Vec::new());
    /// # });
    /// use levity_llm::{Endpoint, OllamaModel};
    ///
    /// // A server on this machine listens on http://127.0.0.1:11434.
    /// let models = OllamaModel::list(&Endpoint::new(address)).await?;
    /// assert_eq!(models[0].name, "qwen3:4b");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns an error if no Ollama server responds, or its reply is not a list. The message for a
    /// server that does not run names `ollama serve`.
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

    /// Returns the field `think`: a level if the model has levels, otherwise on or off.
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
///
/// # Errors
/// Returns `BadRequest` if a call is required, with the way out.
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
///
/// Times are sent in milliseconds, such as `"1800000ms"`; -1 is Ollama's word for forever.
fn keep_alive(time: Duration) -> Value {
    const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);
    if time > CENTURY {
        Value::from(-1)
    } else {
        format!("{}ms", time.as_millis()).into()
    }
}
