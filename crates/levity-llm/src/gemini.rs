//! Google's Gemini, through AI Studio and Vertex AI.
//!
//! Both services speak the same protocol at different addresses (`paths`) and with different
//! credentials: AI Studio takes a key, Vertex AI a token that expires (`tokens`). `config` decides
//! what a model family supports, `encode` writes the conversation, `chunks` and `decode` read the
//! reply, and `args` assembles arguments that arrive value by value.
//!
//! Gemini signs its parts and rejects calls whose signature is missing, so the state of a part must
//! return to exactly that part.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use levity_core::{Capabilities, ModelCard, ModelError, Request, ToolSpec};
use serde_json::{Map, Value, json};

use crate::body::{Body, list, write};
use crate::http::{Endpoint, Framing, Remote, Secret, Sink, Wire, WireRequest, provider};

mod args;
mod chunks;
mod config;
mod decode;
mod embed;
mod encode;
mod paths;
mod tokens;

pub use embed::GeminiEmbedder;
pub use tokens::{AccessToken, AccessTokens};

use config::{Family, merge};
use paths::Service;

/// The provider name of this protocol's state in messages.
pub(crate) const NAME: &str = "gemini";

/// A Gemini model, through Google AI Studio or Vertex AI.
///
/// ```
/// use levity_core::Model as _;
/// use levity_llm::GeminiModel;
///
/// let model = GeminiModel::new("my-key", "gemini-2.5-flash");
/// assert_eq!(model.card().id, "gemini-2.5-flash");
///
/// let model = GeminiModel::vertex("my-project", "global", "ya29.my-token", "gemini-2.5-pro");
/// assert_eq!(model.card().provider, "vertex");
/// ```
///
/// # Gemini-specific settings
/// Fields in [`Options::extra`](levity_core::Options::extra) go into the body: `safetySettings`,
/// `cachedContent`, `labels`. If the request already has such a field, both are merged.
/// `generationConfig` and `toolConfig` are merged key by key, with precedence for yours. `tools`
/// are concatenated, so you can combine Google's own tools with yours.
///
/// ```
/// # use levity_core::{Options, Request};
/// # use serde_json::json;
/// let mut options = Options::new();
/// options.temperature = Some(0.2);
/// options.extra.insert(
///     "generationConfig".into(),
///     json!({"topK": 40, "responseModalities": ["TEXT"]}),
/// );
/// options.extra.insert("tools".into(), json!([{"googleSearch": {}}]));
/// let request = Request::new().with_options(options);
/// ```
///
/// # State
/// Signatures of thoughts belong to their parts and are sent back there, as are ids of calls that
/// Gemini made. Parts that only Gemini understands, such as code that it ran itself, stay in place.
/// Thoughts of other models are omitted.
///
/// # Withheld replies
/// A reply that was withheld completely is a
/// [`ContentFiltered`](levity_core::ModelErrorKind::ContentFiltered) error that names Google's
/// reason. One that was truncated ends with [`ContentFilter`](levity_core::Finish::ContentFilter).
///
/// ```
/// # use std::io::{Read as _, Write as _};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = std::net::TcpListener::bind("127.0.0.1:0")?;
/// # let base = format!("http://{}", server.local_addr()?);
/// # std::thread::spawn(move || {
/// #     let (mut socket, _) = server.accept().expect("a connection");
/// #     let _ = socket.read(&mut [0; 8_192]);
/// #     let reply = r#"{"promptFeedback": {"blockReason": "SAFETY"}}"#;
/// #     let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length";
/// #     let _ = write!(socket, "{head}: {}\r\n\r\n{reply}", reply.len());
/// #     let _ = socket.read_to_end(&mut Vec::new());
/// # });
/// use levity_core::{Message, Model as _, ModelErrorKind, Request};
/// use levity_llm::GeminiModel;
///
/// // The server of this example blocks every prompt.
/// let model = GeminiModel::new("my-key", "gemini-2.5-flash")
///     .with_endpoint(|endpoint| endpoint.with_base(base))
///     .without_streaming();
/// let request = Request::new().with_message(Message::user("Good morning"));
/// let error = model.complete(request).await.unwrap_err();
/// assert_eq!(error.kind(), ModelErrorKind::ContentFiltered);
/// assert!(error.message().contains("`SAFETY`"));
/// # Ok(())
/// # }
/// ```
///
/// # Answer schemas
/// Gemini enforces the schema of an answer. Before Gemini 3 it cannot do so while tools are
/// offered, Google's own included; levity then describes the schema in the instructions.
#[derive(Clone, Debug)]
pub struct GeminiModel(Remote<Gemini>);

