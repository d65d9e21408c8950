//! Models behind Anthropic's Messages API.
//!
//! The protocol has four stages, each in its own module:
//!
//! 1. `messages` turns the conversation into alternating turns and `encode` turns one message into
//!    blocks. The JSON of a message is cached with the history, so a long conversation is encoded
//!    once and not once per turn.
//! 2. `body` adds instructions, tools, thinking, options and the marks of the prompt cache.
//! 3. `decode` turns the events of the stream into deltas, and `blocks` assembles the blocks that
//!    span several events.
//! 4. `generation` infers the version of a Claude from its name, because the API rejects settings
//!    that belong to another version instead of ignoring them.
//!
//! Everything that only Anthropic understands (signatures, citations, results of its own tools)
//! travels as [`ProviderState`](levity_core::ProviderState) under [`NAME`] and goes back unchanged.

use async_trait::async_trait;
use levity_core::{Capabilities, ModelCard, ModelError};
use serde_json::Value;

use crate::http::{Endpoint, Framing, Remote, Secret, Sink, Wire, WireRequest, provider};

mod blocks;
mod body;
mod cache_marks;
mod decode;
mod encode;
mod generation;
mod media;
mod messages;
mod schema;
mod thinking;

pub use cache_marks::CacheTtl;
use cache_marks::Marks;
use generation::Generation;

/// The provider name of this protocol's state in messages.
pub(crate) const NAME: &str = "anthropic";

/// A Claude model behind Anthropic's Messages API, or any server that supports it, such as
/// llama.cpp.
///
/// ```
/// use levity_core::Model as _;
/// use levity_llm::AnthropicModel;
///
/// let model = AnthropicModel::new("sk-ant-..", "claude-sonnet-4-5");
/// assert_eq!((&*model.card().provider, &*model.card().id), ("anthropic", "claude-sonnet-4-5"));
///
/// // llama.cpp's server needs no key.
/// let local = AnthropicModel::new("", "qwen3")
///     .with_endpoint(|_| levity_llm::Endpoint::new("http://127.0.0.1:8080"));
/// ```
///
/// # Requests
/// - The API requires a maximum reply length: [`Options::max_tokens`](levity_core::Options),
///   otherwise the card's `max_output`, otherwise 8,192 tokens (4,096 for the first Claude 3) plus
///   the tokens for thinking.
/// - [`Options::thinking`](levity_core::Options): models before 4.6 receive a number of tokens:
///   2,048 for `Low`, 8,192 for `Medium` and `Auto`, 24,576 for `High`, and never less than 1,024.
///   It is limited to three quarters of the maximum reply length; if that leaves fewer than 1,024
///   tokens, thinking is disabled. Later models decide themselves how much to think, with an effort
///   of `low`, `medium` or `high`. A budget below 4,096 tokens is a low effort, and one below
///   16,384 a medium effort. While models think, and always since 4.7, the API accepts neither
///   `temperature` nor `top_p`. levity sends them unchanged, and the API returns an error.
/// - No thinking for Claude 3.7 to 4.5 if they would reject it. That is during tool results of a
///   turn that does not start with a thought of Claude, and if a call is required.
/// - `seed` is not sent, because the API does not support it.
/// - At most four marks for the prompt cache: on the tools, on the instructions, on the last
///   message and at the end of the previous request. A single question without tools has no mark on
///   its message. If you set a `cache_control` yourself, in a field or on a part, levity sets no
///   others.
/// - [Provider fields](levity_core::Options) replace fields of the same name, except for `tools`,
///   which follow the request's own, and `output_config`, which is merged.
/// - Notes from the program within the conversation: as such from Claude 4.8 on, if the API accepts
///   them, otherwise as text of the user.
/// - The schema of the answer, through `output_config`, restricted to the subset that the API
///   enforces, with the rest described in words. A schema with free-form objects, arbitrary values
///   or recursion is described in words in the instructions.
///
/// # Replies
/// Thoughts with their signatures, redacted thoughts, calls of provider tools with their results,
/// and citations are all sent back in their place. Thoughts without a signature are not, because
/// the API rejects them. A reply that ended with `pause_turn` is
/// [`Paused`](levity_core::Finish::Paused). It continues when it is sent back as the last message,
/// which an agent does.
///
/// Use [`Part::Opaque`](levity_core::Part::Opaque) to put provider-specific blocks into a message,
/// such as an uploaded document:
///
/// ```
/// use levity_core::{Message, Part, ProviderState, Role};
///
/// let block = serde_json::json!({
///     "type": "document", "source": {"type": "file", "file_id": "file_011C"},
/// });
/// let parts = [Part::Opaque(ProviderState::new("anthropic", block)), Part::text("Summarise it.")];
/// assert_eq!(Message::new(Role::User, parts).text(), "Summarise it.");
/// ```
///
/// # Errors
/// A request fails before anything is sent, as
/// [`BadRequest`](levity_core::ModelErrorKind::BadRequest), if a message contains media that the
/// API cannot accept: audio, video, an image that is not JPEG, PNG, GIF or WebP, or a text file
/// that is not UTF-8.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use levity_core::{Media, Message, Model as _, ModelErrorKind, Part, Request, Role};
/// use levity_llm::AnthropicModel;
///
/// let model = AnthropicModel::new("sk-ant-..", "claude-sonnet-4-5");
/// let sound = Part::Media(Media::bytes("audio/wav", vec![0_u8; 4]));
/// let request = Request::new().with_message(Message::new(Role::User, [sound]));
/// let error = model.complete(request).await.unwrap_err();
/// assert_eq!(error.kind(), ModelErrorKind::BadRequest);
/// assert!(error.message().contains("`audio/wav`"));
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct AnthropicModel(Remote<Anthropic>);

