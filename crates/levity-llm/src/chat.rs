//! OpenAI's Chat Completions API, and the many servers that support it in part.
//!
//! The protocol is the lowest common denominator of model servers, and few of them implement it
//! exactly. The module therefore sends as little as possible (plain strings instead of lists, no
//! field that is not needed) and accepts as much as possible. Differences that a server cannot
//! reveal by its reply are a [`Dialect`] or a setting of [`ChatModel`].
//!
//! `encode` and `media` write messages, `chunk`, `number`, `lenient_list` and `usage` parse a
//! reply, `calls` assembles tool calls and `decode` turns all of it into deltas. `embed` is the
//! embedding API of the same servers.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{Finish, ModelCard, ModelError, OutputSchema, Request, ToolChoice};
use serde_json::{Map, Value, json};

use crate::body::{Body, extra, list};
use crate::effort;
use crate::http::{
    Decode as _, Endpoint, Framing, Remote, Secret, Sink, Wire, WireRequest, provider,
};
use crate::schema::answer;
use crate::schema::nulls::Nulls;
use crate::schema::tool_json::ToolJsonCache;

mod calls;
mod chunk;
mod decode;
mod embed;
mod encode;
mod lenient_list;
mod media;
mod number;
mod usage;

pub use embed::OpenAiEmbedder;
use encode::Target;

/// The provider name of this protocol's state in messages.
pub(crate) const NAME: &str = "openai_chat";

/// The type of a call whose input is free text.
const CUSTOM: &str = "custom";

/// A model behind OpenAI's Chat Completions API, or any server that supports it: llama.cpp, vLLM,
/// LM Studio, Groq, Mistral, DeepSeek, OpenRouter, xAI, Together and others.
///
/// Replies are parsed leniently. Fields may be missing or unknown, calls may lack an index or id,
/// and arguments may be objects. Token counts and reasoning may have various names.
///
/// ```
/// use levity_core::Model as _;
/// use levity_llm::ChatModel;
///
/// let model = ChatModel::compatible("http://127.0.0.1:8080/v1", "qwen3");
/// assert_eq!(model.card().id, "qwen3");
/// ```
///
/// A model's thoughts are sent back under their original name, which some servers require after
/// tool calls. Use a [`Part::Opaque`] of the provider `openai_chat` in a user message to send parts
/// of the protocol that levity does not model. Use [`Options::extra`](levity_core::Options::extra)
/// to send fields of the body. Tools in it, such as custom ones, follow the tools of the request.
///
/// # A whole call
/// The example answers itself, as a server on this machine would:
///
/// ```
/// # use std::io::{Read as _, Write as _};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = std::net::TcpListener::bind("127.0.0.1:0")?;
/// # let base = format!("http://{}/v1", server.local_addr()?);
/// # std::thread::spawn(move || {
/// #     let (mut socket, _) = server.accept().expect("a connection");
/// #     let _ = socket.read(&mut [0; 8_192]);
/// #     let reply = r#"{"choices": [{"message": {"content": "Paris"}, "finish_reason": "stop"}],
/// #         "usage": {"prompt_tokens": 9, "completion_tokens": 1}}"#;
/// #     let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length";
/// #     let _ = write!(socket, "{head}: {}\r\n\r\n{reply}", reply.len());
/// #     let _ = socket.read_to_end(&mut Vec::new());
/// # });
/// use levity_core::{Finish, Message, Model as _, Request};
/// use levity_llm::ChatModel;
///
/// let model = ChatModel::compatible(base, "qwen3").without_streaming();
/// let question = Message::user("What is the capital of France?");
/// let reply = model.complete(Request::new().with_message(question)).await?;
/// assert_eq!((&*reply.message.text(), &reply.finish), ("Paris", &Finish::Stop));
/// assert_eq!(reply.usage.input, Some(9));
/// # Ok(())
/// # }
/// ```
///
/// # Limits
/// A reply may have 64 MiB, a streamed one 512 MiB, and one event 32 MiB. Beyond that the call
/// fails as [`Malformed`](levity_core::ModelErrorKind::Malformed). Time limits are those of the
/// [`Endpoint`].
///
/// [`Part::Opaque`]: levity_core::Part::Opaque
#[derive(Clone, Debug)]
pub struct ChatModel(Remote<Chat>);