/// The settings of the protocol: service, credentials and cached tools.
#[derive(Clone, Debug)]
pub(crate) struct Gemini {
    service: Service,
    access: Access,
    declared: DeclarationCache,
}

/// The credentials: a key of AI Studio, or a source of tokens.
#[derive(Clone, Debug)]
enum Access {
    Key(Secret),
    Tokens(AccessTokens),
}

impl GeminiModel {
    /// Creates a model on Google AI Studio.
    ///
    /// The key is sent as `x-goog-api-key`. A name may include its folder, such as
    /// `models/gemini-2.5-flash` or `tunedModels/my-model`.
    ///
    /// ```
    /// # use levity_core::Model as _;
    /// # use levity_llm::GeminiModel;
    /// let model = GeminiModel::new("my-key", "gemini-2.5-flash");
    /// assert!(model.card().capabilities.images && model.card().capabilities.thinking);
    /// assert!(!GeminiModel::new("my-key", "gemini-2.0-flash").card().capabilities.thinking);
    /// ```
    pub fn new(key: impl Into<Secret>, model: impl Into<String>) -> Self {
        Self::at(
            Service::AiStudio,
            Access::Key(key.into()),
            "gemini",
            model.into(),
        )
    }

    /// Creates a model on Vertex AI. The region may be `global`, or `us` or `eu` for all regions of
    /// a continent. Pass a token, or a source of tokens.
    ///
    /// ```
    /// use levity_core::Model as _;
    /// use levity_llm::{AccessTokens, GeminiModel};
    ///
    /// // `gcloud auth print-access-token` prints such a token, which is valid for an hour.
    /// let tokens = AccessTokens::fixed("ya29.my-token");
    /// let model = GeminiModel::vertex("my-project", "eu", tokens, "gemini-2.5-pro");
    /// assert_eq!((&*model.card().provider, &*model.card().id), ("vertex", "gemini-2.5-pro"));
    /// ```
    ///
    /// Use [`AccessTokens::from_env`] for programs that run longer than one token.
    pub fn vertex(
        project: impl Into<String>,
        region: impl Into<String>,
        token: impl Into<AccessTokens>,
        model: impl Into<String>,
    ) -> Self {
        let service = Service::Vertex {
            project: project.into(),
            region: region.into(),
        };
        Self::at(
            service,
            Access::Tokens(token.into()),
            "vertex",
            model.into(),
        )
    }

    /// Creates a model. Its card claims images for every model, and thinking unless the name is
    /// that of an old family.
    fn at(service: Service, access: Access, provider: &str, model: String) -> Self {
        let mut capabilities = Capabilities::default();
        (capabilities.images, capabilities.thinking) = (true, Family::of(&model).thinks());
        let card = ModelCard::new(provider, model).with_capabilities(capabilities);
        let endpoint = Endpoint::new(service.base());
        Self(Remote::new(
            Gemini {
                service,
                access,
                declared: DeclarationCache::default(),
            },
            card,
            endpoint,
        ))
    }
}

provider!(GeminiModel);

#[async_trait]
impl Wire for Gemini {
    const FRAMING: Framing = Framing::Sse;
    type Decoder = decode::Decoder;

    fn path(&self, card: &ModelCard, stream: bool) -> String {
        self.service.path(&card.id, stream)
    }

    async fn headers(&self) -> Result<Vec<(&'static str, Secret)>, ModelError> {
        let tokens = match &self.access {
            Access::Key(key) => return Ok(vec![("x-goog-api-key", key.clone())]),
            Access::Tokens(tokens) => tokens,
        };
        let bearer = format!("Bearer {}", tokens.token().await?.expose());
        let mut headers = vec![("authorization", Secret::from(bearer))];
        headers.extend(
            tokens
                .quota_project()
                .map(|project| ("x-goog-user-project", project.into())),
        );
        Ok(headers)
    }

    async fn on_unauthorized(&self, headers: &[(&'static str, Secret)]) {
        let Access::Tokens(tokens) = &self.access else {
            return;
        };
        for (_, value) in headers.iter().filter(|(name, _)| *name == "authorization") {
            tokens
                .reject(value.expose().trim_start_matches("Bearer "))
                .await;
        }
    }

    fn tool_name<'n>(&self, name: &'n str) -> Cow<'n, str> {
        encode::name(name)
    }