/// The settings of the wire protocol.
#[derive(Clone, Debug)]
pub(crate) struct Anthropic {
    key: Secret,
    betas: Vec<String>,
    marks: Marks,
    /// The generation, if the model's name does not show it.
    generation: Option<Generation>,
}

impl AnthropicModel {
    /// Creates a model of Anthropic by its name. An empty key is not sent.
    ///
    /// The card contains the capabilities that the name shows: images since Claude 3, thinking
    /// since 3.7, enforced answer schemas since 4.5. The built-in [`ModelList`](crate::ModelList)
    /// adds window and price. Nothing is read from the environment, and the key is checked only by
    /// the server.
    ///
    /// ```
    /// # use levity_core::Model as _;
    /// # use levity_llm::AnthropicModel;
    /// let capabilities = |name: &str| AnthropicModel::new("", name).card().capabilities;
    /// assert!(capabilities("claude-opus-4-5").output_schema);
    /// assert!(!capabilities("claude-3-5-haiku-latest").thinking);
    /// ```
    pub fn new(key: impl Into<Secret>, model: impl Into<String>) -> Self {
        let wire = Anthropic {
            key: key.into(),
            betas: Vec::new(),
            marks: Marks::default(),
            generation: None,
        };
        let mut card = ModelCard::new("anthropic", model);
        card.capabilities = capabilities(&card.id);
        Self(Remote::new(
            wire,
            card,
            Endpoint::new("https://api.anthropic.com"),
        ))
    }

