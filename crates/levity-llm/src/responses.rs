//! OpenAI's Responses API, and the servers that support it.
//!
//! A conversation is a list of items (messages, reasoning, calls, results), not of messages.
//! Reasoning items must be sent back next to the calls that followed from them, encrypted or by
//! their id. `encode` writes items, `decode` reads them as deltas or complete, and `fields` merges
//! the user's fields into the body.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{
    Capabilities, ModelCard, ModelError, ModelErrorKind, OutputSchema, Request, ToolChoice,
    ToolSpec,
};
use serde_json::{Value, json};

use crate::body::list;
use crate::effort;
use crate::http::{Endpoint, Framing, Remote, Secret, Sink, Wire, WireRequest, provider};
use crate::schema::answer;
use crate::schema::nulls::Nulls;
use crate::schema::tool_json::{ToolJson, ToolJsonCache};

mod decode;
mod encode;
mod fields;

use fields::Fields;

/// The provider name of this protocol's state in messages.
pub(crate) const NAME: &str = "openai_responses";

/// The field of a message with its thoughts as the end of the reply repeated them.
const LATER_THOUGHTS: &str = "later_thoughts";

/// The type of an item that is an image.
const IMAGE: &str = "image_generation_call";

/// A model behind OpenAI's Responses API, or another server that supports it: Azure, xAI,
/// OpenRouter, Bedrock and others.
///
/// ```
/// use levity_core::Model as _;
/// use levity_llm::OpenAiModel;
///
/// let model = OpenAiModel::new("sk-…", "gpt-5.2")
///     .with_endpoint(|endpoint| endpoint.with_header("OpenAI-Project", "proj_1"));
/// assert_eq!(model.card().id, "gpt-5.2");
/// assert!(model.card().capabilities.thinking);
/// ```
///
/// The model's thoughts are sent back to it together with the calls that followed from them. By
/// default nothing is stored at the provider, and thoughts are transferred in encrypted form; see
/// [`stored`](Self::stored).
///
/// The schemas of tools and answers are enforced ("strict mode") if that does not change which
/// values they accept. That excludes schemas with a free-form map, and answers with optional
/// properties. An optional property of a tool becomes nullable, and such nulls are removed from the
/// arguments again. The description states constraints that strict mode lacks, such as the length
/// of a text. See [`without_strict`](Self::without_strict).
///
/// # Tools of the provider
/// Use [`Options::extra`](levity_core::Options) to pass tools that run at the provider, as `tools`.
/// Their results are in the reply as [`Part::Opaque`](levity_core::Part::Opaque), and are sent back
/// unchanged. Searches and code sessions are counted in the usage, because they have fees.
///
/// ```
/// use levity_core::{Message, Options, Request};
/// use serde_json::json;
///
/// let mut options = Options::new();
/// options.extra.insert("tools".into(), json!([{"type": "web_search"}]));
/// let question = Message::user("Which Rust version is current?");
/// let request = Request::new().with_message(question).with_options(options);
/// assert!(request.options.extra.contains_key("tools"));
/// ```
///
/// # Errors
/// The API has neither `stop` nor `seed`, and accepts no audio and no video. Such requests fail
/// before they are sent; use [`ChatModel`](crate::ChatModel) for them.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # use levity_core::{Message, Model as _, ModelErrorKind, Options, Request};
/// # use levity_llm::OpenAiModel;
/// let mut options = Options::new();
/// options.seed = Some(7);
/// let request = Request::new().with_message(Message::user("Hello")).with_options(options);
/// let error = OpenAiModel::new("sk-..", "gpt-5.2").complete(request).await.unwrap_err();
/// assert_eq!(error.kind(), ModelErrorKind::BadRequest);
/// assert!(error.message().contains("`seed`"));
/// # }
/// ```
///
/// # Streaming
/// ```
/// # use std::io::{Read as _, Write as _};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = std::net::TcpListener::bind("127.0.0.1:0")?;
/// # let base = format!("http://{}/v1", server.local_addr()?);
/// # std::thread::spawn(move || {
/// #     let (mut socket, _) = server.accept().expect("a connection");
/// #     let _ = socket.read(&mut [0; 8_192]);
/// #     let events = [r#"{"type": "response.output_text.delta", "delta": "Fi"}"#,
/// #         r#"{"type": "response.output_text.delta", "delta": "ve."}"#,
/// #         r#"{"type": "response.completed", "response": {"status": "completed"}}"#];
/// #     let body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
/// #     let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length";
/// #     let _ = write!(socket, "{head}: {}\r\n\r\n{body}", body.len());
/// #     let _ = socket.read_to_end(&mut Vec::new());
/// # });
/// use levity_core::{Delta, Message, Model as _, Request};
/// use levity_llm::OpenAiModel;
///
/// let model = OpenAiModel::compatible(base, "qwen3");
/// let request = Request::new().with_message(Message::user("What is 2 + 3?"));
/// let mut deltas = model.stream(request).await?;
/// let mut text = String::new();
/// while let Some(delta) = deltas.next().await {
///     if let Delta::Text(more) = delta? {
///         text.push_str(&more);
///     }
/// }
/// assert_eq!(text, "Five.");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct OpenAiModel(Remote<Responses>);

