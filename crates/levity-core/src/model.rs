use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{CostBound, Deltas, ModelError, Price, Request, Response};

/// A language model: a request in, a stream of reply pieces out.
///
/// # Contract
/// - Nothing is sent before the returned future is first polled.
/// - Dropping the future, or the stream it returned, cancels the call.
/// - A model sends each request once; retries belong to a wrapper.
/// - `complete` gives what folding `stream` gives.
/// - No input makes it panic.
/// - `cost_bound` is never less than what a call takes, as long as the provider keeps to
///   `max_tokens`.
///
/// `levity_test::conformance::model` checks an implementation.
///
/// ```
/// use async_trait::async_trait;
/// use levity_core::{Delta, Deltas, Model, ModelCard, ModelError, Request};
///
/// /// Says what it was told last.
/// struct Echo(ModelCard);
///
/// #[async_trait]
/// impl Model for Echo {
///     fn card(&self) -> &ModelCard {
///         &self.0
///     }
///
///     async fn stream(&self, request: Request) -> Result<Deltas, ModelError> {
///         let last = request.history.messages().last().map(|message| message.text().into_owned());
///         Ok(Deltas::ready([Delta::Text(last.unwrap_or_default())]))
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a model",
    note = "`levity::model(\"openai:gpt-4o\")?` opens one by its name; any type that implements \
        `Model` is one"
)]
#[async_trait]
pub trait Model: Send + Sync {
    /// Provider, id, window and abilities, known without a call.
    fn card(&self) -> &ModelCard;

    /// Sends `request` and returns the reply as it arrives.
    async fn stream(&self, request: Request) -> Result<Deltas, ModelError>;

    /// Waits for the whole reply. Override only to do better than folding the stream.
    async fn complete(&self, request: Request) -> Result<Response, ModelError> {
        self.stream(request).await?.fold().await
    }

    /// The most that `request` can take; only asked where money or tokens are limited. By default
    /// it is what [`CostBound::of`] says: right for text, far above what is likely. Override it to
    /// count better; a wrapper that may send a request more than once, or to another model, says so
    /// here.
    ///
    /// It does no I/O and costs what is new in the request. It may be asked about a request in
    /// pieces, whose bounds are added up.
    fn cost_bound(&self, request: &Request) -> CostBound {
        CostBound::of(self.card(), request)
    }
}

macro_rules! forward_model {
    ($($pointer:ty),*) => {$(
        #[async_trait]
        #[deny(clippy::missing_trait_methods)]
        impl<M: Model + ?Sized> Model for $pointer {
            fn card(&self) -> &ModelCard {
                (**self).card()
            }

            async fn stream(&self, request: Request) -> Result<Deltas, ModelError> {
                (**self).stream(request).await
            }

            async fn complete(&self, request: Request) -> Result<Response, ModelError> {
                (**self).complete(request).await
            }

            fn cost_bound(&self, request: &Request) -> CostBound {
                (**self).cost_bound(request)
            }
        }
    )*};
}

forward_model!(std::sync::Arc<M>, Box<M>);

/// What is known of a model without calling it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModelCard {
    /// Who serves it.
    pub provider: String,
    /// Its name there.
    pub id: String,
    /// How many tokens a request and its reply may have together, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// How many tokens a reply may have, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u64>,
    /// What it costs, where known. Unknown is not free: see
    /// [`Limits::assumed_price`](crate::Limits).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    /// What it can do.
    #[serde(default)]
    pub abilities: Abilities,
}

impl ModelCard {
    /// A model of which nothing else is known.
    pub fn new(provider: impl Into<String>, id: impl Into<String>) -> Self {
        Self {
            provider: provider.into(),
            id: id.into(),
            window: None,
            max_output: None,
            price: None,
            abilities: Abilities::default(),
        }
    }

    /// Sets how many tokens a request and its reply may have together.
    #[must_use]
    pub fn with_window(mut self, tokens: u64) -> Self {
        self.window = Some(tokens);
        self
    }

    /// Sets how many tokens a reply may have.
    #[must_use]
    pub fn with_max_output(mut self, tokens: u64) -> Self {
        self.max_output = Some(tokens);
        self
    }

    /// Sets what it costs.
    #[must_use]
    pub fn with_price(mut self, price: Price) -> Self {
        self.price = Some(price);
        self
    }

    /// Sets what it can do.
    #[must_use]
    pub fn with_abilities(mut self, abilities: Abilities) -> Self {
        self.abilities = abilities;
        self
    }
}

/// What a model can do; a new model is taken to call tools and to keep to a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Abilities {
    /// It calls tools.
    pub tools: bool,
    /// It keeps to an output schema by itself; otherwise the schema is put into words.
    pub output_schema: bool,
    /// It sees images.
    pub images: bool,
    /// It thinks before it speaks.
    pub thinking: bool,
}

impl Default for Abilities {
    fn default() -> Self {
        Self {
            tools: true,
            output_schema: true,
            images: false,
            thinking: false,
        }
    }
}
