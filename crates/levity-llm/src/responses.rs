//! OpenAI's Responses, and the servers that speak it.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{
    Abilities, ModelCard, ModelError, ModelErrorKind, OutputSchema, Request, ToolChoice, ToolSpec,
};
use serde_json::{Value, json};

use crate::body::list;
use crate::effort;
use crate::http::{Asked, Endpoint, Framing, Remote, Secret, Sink, Wire, provider};
use crate::schema::answer;
use crate::schema::nulls::Nulls;
use crate::schema::offer::{Offer, Offers};

mod decode;
mod encode;
mod fields;

use fields::Fields;

/// The name under which data of this protocol rides on messages.
pub(crate) const NAME: &str = "openai_responses";

/// The field under which a message has its thoughts once more, as the end of the reply had them.
const LATER: &str = "later_thoughts";

/// The type of an item that is a picture.
const IMAGE: &str = "image_generation_call";

/// A model behind OpenAI's Responses API, or behind another server that speaks it: Azure, xAI,
/// OpenRouter, Bedrock and others.
///
/// ```
/// use levity_core::Model as _;
/// use levity_llm::OpenAiModel;
///
/// let model = OpenAiModel::new("sk-…", "gpt-5.2")
///     .with_endpoint(|endpoint| endpoint.with_header("OpenAI-Project", "proj_1"));
/// assert_eq!(model.card().id, "gpt-5.2");
/// assert!(model.card().abilities.thinking);
/// ```
///
/// What the model thought goes back to it with the calls that came of it. By default nothing is
/// stored at the provider, and thoughts come and go encrypted; see [`stored`](Self::stored).
///
/// Tools and answers are held to their schemas ("strict mode") wherever that does not change what a
/// schema accepts: not where there is a free-form map in it, and for answers not where a property
/// may be left out. A property of a tool that may be left out is offered as one that may be null,
/// and such nulls are taken out of the arguments again. What strict mode has no words for, such as
/// the length of a text, is said in the description. See [`without_strict`](Self::without_strict).
///
/// Tools that run at the provider are passed by [`Options::extra`](levity_core::Options), as
/// `tools`; what they did is in the reply as [`Part::ProviderState`](levity_core::Part), and goes
/// back as it came.
#[derive(Clone, Debug)]
pub struct OpenAiModel(Remote<Responses>);

/// How the servers differ, and what the user has set.
#[derive(Clone, Debug)]
pub(crate) struct Responses {
    key: Option<Secret>,
    /// Whether it is OpenAI's own server.
    own: bool,
    stored: bool,
    summaries: bool,
    offers: Offers,
}

impl OpenAiModel {
    /// A model of OpenAI's.
    pub fn new(key: impl Into<Secret>, model: impl Into<String>) -> Self {
        let (model, endpoint) = (model.into(), Endpoint::new("https://api.openai.com/v1"));
        let wire = Responses::new(Some(key.into()), true, Offers::openai(&model));
        Self(Remote::new(wire, card("openai", model, true), endpoint))
    }

    /// A model of a server that speaks the same; its address ends where `/responses` begins.
    ///
    /// It is not held to schemas unless [told to](Self::with_strict). If it thinks before it speaks
    /// and its name does not say so, say it by [`with_card`](Self::with_card): only then are its
    /// thoughts asked for and carried over turns.
    pub fn compatible(base_url: impl AsRef<str>, model: impl Into<String>) -> Self {
        let card = card("compatible", model.into(), false);
        let wire = Responses::new(None, false, Offers::new(false));
        let mut remote = Remote::new(wire, card, Endpoint::new(base_url));
        remote.rescues = true;
        Self(remote)
    }

    /// Sends this key.
    #[must_use]
    pub fn with_key(mut self, key: impl Into<Secret>) -> Self {
        self.0.wire.key = Some(key.into());
        self
    }

    /// Has the provider keep the replies, so that thoughts go back to it by their ids.
    #[must_use]
    pub fn stored(mut self) -> Self {
        self.0.wire.stored = true;
        self
    }

    /// Asks for summaries of what the model thinks. OpenAI gives them only to organisations that it
    /// has verified.
    #[must_use]
    pub fn with_summaries(mut self) -> Self {
        self.0.wire.summaries = true;
        self
    }

    /// Holds the model to schemas where that can be.
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

provider!(OpenAiModel);

fn card(provider: &str, model: String, own: bool) -> ModelCard {
    let mut abilities = Abilities::default();
    abilities.images = true;
    abilities.thinking = effort::thinks(&model, own);
    ModelCard::new(provider, model).with_abilities(abilities)
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

    fn body(&self, asked: Asked<'_>) -> Result<Vec<u8>, ModelError> {
        let Asked {
            card,
            request,
            stream,
            endpoint,
            origin,
        } = asked;
        refuse(request)?;
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
        self.offer(request).nulls.clone()
    }

    fn decoder(&self) -> Self::Decoder {
        decode::Decoder::default()
    }

    fn whole(&self, reply: &Value, sink: &mut Sink) -> Result<(), ModelError> {
        decode::whole(reply, sink)
    }
}

impl Responses {
    fn new(key: Option<Secret>, own: bool, offers: Offers) -> Self {
        Self {
            key,
            own,
            stored: false,
            summaries: false,
            offers,
        }
    }

    fn offer(&self, request: &Request) -> Arc<Offer> {
        self.offers
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

    /// The tools, and those that run at the provider behind them.
    fn tools(&self, fields: &mut Fields, request: &Request) {
        let hosted = fields.take("tools").unwrap_or_default();
        if request.tools.is_empty() && hosted.as_array().is_none_or(Vec::is_empty) {
            return;
        }
        let offer = self.offer(request);
        fields.raw("tools", |bytes| {
            list(bytes, |list| {
                list.add(&offer.json);
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

    fn format(&self, output: &Arc<OutputSchema>) -> Value {
        let strict = self.offers.output(output);
        let schema = strict.as_ref().as_ref().unwrap_or(&output.schema);
        json!({"format": {
            "type": "json_schema",
            "name": output.name,
            "schema": schema,
            "strict": strict.is_some(),
        }})
    }

    fn options(&self, fields: &mut Fields, card: &ModelCard, base: &str, request: &Request) {
        let options = &request.options;
        fields.optional("temperature", options.temperature);
        fields.optional("top_p", options.top_p);
        fields.optional("max_output_tokens", options.max_tokens);
        let thinks = card.abilities.thinking || effort::thinks(&card.id, self.own);
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
        // A model that does not think refuses this.
        if !self.stored && (thinks || effort.is_some()) {
            fields.put("include", json!(["reasoning.encrypted_content"]));
        }
    }
}

/// What the protocol has no place for.
fn refuse(request: &Request) -> Result<(), ModelError> {
    let options = &request.options;
    let refused = |what: &str| {
        let message = format!(
            "{what} cannot be given to OpenAI's Responses; leave it out, or use `ChatModel`"
        );
        Err(ModelError::new(ModelErrorKind::BadRequest, message))
    };
    if !options.stop.is_empty() {
        return refused("the option `stop`");
    }
    if options.seed.is_some() {
        return refused("the option `seed`");
    }
    match encode::foreign_media(request) {
        Some(mime) => refused(&format!("media of type `{mime}`")),
        None => Ok(()),
    }
}