/// The differences between servers, and the user's settings.
#[derive(Clone, Debug)]
pub(crate) struct Responses {
    key: Option<Secret>,
    /// True if the server is OpenAI's own.
    own: bool,
    /// True if the provider stores replies, so ids suffice to refer to them.
    stored: bool,
    /// True if summaries of thoughts are requested.
    summaries: bool,
    tool_json: ToolJsonCache,
}

impl OpenAiModel {
    /// Creates a model of OpenAI.
    pub fn new(key: impl Into<Secret>, model: impl Into<String>) -> Self {
        let (model, endpoint) = (model.into(), Endpoint::new("https://api.openai.com/v1"));
        let wire = Responses::new(Some(key.into()), true, ToolJsonCache::openai(&model));
        Self(Remote::new(wire, card("openai", model, true), endpoint))
    }

    /// Creates a model of a compatible server; the address is the part before `/responses`.
    ///
    /// Its schemas are not enforced unless you use [`with_strict`](Self::with_strict). If the model
    /// thinks and its name does not show it, declare that with [`with_card`](Self::with_card).
    /// Otherwise its thoughts are neither requested nor retained over turns.
    ///
    /// ```
    /// # use levity_core::Model as _;
    /// # use levity_llm::OpenAiModel;
    /// let model = OpenAiModel::compatible("http://127.0.0.1:8080/v1", "qwen3").with_key("key");
    /// assert_eq!(model.card().provider, "compatible");
    /// ```
    pub fn compatible(base_url: impl AsRef<str>, model: impl Into<String>) -> Self {
        let card = card("compatible", model.into(), false);
        let wire = Responses::new(None, false, ToolJsonCache::new(false));
        let mut remote = Remote::new(wire, card, Endpoint::new(base_url));
        remote.parses_text_calls = true;
        Self(remote)
    }

    /// Sends this key with every request.
    ///
    /// The key is sent as a bearer token.
    #[must_use]
    pub fn with_key(mut self, key: impl Into<Secret>) -> Self {
        self.0.wire.key = Some(key.into());
        self
    }

    /// Lets the provider store replies, so that thoughts are sent back by their ids.
    ///
    /// The provider keeps the content of each conversation then; its own rules decide for how long.
    /// Requests become smaller, because encrypted thoughts are not repeated.
    ///
    /// ```
    /// # use levity_core::Model as _;
    /// # use levity_llm::OpenAiModel;
    /// let model = OpenAiModel::new("sk-..", "gpt-5.2").stored().with_summaries();
    /// assert_eq!(model.card().provider, "openai");
    /// ```
    #[must_use]
    pub fn stored(mut self) -> Self {
        self.0.wire.stored = true;
        self
    }

    /// Requests summaries of the model's thoughts. OpenAI provides them only to verified
    /// organisations.
    ///
    /// They arrive as thinking deltas. Models that do not think get no such field.
    #[must_use]
    pub fn with_summaries(mut self) -> Self {
        self.0.wire.summaries = true;
        self
    }

    /// Enforces schemas wherever possible.
    ///
    /// This is the default of [`new`](Self::new), except for fine-tuned models.
    #[must_use]
    pub fn with_strict(mut self) -> Self {
        self.0.wire.tool_json = ToolJsonCache::new(true);
        self
    }

    /// Sends schemas unchanged and does not enforce them.
    ///
    /// The runtime still validates arguments and answers against the schema.
    ///
    /// ```
    /// # use levity_core::Model as _;
    /// # use levity_llm::OpenAiModel;
    /// let model = OpenAiModel::new("sk-..", "gpt-5.2").without_strict();
    /// assert_eq!(model.card().id, "gpt-5.2");
    /// ```
    #[must_use]
    pub fn without_strict(mut self) -> Self {
        self.0.wire.tool_json = ToolJsonCache::new(false);
        self
    }
}

provider!(OpenAiModel);

/// Creates a card. Images are claimed for every model, and thinking by name.
fn card(provider: &str, model: String, own: bool) -> ModelCard {
    let mut capabilities = Capabilities::default();
    capabilities.images = true;
    capabilities.thinking = effort::thinks(&model, own);
    ModelCard::new(provider, model).with_capabilities(capabilities)
}

#[async_trait]
impl Wire for Responses {
    const FRAMING: Framing = Framing::Sse;
    type Decoder = decode::Decoder;