/// The settings of the protocol: how to authenticate, and how the server deviates.
#[derive(Clone, Debug)]
pub(crate) struct Chat {
    key: Option<Secret>,
    dialect: Dialect,
    /// True if the key has a dedicated header, as Azure requires.
    bare_key: bool,
    /// True if thoughts are parsed from the text.
    tags: bool,
    /// The cached JSON of tools and answers.
    tool_json: ToolJsonCache,
}

/// The differences between servers.
///
/// The dialect is part of the cache key of encoded messages, because it changes their form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// OpenAI's own dialect, which has no thoughts in messages and counts them toward the reply
    /// limit.
    OpenAi,
    /// The dialect of all other servers.
    Compatible,
    /// The same dialect, without thoughts in messages.
    WithoutThoughts,
}

impl Dialect {
    /// Returns the cache key for messages that are encoded in this dialect.
    fn wire(self) -> &'static str {
        match self {
            Self::OpenAi => "openai_chat, openai",
            Self::Compatible => "openai_chat, compatible",
            Self::WithoutThoughts => "openai_chat, compatible, without thoughts",
        }
    }

    /// Returns `true` if the model's thoughts are sent back to it.
    fn returns_thoughts(self) -> bool {
        self == Self::Compatible
    }

    /// Returns the field for the maximum reply length.
    fn max_tokens(self) -> &'static str {
        if self == Self::OpenAi {
            "max_completion_tokens"
        } else {
            "max_tokens"
        }
    }
}

/// The location of thoughts in a reply.
///
/// The state of a thought stores the [name](Self::name) of its field, so that the thought goes back
/// the same way. The names are part of stored histories and must not change.
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

    /// Returns the field that a stored state names; `None` for unknown names of later versions.
    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.name() == name)
    }
}

impl Chat {
    fn new(dialect: Dialect, tool_json: ToolJsonCache) -> Self {
        Self {
            key: None,
            dialect,
            bare_key: false,
            tags: false,
            tool_json,
        }
    }

    /// Creates the settings of a compatible server without a key.
    pub(crate) fn compatible() -> Self {
        Self::new(Dialect::Compatible, ToolJsonCache::new(false))
    }
}

impl ChatModel {
    /// Creates a model. Servers of third-party models also parse [calls in
    /// text](Self::with_text_calls).
    fn new(provider: &str, endpoint: Endpoint, model: impl Into<String>, dialect: Dialect) -> Self {
        let model = model.into();
        let tool_json = if dialect == Dialect::OpenAi {
            ToolJsonCache::openai(&model)
        } else {
            ToolJsonCache::new(false)
        };
        let mut remote = Remote::new(
            Chat::new(dialect, tool_json),
            ModelCard::new(provider, model),
            endpoint,
        );
        remote.parses_text_calls = dialect != Dialect::OpenAi;
        Self(remote)
    }

    /// Creates a model of OpenAI.
    ///
    /// Prefer [`OpenAiModel`](crate::OpenAiModel) for models that think: this API does not return
    /// their thoughts, so they are lost after each tool call.
    ///
    /// ```
    /// # use levity_core::Model as _;
    /// # use levity_llm::ChatModel;
    /// let model = ChatModel::openai("sk-..", "gpt-4o-mini");
    /// assert_eq!((&*model.card().provider, &*model.card().id), ("openai", "gpt-4o-mini"));
    /// assert!(!format!("{model:?}").contains("sk-"));
    /// ```
    pub fn openai(key: impl Into<Secret>, model: impl Into<String>) -> Self {
        let endpoint = Endpoint::new("https://api.openai.com/v1");
        Self::new("openai", endpoint, model, Dialect::OpenAi).with_key(key)
    }

    /// Creates an OpenAI model that Azure serves under a deployment name. The address is that of
    /// the resource: `https://NAME.openai.azure.com`.
    ///
    /// The key is sent as `api-key`, not as a bearer token. The deployment name decides on features
    /// that levity infers from names, so name the deployment after its model or set
    /// [`with_card`](Self::with_card).
    ///
    /// ```
    /// # use levity_core::Model as _;
    /// # use levity_llm::ChatModel;
    /// let model = ChatModel::azure("https://my-team.openai.azure.com/", "key", "gpt-4o");
    /// assert_eq!(model.card().provider, "azure");
    /// ```
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

