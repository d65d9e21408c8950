//! Google's Gemini, by AI Studio and by Vertex AI.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use levity_core::{Abilities, ModelCard, ModelError, Request, ToolSpec};
use serde_json::{Map, Value, json};

use crate::body::{Body, list, write};
use crate::http::{Asked, Endpoint, Framing, Remote, Secret, Sink, Wire, provider};

mod args;
mod config;
mod decode;
mod embed;
mod encode;
mod paths;
mod pieces;
mod tokens;

pub use embed::GeminiEmbedder;
pub use tokens::{AccessToken, AccessTokens};

use config::{Family, merge};
use paths::Place;

/// The name under which data of this protocol rides on messages.
pub(crate) const NAME: &str = "gemini";

/// A Gemini model, by Google AI Studio or by Vertex AI.
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
/// # Settings of Gemini's own
/// Fields in [`Options::extra`](levity_core::Options::extra) go into the body: `safetySettings`,
/// `cachedContent`, `labels`. Where the request has such a field already, both are put together:
/// `generationConfig` and `toolConfig` key by key, with yours counting; `tools` one after the
/// other, so that Google's own can stand beside yours.
///
/// ```
/// # use levity_core::{Options, Request};
/// # use serde_json::json;
/// let mut options = Options::new();
/// options.temperature = Some(0.2);
/// options.extra.insert("generationConfig".into(), json!({"topK": 40, "responseModalities": ["TEXT"]}));
/// options.extra.insert("tools".into(), json!([{"googleSearch": {}}]));
/// let request = Request::new().with_options(options);
/// ```
///
/// # What goes back
/// Signatures of thoughts ride on the parts they came with and go back there, as do ids of calls
/// that Gemini made. Parts that only Gemini understands, such as code that it ran itself, are kept
/// in place. Thoughts of other models are left out.
///
/// # Withheld replies
/// A reply that was withheld as a whole is a
/// [`ContentFiltered`](levity_core::ModelErrorKind::ContentFiltered) that names Google's reason;
/// one that was cut off ends with [`ContentFilter`](levity_core::Finish::ContentFilter).
#[derive(Clone, Debug)]
pub struct GeminiModel(Remote<Gemini>);

#[derive(Clone, Debug)]
pub(crate) struct Gemini {
    place: Place,
    access: Access,
    declared: Declared,
}

#[derive(Clone, Debug)]
enum Access {
    Key(Secret),
    Tokens(AccessTokens),
}

impl GeminiModel {
    /// A model on Google AI Studio.
    pub fn new(key: impl Into<Secret>, model: impl Into<String>) -> Self {
        Self::at(
            Place::AiStudio,
            Access::Key(key.into()),
            "gemini",
            model.into(),
        )
    }

    /// A model on Vertex AI. The region may be `global`, or `us` or `eu` for all of one's regions;
    /// the token is one, or where they come from.
    pub fn vertex(
        project: impl Into<String>,
        region: impl Into<String>,
        token: impl Into<AccessTokens>,
        model: impl Into<String>,
    ) -> Self {
        let place = Place::Vertex {
            project: project.into(),
            region: region.into(),
        };
        Self::at(place, Access::Tokens(token.into()), "vertex", model.into())
    }

    fn at(place: Place, access: Access, provider: &str, model: String) -> Self {
        let mut abilities = Abilities::default();
        (abilities.images, abilities.thinking) = (true, Family::of(&model).thinks());
        let card = ModelCard::new(provider, model).with_abilities(abilities);
        let endpoint = Endpoint::new(place.base());
        Self(Remote::new(
            Gemini {
                place,
                access,
                declared: Declared::default(),
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
        self.place.path(&card.id, stream)
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

    async fn refused(&self, headers: &[(&'static str, Secret)]) {
        let Access::Tokens(tokens) = &self.access else {
            return;
        };
        for (_, value) in headers.iter().filter(|(name, _)| *name == "authorization") {
            tokens
                .refused(value.expose().trim_start_matches("Bearer "))
                .await;
        }
    }

    fn tool_name<'n>(&self, name: &'n str) -> Cow<'n, str> {
        encode::name(name)
    }

    /// A token says nothing of whose it is, and there is a new one every hour; the project stays.
    fn account(&self) -> Option<&str> {
        match (&self.place, &self.access) {
            (Place::Vertex { project, .. }, _) => Some(project),
            (Place::AiStudio, Access::Key(key)) => Some(key.expose()),
            (Place::AiStudio, Access::Tokens(_)) => None,
        }
    }

    fn body(&self, asked: Asked<'_>) -> Result<Vec<u8>, ModelError> {
        let Asked {
            card,
            request,
            endpoint,
            origin,
            ..
        } = asked;
        let family = Family::of(&card.id);
        let mut extra = endpoint.extra().clone();
        merge(&mut extra, request.options.extra.clone());
        let mut body = Body::new();
        let hosted = hosted(&mut extra);
        let has_tools = !request.tools.is_empty() || !hosted.is_empty();
        let told = config::told(request, family, has_tools);
        match extra.get_mut("systemInstruction") {
            // What the user puts there counts; the answer's shape stands behind it.
            Some(own) => own["parts"].as_array_mut().into_iter().for_each(|parts| {
                parts.extend(told.shape.iter().map(|shape| json!({"text": shape})));
            }),
            None if told.is_empty() => {}
            None => body.field(
                "systemInstruction",
                &json!({"parts": [{"text": told.text()}]}),
            ),
        }
        if !extra.contains_key("contents") {
            body.raw("contents", |bytes| {
                list(bytes, |list| {
                    encode::contents(request, family, origin, list);
                });
            });
        }
        self.tools(&mut body, request, &hosted);
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
    /// The request's tools, and those of Google's own.
    fn tools(&self, body: &mut Body, request: &Request, hosted: &[Value]) {
        if hosted.is_empty() && request.tools.is_empty() {
            return;
        }
        body.raw("tools", |bytes| {
            list(bytes, |list| {
                if !request.tools.is_empty() {
                    list.add(&self.declared.of(&request.tools));
                }
                hosted.iter().for_each(|tool| list.item(tool));
            });
        });
    }
}

/// Tools of Google's own.
fn hosted(extra: &mut Map<String, Value>) -> Vec<Value> {
    match extra.shift_remove("tools") {
        Some(Value::Array(tools)) => tools,
        Some(Value::Null) | None => Vec::new(),
        Some(tool) => vec![tool],
    }
}

type Tools = Arc<[Arc<ToolSpec>]>;
type Known = Option<(Tools, Arc<[u8]>)>;

/// The declarations of the tools that were offered last. An agent offers the same ones each turn,
/// and narrowing their schemas costs more than all else in a request.
#[derive(Clone, Default)]
struct Declared(Arc<Mutex<Known>>);

impl Declared {
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

impl std::fmt::Debug for Declared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Declared")
    }
}