    fn path(&self, _: &ModelCard, _: bool) -> String {
        "/responses".to_owned()
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

    fn account(&self) -> Option<&str> {
        self.key.as_ref().map(Secret::expose)
    }

    fn body(&self, wire_request: WireRequest<'_>) -> Result<Vec<u8>, ModelError> {
        let WireRequest {
            card,
            request,
            stream,
            endpoint,
            origin,
        } = wire_request;
        check_supported(request)?;
        let request = if self.own {
            answer::of_object(request)
        } else {
            Cow::Borrowed(request)
        };
        let request = &*request;
        let mut fields = Fields::new(endpoint.extra(), &request.options.extra);
        fields.put("model", json!(card.id));
        if let Some(system) = &request.system {
            fields.put("instructions", json!(&**system));
        }
        fields.raw("input", |bytes| {
            list(bytes, |list| {
                encode::input(request, self.stored, origin, list);
            });
        });
        self.tools(&mut fields, request);
        if let Some(output) = &request.output {
            fields.put("text", self.format(output));
        }
        self.options(&mut fields, card, endpoint.base(), request);
        if stream {
            fields.put("stream", json!(true));
        }
        Ok(fields.finish())
    }

    fn nulls(&self, request: &Request) -> Option<Arc<Nulls>> {
        self.tool_json_of(request).nulls.clone()
    }

    fn decoder(&self) -> Self::Decoder {
        decode::Decoder::default()
    }

    fn whole(&self, reply: &Value, sink: &mut Sink) -> Result<(), ModelError> {
        decode::whole(reply, sink)
    }
}

impl Responses {
    fn new(key: Option<Secret>, own: bool, tool_json: ToolJsonCache) -> Self {
        Self {
            key,
            own,
            stored: false,
            summaries: false,
            tool_json,
        }
    }

    /// Returns the tools as JSON, cached per set of tools.
    fn tool_json_of(&self, request: &Request) -> Arc<ToolJson> {
        self.tool_json
            .tools(&request.tools, |spec: &ToolSpec, schema, strict| {
                json!({
                    "type": "function",
                    "name": spec.name,
                    "description": spec.description,
                    "parameters": schema,
                    "strict": strict,
                })
            })
    }

    /// Writes the tools, followed by those that run at the provider.
    fn tools(&self, fields: &mut Fields, request: &Request) {
        let hosted = fields.take("tools").unwrap_or_default();
        if request.tools.is_empty() && hosted.as_array().is_none_or(Vec::is_empty) {
            return;
        }
        let tool_json = self.tool_json_of(request);
        fields.raw("tools", |bytes| {
            list(bytes, |list| {
                list.add(&tool_json.json);
                hosted
                    .as_array()
                    .into_iter()
                    .flatten()
                    .for_each(|tool| list.item(tool));
            });
        });
        match &request.tool_choice {
            ToolChoice::None => fields.put("tool_choice", json!("none")),
            ToolChoice::Required => fields.put("tool_choice", json!("required")),
            ToolChoice::Tool(name) => {
                fields.put("tool_choice", json!({"type": "function", "name": name}));
            }
            _ => {}
        }
    }

    /// Returns the schema of the answer, enforced if possible.
    fn format(&self, output: &Arc<OutputSchema>) -> Value {
        let strict = self.tool_json.output(output);
        let schema = strict.as_ref().as_ref().unwrap_or(&output.schema);
        json!({"format": {
            "type": "json_schema",
            "name": output.name,
            "schema": schema,
            "strict": strict.is_some(),
        }})
    }

    /// Writes sampling options, reasoning and storage. Encrypted thoughts are requested from models
    /// that think, unless replies are stored.
    fn options(&self, fields: &mut Fields, card: &ModelCard, base: &str, request: &Request) {
        let options = &request.options;
        fields.optional("temperature", options.temperature);
        fields.optional("top_p", options.top_p);
        fields.optional("max_output_tokens", options.max_tokens);
        let thinks = card.capabilities.thinking || effort::thinks(&card.id, self.own);
        let effort = options
            .thinking
            .and_then(|mode| effort::effort(base, &card.id, thinks || !self.own, mode));
        let mut reasoning = serde_json::Map::new();
        reasoning.extend(effort.map(|effort| ("effort".to_owned(), effort.into())));
        if self.summaries && thinks {
            reasoning.insert("summary".to_owned(), "auto".into());
        }
        if !reasoning.is_empty() {
            fields.put("reasoning", Value::Object(reasoning));
        }
        fields.put("store", json!(self.stored));
        // A model that does not think rejects this field.
        if !self.stored && (thinks || effort.is_some()) {
            fields.put("include", json!(["reasoning.encrypted_content"]));
        }
    }
}

/// Rejects options and media that the protocol does not support.
///
/// # Errors
/// Returns `BadRequest` that names the option or the media type.
fn check_supported(request: &Request) -> Result<(), ModelError> {
    let options = &request.options;
    let unsupported = |what: &str| {
        let message =
            format!("OpenAI's Responses API does not accept {what}; omit it, or use `ChatModel`");
        Err(ModelError::new(ModelErrorKind::BadRequest, message))
    };
    if !options.stop.is_empty() {
        return unsupported("the option `stop`");
    }
    if options.seed.is_some() {
        return unsupported("the option `seed`");
    }
    match encode::unsupported_media(request) {
        Some(mime) => unsupported(&format!("media of type `{mime}`")),
        None => Ok(()),
    }
}