    /// Creates a model of a compatible server; the address is the part before `/chat/completions`.
    ///
    /// The address usually ends with `/v1`. It may contain a query, such as `?api-version=1`, which
    /// each request repeats. No key is sent unless you set [`with_key`](Self::with_key).
    pub fn compatible(base_url: impl AsRef<str>, model: impl Into<String>) -> Self {
        Self::new(
            "compatible",
            Endpoint::new(base_url),
            model,
            Dialect::Compatible,
        )
    }

    /// Sends this key with every request.
    ///
    /// An `authorization` header that you set with [`Endpoint::with_header`] replaces it.
    ///
    /// ```
    /// # use levity_llm::ChatModel;
    /// let model = ChatModel::compatible("https://api.groq.com/openai/v1", "llama-3.3-70b")
    ///     .with_key("gsk_..");
    /// assert!(!format!("{model:?}").contains("gsk_"));
    /// ```
    #[must_use]
    pub fn with_key(mut self, key: impl Into<Secret>) -> Self {
        self.0.wire.key = Some(key.into());
        self
    }

    /// Enforces the schemas of tools and answers ("strict mode") if that does not change which
    /// values they accept. This is the default for OpenAI's own models, except fine-tuned ones.
    ///
    /// An optional property of a tool then becomes nullable, and such nulls are removed from the
    /// arguments again. The description states constraints that strict mode lacks.
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
    /// #     let reply = r#"{"choices": [{"message": {"content": "Hi"}}]}"#;
    /// #     let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length";
    /// #     write!(socket, "{head}: {}\r\n\r\n{reply}", reply.len()).expect("a reply");
    /// #     let _ = socket.read_to_end(&mut sent);
    /// #     String::from_utf8_lossy(&sent).into_owned()
    /// # });
    /// use std::sync::Arc;
    /// use levity_core::{Message, Model as _, Request, ToolSpec};
    /// use levity_llm::ChatModel;
    /// use serde_json::json;
    ///
    /// // For a server that enforces schemas, such as vLLM.
    /// let model = ChatModel::compatible(base, "qwen3").with_strict().without_streaming();
    /// let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    /// let tool = ToolSpec::new("weather", "Returns the weather.").with_input(schema);
    /// let request = Request::new().with_message(Message::user("Hello"));
    /// model.complete(request.with_tools(vec![Arc::new(tool)])).await?;
    /// let sent = thread.join().expect("the server");
    /// assert!(sent.contains(r#""strict":true"#) && sent.contains(r#""type":["string","null"]"#));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_strict(mut self) -> Self {
        self.0.wire.tool_json = ToolJsonCache::new(true);
        self
    }

    /// Sends schemas unchanged and does not enforce them.
    ///
    /// Use it if a tool is called with worse arguments in strict mode, or for a server that rejects
    /// the field `strict`.
    #[must_use]
    pub fn without_strict(mut self) -> Self {
        self.0.wire.tool_json = ToolJsonCache::new(false);
        self
    }

    /// Does not send thoughts back, for servers such as Groq and Mistral that reject those of
    /// another server.
    ///
    /// OpenAI's own dialect never sends thoughts, so the setting changes nothing there.
    #[must_use]
    pub fn without_thoughts(mut self) -> Self {
        if self.0.wire.dialect == Dialect::Compatible {
            self.0.wire.dialect = Dialect::WithoutThoughts;
        }
        self
    }

    /// Treats text between `<think>` and `</think>` at the start of a reply as thoughts. By default
    /// it stays text, because a server that supports its model separates thoughts itself.
    ///
    /// The text after the thoughts is the answer. A reply that ends within its thoughts has no
    /// answer.
    ///
    /// ```
    /// # use std::io::{Read as _, Write as _};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// # let base = format!("http://{}/v1", server.local_addr()?);
    /// # std::thread::spawn(move || {
    /// #     let (mut socket, _) = server.accept().expect("a connection");
    /// #     let _ = socket.read(&mut [0; 8_192]);
    /// #     let chunks = [r#"{"choices": [{"delta": {"content": "<think>2 + 3</th"}}]}"#,
    /// #         r#"{"choices": [{"delta": {"content": "ink>\nFive."}}]}"#, "[DONE]"];
    /// #     let body: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
    /// #     let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length";
    /// #     let _ = write!(socket, "{head}: {}\r\n\r\n{body}", body.len());
    /// #     let _ = socket.read_to_end(&mut Vec::new());
    /// # });
    /// use levity_core::{Message, Model as _, Request};
    /// use levity_llm::ChatModel;
    ///
    /// let model = ChatModel::compatible(base, "deepseek-r1").with_think_tags();
    /// let request = Request::new().with_message(Message::user("What is 2 + 3?"));
    /// let reply = model.complete(request).await?;
    /// assert_eq!((&*reply.message.thinking(), &*reply.message.text()), ("2 + 3", "Five."));
    /// # Ok(())
    /// # }
    /// ```
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

    fn body(&self, wire_request: WireRequest<'_>) -> Result<Vec<u8>, ModelError> {
        let WireRequest {
            card,
            request,
            stream,
            endpoint,
            origin,
        } = wire_request;
        let mut extra = extra(wire_request);
        let extra_tools = take_extra_tools(&mut extra);
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
                    Target {
                        origin,
                        dialect: self.dialect,
                    },
                    list,
                );
            });
        });
        sent?;
        if !request.tools.is_empty() || !extra_tools.is_empty() {
            let json = self.tool_json.tools(&request.tools, encode::tool);
            body.raw("tools", |bytes| {
                list(bytes, |list| {
                    list.add(&json.json);
                    extra_tools.iter().for_each(|tool| list.item(tool));
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
        self.tool_json
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

    /// Decodes the body like a stream, because the fields are the same; an unusual body is decoded
    /// as a whole.
    fn read_common(&self, body: &[u8], sink: &mut Sink) -> bool {
        let mut decoder = self.decoder();
        decoder.event("", body, sink).is_ok() && decoder.end(sink).is_ok() && sink.has_finish()
    }
}

impl Chat {
    /// Returns the schema of the answer, enforced if strict mode is on and possible. OpenAI
    /// requires a name, so a nameless schema is called `answer`.
    fn response_format(&self, output: &Arc<OutputSchema>) -> Value {
        let name = if output.name.is_empty() {
            "answer"
        } else {
            &*output.name
        };
        let schema = match &*self.tool_json.output(output) {
            Some(schema) => json!({"name": name, "schema": schema, "strict": true}),
            None => json!({"name": name, "schema": output.schema}),
        };
        json!({"type": "json_schema", "json_schema": schema})
    }

    /// Writes sampling options and the effort, each only if the request sets it.
    fn options(&self, body: &mut Body, card: &ModelCard, base: &str, request: &Request) {
        let options = &request.options;
        body.optional("temperature", options.temperature.as_ref());
        body.optional("top_p", options.top_p.as_ref());
        body.optional(self.dialect.max_tokens(), options.max_tokens.as_ref());
        body.optional("seed", options.seed.as_ref());
        body.optional("stop", Some(&options.stop).filter(|stop| !stop.is_empty()));
        // OpenAI's old models reject the field itself.
        let thinks = self.dialect != Dialect::OpenAi || effort::thinks(&card.id, true);
        let mode = options
            .thinking
            .filter(|_| thinks || card.capabilities.thinking);
        body.optional(
            "reasoning_effort",
            mode.and_then(|mode| effort::effort(base, &card.id, true, mode)),
        );
    }
}

/// Returns tools in the protocol's own format, such as custom ones, which follow the request's
/// tools.
///
/// A value that is not a list stays in the fields, and replaces the request's tools.
fn take_extra_tools(extra: &mut Map<String, Value>) -> Vec<Value> {
    match extra.shift_remove("tools") {
        Some(Value::Array(tools)) => tools,
        Some(other) => {
            extra.insert("tools".to_owned(), other);
            Vec::new()
        }
        None => Vec::new(),
    }
}

/// Writes `tool_choice`, unless the model decides itself, which is the default of every server.
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

/// Converts the protocol's finish reason.
///
/// Servers use words of other protocols too. A word that is not known is passed on, not rejected.
fn finish(word: &str) -> Finish {
    match word {
        "stop" | "eos" | "end_turn" | "stop_sequence" => Finish::Stop,
        "tool_calls" | "function_call" | "tool_use" => Finish::ToolCalls,
        "length" | "max_tokens" | "model_length" => Finish::Length,
        "content_filter" | "safety" => Finish::ContentFilter,
        other => Finish::Other(other.to_owned()),
    }
}
