//! The layer [`Defaults`]: fills in options that a request leaves open.
//!
//! Profiles of the model list use it for their `options`. Options are shared and copied on write. A
//! layer whose own options are all open, as in most profiles, leaves requests untouched.

use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{CostBound, Deltas, Model, ModelCard, ModelError, Options, Request, Response};

/// Sets options that requests do not set themselves.
///
/// ```
/// use levity_core::{Model, Options, Request};
/// use levity_llm::ModelExt;
/// use levity_test::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::ModelError> {
/// let mut options = Options::new();
/// options.temperature = Some(0.0);
/// let inner = ScriptedModel::new().reply("yes");
/// inner.clone().defaults(options).complete(Request::new()).await?;
/// assert_eq!(inner.requests()[0].options.temperature, Some(0.0));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Defaults<M> {
    inner: M,
    options: Options,
}

impl<M: Model> Defaults<M> {
    /// Wraps a model with default options.
    ///
    /// An option of the request always takes precedence. Stop sequences are one option: those of
    /// the request replace the default ones. Extra fields are merged by name, and a field of the
    /// request wins.
    pub fn new(model: M, options: Options) -> Self {
        Self {
            inner: model,
            options,
        }
    }

    /// Returns the request with all open options set. [`Model::cost_bound`] uses it as well,
    /// because a default for `max_tokens` changes the cost.
    fn fill(&self, mut request: Request) -> Request {
        if self.options != Options::default() {
            let options = Arc::make_mut(&mut request.options);
            let own = &self.options;
            options.temperature = options.temperature.or(own.temperature);
            options.top_p = options.top_p.or(own.top_p);
            options.max_tokens = options.max_tokens.or(own.max_tokens);
            options.thinking = options.thinking.or(own.thinking);
            options.seed = options.seed.or(own.seed);
            if options.label.is_none() {
                options.label.clone_from(&own.label);
            }
            if options.stop.is_empty() {
                options.stop.clone_from(&own.stop);
            }
            for (name, value) in &own.extra {
                options
                    .extra
                    .entry(name.clone())
                    .or_insert_with(|| value.clone());
            }
        }
        request
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<M: Model> Model for Defaults<M> {
    fn card(&self) -> &ModelCard {
        self.inner.card()
    }

    async fn stream(&self, request: Request) -> Result<Deltas, ModelError> {
        self.inner.stream(self.fill(request)).await
    }

    async fn complete(&self, request: Request) -> Result<Response, ModelError> {
        self.inner.complete(self.fill(request)).await
    }

    fn cost_bound(&self, request: &Request) -> CostBound {
        self.inner.cost_bound(&self.fill(request.clone()))
    }
}