    /// Enables a beta feature by its name in the header `anthropic-beta`. You can call it several
    /// times.
    ///
    /// Several names are sent as one header, separated by commas, in the order of the calls. The
    /// API rejects names that it does not know.
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
    /// #     let reply = r#"{"content": [{"type": "text", "text": "Hi"}]}"#;
    /// #     let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length";
    /// #     write!(socket, "{head}: {}\r\n\r\n{reply}", reply.len()).expect("a reply");
    /// #     let _ = socket.read_to_end(&mut sent);
    /// #     String::from_utf8_lossy(&sent).into_owned()
    /// # });
    /// use levity_core::{Message, Model as _, Request};
    /// use levity_llm::AnthropicModel;
    ///
    /// let model = AnthropicModel::new("sk-ant-..", "claude-sonnet-4-5")
    ///     .with_endpoint(|endpoint| endpoint.with_base(base))
    ///     .without_streaming()
    ///     .with_beta("files-api-2025-04-14")
    ///     .with_beta("context-1m-2025-08-07");
    /// let reply = model.complete(Request::new().with_message(Message::user("Hello"))).await?;
    /// assert_eq!(reply.message.text(), "Hi");
    /// let sent = thread.join().expect("the server");
    /// assert!(sent.contains("anthropic-beta: files-api-2025-04-14,context-1m-2025-08-07"));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_beta(mut self, name: impl Into<String>) -> Self {
        self.0.wire.betas.push(name.into());
        self
    }

    /// Disables marks for the prompt cache.
    ///
    /// A mark makes the API store the request up to that point, which costs more than plain input
    /// tokens the first time and much less on each reuse. Disable the marks for requests that are
    /// never extended.
    ///
    /// ```
    /// use levity_llm::AnthropicModel;
    ///
    /// let model = AnthropicModel::new("", "qwen3").without_cache_marks();
    /// assert_eq!(levity_core::Model::card(&model).id, "qwen3");
    /// ```
    #[must_use]
    pub fn without_cache_marks(mut self) -> Self {
        self.0.wire.marks = Marks::none();
        self
    }

    /// Sets the lifetime of entries in the prompt cache: 5 minutes by default.
    ///
    /// The upper bound on the cost of a request
    /// ([`Model::cost_bound`](levity_core::Model::cost_bound)) includes the higher price of the
    /// long lifetime.
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
    /// #     let reply = r#"{"content": [{"type": "text", "text": "Hi"}]}"#;
    /// #     let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length";
    /// #     write!(socket, "{head}: {}\r\n\r\n{reply}", reply.len()).expect("a reply");
    /// #     let _ = socket.read_to_end(&mut sent);
    /// #     String::from_utf8_lossy(&sent).into_owned()
    /// # });
    /// use levity_core::{Message, Model as _, Request};
    /// use levity_llm::{AnthropicModel, CacheTtl};
    ///
    /// let model = AnthropicModel::new("sk-ant-..", "claude-sonnet-4-5")
    ///     .with_endpoint(|endpoint| endpoint.with_base(base))
    ///     .with_cache_ttl(CacheTtl::OneHour)
    ///     .without_streaming();
    /// let request = Request::new().with_system("Be brief.").with_message(Message::user("Hello"));
    /// model.complete(request).await?;
    /// assert!(thread.join().expect("the server").contains(r#""ttl":"1h""#));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_cache_ttl(mut self, ttl: CacheTtl) -> Self {
        self.0.wire.marks = Marks::with_ttl(ttl);
        self
    }

    /// Sets the Claude generation, such as 4.6, if the model's name does not show it. It determines
    /// the thinking settings and the support for notes within the conversation. A model with an
    /// unknown generation is treated like one before 4.6.
    ///
    /// A name shows the generation if it contains `claude` and a number, such as
    /// `claude-opus-4-1-20250805` or `anthropic/claude-sonnet-4.5`. Aliases of a gateway, such as
    /// `company-large`, do not.
    ///
    /// ```
    /// # use levity_core::Model as _;
    /// use levity_llm::AnthropicModel;
    ///
    /// let model = AnthropicModel::new("key", "company-large").with_generation(4, 6);
    /// assert_eq!(model.card().id, "company-large");
    /// ```
    #[must_use]
    pub fn with_generation(mut self, major: u32, minor: u32) -> Self {
        self.0.wire.generation = Some(Generation(major, minor));
        self
    }
}

provider!(AnthropicModel);

/// Returns the capabilities that the name shows: answer schemas are enforced since 4.5, and by Opus
/// 4.1.
///
/// Unknown names get no capability, so that levity does not offer images to a model that would
/// reject the request. [`with_card`](AnthropicModel::with_card) replaces the guess.
fn capabilities(id: &str) -> Capabilities {
    let generation = Generation::of(id);
    let since = |major, minor| generation.is_some_and(|known| known >= Generation(major, minor));
    let mut capabilities = Capabilities::default();
    capabilities.images = since(3, 0);
    capabilities.thinking = since(3, 7);
    capabilities.output_schema = since(4, 5) || (since(4, 1) && id.contains("opus"));
    capabilities
}

impl Anthropic {
    /// Returns the generation that the user set, otherwise the one in the model's name, otherwise
    /// [`Generation::UNKNOWN`].
    fn generation(&self, card: &ModelCard) -> Generation {
        self.generation
            .or_else(|| Generation::of(&card.id))
            .unwrap_or(Generation::UNKNOWN)
    }
}

#[async_trait]
impl Wire for Anthropic {
    const FRAMING: Framing = Framing::Sse;
    type Decoder = decode::Decoder;

    fn path(&self, _: &ModelCard, _: bool) -> String {
        "/v1/messages".to_owned()
    }

    async fn headers(&self) -> Result<Vec<(&'static str, Secret)>, ModelError> {
        let mut headers = vec![("anthropic-version", Secret::new("2023-06-01"))];
        if !self.key.is_empty() {
            headers.push(("x-api-key", self.key.clone()));
        }
        if !self.betas.is_empty() {
            headers.push(("anthropic-beta", Secret::new(self.betas.join(","))));
        }
        Ok(headers)
    }

    fn account(&self) -> Option<&str> {
        Some(self.key.expose()).filter(|key| !key.is_empty())
    }

    fn body(&self, wire_request: WireRequest<'_>) -> Result<Vec<u8>, ModelError> {
        body::write(self, wire_request)
    }

    fn caches_for_hour(&self) -> bool {
        self.marks.caches_for_hour()
    }

    fn decoder(&self) -> Self::Decoder {
        decode::Decoder::default()
    }

    fn whole(&self, reply: &Value, sink: &mut Sink) -> Result<(), ModelError> {
        decode::whole(reply, sink)
    }
}