    /// A token does not identify its owner and changes every hour, but the project is stable.
    fn account(&self) -> Option<&str> {
        match (&self.service, &self.access) {
            (Service::Vertex { project, .. }, _) => Some(project),
            (Service::AiStudio, Access::Key(key)) => Some(key.expose()),
            (Service::AiStudio, Access::Tokens(_)) => None,
        }
    }

    fn body(&self, wire_request: WireRequest<'_>) -> Result<Vec<u8>, ModelError> {
        let WireRequest {
            card,
            request,
            endpoint,
            origin,
            ..
        } = wire_request;
        let family = Family::of(&card.id);
        let mut extra = endpoint.extra().clone();
        merge(&mut extra, request.options.extra.clone());
        let mut body = Body::new();
        let google_tools = take_google_tools(&mut extra);
        let has_tools = !request.tools.is_empty() || !google_tools.is_empty();
        let instructions = config::instructions(request, family, has_tools);
        match extra.get_mut("systemInstruction") {
            // The user's text takes precedence; the answer's shape follows it.
            Some(own) => own["parts"].as_array_mut().into_iter().for_each(|parts| {
                parts.extend(
                    instructions
                        .shape
                        .iter()
                        .map(|shape| json!({"text": shape})),
                );
            }),
            None if instructions.is_empty() => {}
            None => body.field(
                "systemInstruction",
                &json!({"parts": [{"text": instructions.text()}]}),
            ),
        }
        if !extra.contains_key("contents") {
            body.raw("contents", |bytes| {
                list(bytes, |list| {
                    encode::contents(request, family, origin, list);
                });
            });
        }
        self.tools(&mut body, request, &google_tools);
        for (name, mut own) in [
            ("toolConfig", config::tools(request)),
            (
                "generationConfig",
                config::generation(request, family, has_tools),
            ),
        ] {
            match extra.shift_remove(name) {
                Some(Value::Object(more)) => merge(&mut own, more),
                Some(other) => body.field(name, &other),
                None => {}
            }
            if !own.is_empty() {
                body.field(name, &own);
            }
        }
        extra
            .iter()
            .for_each(|(name, value)| body.field(name, value));
        Ok(body.finish())
    }

    fn decoder(&self) -> Self::Decoder {
        decode::Decoder::default()
    }

    fn whole(&self, reply: &Value, sink: &mut Sink) -> Result<(), ModelError> {
        decode::whole(reply, sink)
    }
}

impl Gemini {
    /// Writes the request's tools, and Google's own.
    fn tools(&self, body: &mut Body, request: &Request, google_tools: &[Value]) {
        if google_tools.is_empty() && request.tools.is_empty() {
            return;
        }
        body.raw("tools", |bytes| {
            list(bytes, |list| {
                if !request.tools.is_empty() {
                    list.add(&self.declared.of(&request.tools));
                }
                google_tools.iter().for_each(|tool| list.item(tool));
            });
        });
    }
}

/// Removes and returns Google's own tools.
///
/// A single tool without a list counts as a list of one, and `null` as none.
fn take_google_tools(extra: &mut Map<String, Value>) -> Vec<Value> {
    match extra.shift_remove("tools") {
        Some(Value::Array(tools)) => tools,
        Some(Value::Null) | None => Vec::new(),
        Some(tool) => vec![tool],
    }
}

type Tools = Arc<[Arc<ToolSpec>]>;
type CachedDeclarations = Option<(Tools, Arc<[u8]>)>;

/// The declarations of the last offered tools. An agent offers the same ones each turn, and
/// converting their schemas costs more than everything else in a request.
///
/// Only one set is stored, identified by its address. Clones of a model share it, so two agents
/// that alternate on one model convert their schemas each time.
#[derive(Clone, Default)]
struct DeclarationCache(Arc<Mutex<CachedDeclarations>>);

impl DeclarationCache {
    /// Returns the declarations as JSON. Two threads may convert the same tools at the same time;
    /// the lock is not held during the conversion.
    fn of(&self, tools: &Tools) -> Arc<[u8]> {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, json)) = &*lock()
            && Arc::ptr_eq(known, tools)
        {
            return json.clone();
        }
        let mut json = Vec::new();
        write(&mut json, &encode::declarations(tools));
        let json: Arc<[u8]> = json.into();
        *lock() = Some((tools.clone(), json.clone()));
        json
    }
}

impl std::fmt::Debug for DeclarationCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DeclarationCache")
    }
}
