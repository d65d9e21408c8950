use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{CostBound, Deltas, ModelError, Price, Request, Response};

/// A language model: a request in, a stream of reply pieces out.
///
/// # Contract
/// - Nothing is sent before the returned future is first polled.
/// - Dropping the future, or the stream it returned, cancels the call.
/// - A model sends each request once; retries belong to a wrapper.
/// - `complete` returns the same reply as folding `stream`.
/// - No input makes it panic.
/// - `cost_bound` is never less than the actual cost of a call, provided that the provider respects
///   `max_tokens`.
///
/// Use `levity_test::conformance::model` to check an implementation.
///
/// ```
/// use async_trait::async_trait;
/// use levity_core::{Delta, Deltas, Model, ModelCard, ModelError, Request};
///
/// /// Repeats the last message it received.
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
    note = "`levity::model(\"openai:gpt-4o\")?` opens a model by name; any type that implements \
        `Model` is a model"
)]
#[async_trait]
pub trait Model: Send + Sync {
    /// Returns the provider, id, context window and capabilities, known without a call.
    fn card(&self) -> &ModelCard;

    /// Sends `request` and returns the reply as it arrives.
    async fn stream(&self, request: Request) -> Result<Deltas, ModelError>;

    /// Waits for the whole reply. Override this only if you can do better than folding the stream.
    async fn complete(&self, request: Request) -> Result<Response, ModelError> {
        self.stream(request).await?.fold().await
    }

    /// Returns an upper bound on the cost of `request`. The runtime calls it only if money or
    /// tokens are limited.
    ///
    /// The default is [`CostBound::of`]: correct for text, and far above the likely cost. Override
    /// it to count more precisely. A wrapper that may send a request more than once, or to another
    /// model, includes that here.
    ///
    /// It does no I/O and its time depends only on what is new in the request. The runtime may call
    /// it with parts of a request and add up the bounds.
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

/// The properties of a model that are known without a call.
///
/// ```
/// # use levity_core::{ModelCard, Price};
/// let card = ModelCard::new("openai", "gpt-4o")
///     .with_window(128_000)
///     .with_max_output(16_384)
///     .with_price(Price::new(2.5, 10.0));
/// assert!(card.capabilities.tools && !card.capabilities.images);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModelCard {
    /// The name of the provider.
    pub provider: String,
    /// The name of the model at the provider.
    pub id: String,
    /// The maximum tokens of a request and its reply together, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// The maximum tokens of a reply, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u64>,
    /// The price of the model, if known. An unknown price does not mean free: see
    /// [`Limits::assumed_price`](crate::Limits).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    /// The capabilities of the model.
    #[serde(default)]
    #[serde(alias = "abilities")]
    pub capabilities: Capabilities,
}

impl ModelCard {
    /// Creates a card with default capabilities and nothing else known.
    pub fn new(provider: impl Into<String>, id: impl Into<String>) -> Self {
        Self {
            provider: provider.into(),
            id: id.into(),
            window: None,
            max_output: None,
            price: None,
            capabilities: Capabilities::default(),
        }
    }

    /// Sets the maximum tokens of a request and its reply together.
    #[must_use]
    pub fn with_window(mut self, tokens: u64) -> Self {
        self.window = Some(tokens);
        self
    }

    /// Sets the maximum tokens of a reply.
    #[must_use]
    pub fn with_max_output(mut self, tokens: u64) -> Self {
        self.max_output = Some(tokens);
        self
    }

    /// Sets the price of the model.
    #[must_use]
    pub fn with_price(mut self, price: Price) -> Self {
        self.price = Some(price);
        self
    }

    /// Sets the capabilities of the model.
    #[must_use]
    pub fn with_capabilities(mut self, capabilities: Capabilities) -> Self {
        self.capabilities = capabilities;
        self
    }
}

/// The capabilities of a model; by default it can call tools and follow an output schema.
///
/// ```
/// # use levity_core::{Capabilities, ModelCard};
/// let mut sees = Capabilities::default();
/// sees.images = true;
/// assert!(ModelCard::new("example", "eye").with_capabilities(sees).capabilities.images);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Capabilities {
    /// The model can call tools.
    pub tools: bool,
    /// The model natively follows an output schema; otherwise the schema is described in the
    /// prompt.
    pub output_schema: bool,
    /// The model accepts images as input.
    pub images: bool,
    /// The model thinks before it answers.
    pub thinking: bool,
}

impl Default for Capabilities {
    fn default() -> Self {
        Self {
            tools: true,
            output_schema: true,
            images: false,
            thinking: false,
        }
    }
}
