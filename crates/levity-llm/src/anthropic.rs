//! Anthropic's Messages.

use async_trait::async_trait;
use levity_core::{Abilities, ModelCard, ModelError};
use serde_json::Value;

use crate::http::{Asked, Endpoint, Framing, Remote, Secret, Sink, Wire, provider};

mod blocks;
mod body;
mod decode;
mod encode;
mod generation;
mod marks;
mod media;
mod messages;
mod schema;
mod thinking;

use generation::Generation;
pub use marks::CacheTtl;
use marks::Marks;

/// The name under which data of this protocol rides on messages.
pub(crate) const NAME: &str = "anthropic";

/// A Claude model behind Anthropic's Messages, or behind any server that speaks it, such as
/// llama.cpp's.
///
/// ```
/// use levity_core::Model as _;
/// use levity_llm::AnthropicModel;
///
/// let model = AnthropicModel::new("sk-ant-..", "claude-sonnet-4-5");
/// assert_eq!((&*model.card().provider, &*model.card().id), ("anthropic", "claude-sonnet-4-5"));
///
/// // llama.cpp's server needs no key.
/// let local = AnthropicModel::new("", "qwen3").with_endpoint(|_| levity_llm::Endpoint::new("http://127.0.0.1:8080"));
/// ```
///
/// # What is sent
/// - The longest reply, which the API wants to be told:
///   [`Options::max_tokens`](levity_core::Options), else the card's `max_output`, else 8,192 tokens
///   (4,096 for the first Claude 3) and what is to be thought beside them.
/// - [`Options::thinking`](levity_core::Options): models before 4.6 get a number of tokens, 2,048
///   for `Low`, 8,192 for `Medium` and `Auto`, 24,576 for `High`, never less than 1,024. It is kept
///   below the longest reply, at three quarters of it; where that leaves no room for 1,024, there
///   is no thinking. Later models think as much as they see fit, with an effort of `low`, `medium`
///   or `high`; a budget of less than 4,096 tokens is a low effort, one of less than 16,384 a
///   medium one. While models think, and always since 4.7, the API takes neither `temperature` nor
///   `top_p`: they are sent as they are, and it says so.
/// - No thinking for Claude 3.7 to 4.5 where they would refuse it: while tools answer a turn that
///   does not begin with a thought of a Claude's, and where a call is demanded.
/// - Nothing for `seed`, which the API does not have.
/// - Marks for the prompt cache, at most four: on the tools, on the instructions, on the last
///   message and where the request before ended. A single question without tools has none on its
///   message. Where you set a `cache_control` yourself, in a field or on a part, no others are set.
/// - [Provider fields](levity_core::Options) in place of those of the same name, but for `tools`,
///   which come behind the request's own, and `output_config`, which is added to.
/// - Notes from the program in the middle of the conversation: as such from Claude 4.8 on, where
///   the API takes them, else as the user's words.
/// - A schema for the answer by `output_config`, narrowed to what the API can hold the model to,
///   with the rest of it in words. One with free-form objects, any value, or itself in it is put
///   into words beside the instructions.
///
/// # What comes back
/// Thoughts with their signatures, redacted ones, calls of the provider's own tools and their
/// results, citations: all of it goes back in its place. Thoughts without a signature do not, since
/// the API refuses them. A reply that ended with `pause_turn` is
/// [`Paused`](levity_core::Finish::Paused): it goes on when it is sent back as the last message,
/// which an agent does. Blocks of the provider's own can be put into a message as
/// `Part::ProviderState(ProviderState::new("anthropic", block))`, say a document that was uploaded.
#[derive(Clone, Debug)]
pub struct AnthropicModel(Remote<Anthropic>);

/// What can be set.
#[derive(Clone, Debug)]
pub(crate) struct Anthropic {
    key: Secret,
    betas: Vec<String>,
    marks: Marks,
    /// What the model's name does not tell.
    generation: Option<Generation>,
}

impl AnthropicModel {
    /// A model of Anthropic's, by its name there. An empty key is not sent.
    pub fn new(key: impl Into<Secret>, model: impl Into<String>) -> Self {
        let wire = Anthropic {
            key: key.into(),
            betas: Vec::new(),
            marks: Marks::default(),
            generation: None,
        };
        let mut card = ModelCard::new("anthropic", model);
        card.abilities = abilities(&card.id);
        Self(Remote::new(
            wire,
            card,
            Endpoint::new("https://api.anthropic.com"),
        ))
    }

    /// Asks for a feature that is not for everyone yet, by its name in the header `anthropic-beta`;
    /// can be called for several.
    #[must_use]
    pub fn with_beta(mut self, name: impl Into<String>) -> Self {
        self.0.wire.betas.push(name.into());
        self
    }

    /// Sets no marks for the prompt cache.
    #[must_use]
    pub fn without_cache_marks(mut self) -> Self {
        self.0.wire.marks = Marks::none();
        self
    }

    /// Sets how long the prompt cache keeps what is marked: 5 minutes by default.
    #[must_use]
    pub fn with_cache_ttl(mut self, ttl: CacheTtl) -> Self {
        self.0.wire.marks = Marks::lasting(ttl);
        self
    }

    /// Says which Claude it is, such as 4.6, where its name does not tell: how it is told to think
    /// depends on it, and whether it takes notes in the middle. A model whose name says nothing is
    /// taken for one before 4.6.
    #[must_use]
    pub fn with_generation(mut self, major: u32, minor: u32) -> Self {
        self.0.wire.generation = Some(Generation(major, minor));
        self
    }
}

provider!(AnthropicModel);

/// What the name tells: the schema of an answer is kept to since 4.5, and by Opus 4.1.
fn abilities(id: &str) -> Abilities {
    let generation = Generation::of(id);
    let since = |major, minor| generation.is_some_and(|known| known >= Generation(major, minor));
    let mut abilities = Abilities::default();
    abilities.images = since(3, 0);
    abilities.thinking = since(3, 7);
    abilities.output_schema = since(4, 5) || (since(4, 1) && id.contains("opus"));
    abilities
}

impl Anthropic {
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

    fn body(&self, asked: Asked<'_>) -> Result<Vec<u8>, ModelError> {
        body::write(self, asked)
    }

    fn keeps_an_hour(&self) -> bool {
        self.marks.keeps_an_hour()
    }

    fn decoder(&self) -> Self::Decoder {
        decode::Decoder::default()
    }

    fn whole(&self, reply: &Value, sink: &mut Sink) -> Result<(), ModelError> {
        decode::whole(reply, sink)
    }
}
