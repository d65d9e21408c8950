//! The layer [`Fallback`]: calls a second model when the first one fails.
//!
//! The card is computed once, from both cards, and promises only what both models can do. A caller
//! that plans by the card, such as compaction or a budget, is right whichever model answers. The
//! layer calls each model once; a retry belongs inside of it, around one of the models.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{
    Capabilities, CostBound, Delta, Deltas, Model, ModelCard, ModelError, ModelErrorKind, Request,
    Response,
};

use super::log;
use super::tally::{Tally, attempt, dearest, max_bound};
use super::{ErrorFilter, flow};

/// Calls the next model when the first one fails.
///
/// By default it does so after [transient errors](ModelErrorKind::is_retryable); use
/// [`on`](Self::on) to choose others. Once it has forwarded part of the first reply, it does not
/// call the next model unless you allow it with
/// [`restart_after_first_delta`](Self::restart_after_first_delta). A [`Delta::Restart`] reports
/// that the next model is called.
///
/// The card has the first model's name. All other values hold for both models: the smaller window,
/// the capabilities that both have and the higher price. If both models fail, the layer returns the
/// second error. The usage covers both models, and its cost uses the price of the model that
/// answered.
///
/// ```
/// use levity_core::{Model, ModelErrorKind, Request};
/// use levity_llm::ModelExt;
/// use levity_test::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::ModelError> {
/// let first = ScriptedModel::new().fail(ModelErrorKind::Overloaded);
/// let model = first.fallback(ScriptedModel::new().reply("from the second"));
/// assert_eq!(model.complete(Request::new()).await?.message.text(), "from the second");
/// # Ok(())
/// # }
/// ```
///
/// # Cost
/// [`CostBound::sends`](levity_core::CostBound) is the sum of both models, because each may be
/// charged. If the first model failed after it may have cost something, the usage is an estimate
/// without a cost.
pub struct Fallback<A, B> {
    first: Arc<A>,
    next: Arc<B>,
    /// The errors after which the next model is called.
    on: ErrorFilter,
    /// True if the next model may be called after part of the first reply was forwarded.
    restart: bool,
    card: ModelCard,
}

impl<A: Model + 'static, B: Model + 'static> Fallback<A, B> {
    /// Creates a layer that calls `first`, and `next` if `first` fails.
    pub fn new(first: A, next: B) -> Self {
        let card = common(first.card(), next.card());
        let on = ErrorFilter::new(ModelErrorKind::is_retryable);
        Self {
            first: Arc::new(first),
            next: Arc::new(next),
            on,
            restart: false,
            card,
        }
    }

    /// Sets the errors after which the next model is called.
    ///
    /// The default leaves out errors that the request itself causes, such as
    /// [`ContextTooLong`](ModelErrorKind::ContextTooLong). Add them if the next model may accept
    /// the request:
    ///
    /// ```
    /// use levity_core::{Model, ModelErrorKind, Request};
    /// use levity_llm::ModelExt;
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::ModelError> {
    /// let small = ScriptedModel::new().fail(ModelErrorKind::ContextTooLong);
    /// let model = small
    ///     .fallback(ScriptedModel::new().reply("from the large one"))
    ///     .on(|kind| kind.is_retryable() || kind == ModelErrorKind::ContextTooLong);
    /// assert_eq!(model.complete(Request::new()).await?.message.text(), "from the large one");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn on(mut self, kinds: impl Fn(ModelErrorKind) -> bool + Send + Sync + 'static) -> Self {
        self.on = ErrorFilter::new(kinds);
        self
    }

    /// Calls the next model even if part of the reply was already forwarded. A [`Delta::Restart`]
    /// instructs consumers to discard the part that they received.
    ///
    /// [`complete`](Model::complete) ignores this setting, because it shows nothing before its end.
    #[must_use]
    pub fn restart_after_first_delta(mut self) -> Self {
        self.restart = true;
        self
    }
}

/// Returns a card with the first card's name and the values that hold for both.
///
/// An unknown window counts as unlimited, so a known one wins. A price that only one card has is
/// unknown for both, because a budget must not count a paid call as free.
pub(super) fn common(a: &ModelCard, b: &ModelCard) -> ModelCard {
    let smaller = |a: Option<u64>, b: Option<u64>| [a, b].into_iter().flatten().min();
    let mut card = a.clone();
    card.window = smaller(a.window, b.window);
    card.max_output = smaller(a.max_output, b.max_output);
    card.price = dearest(a.price, b.price);
    card.capabilities = both(a.capabilities, b.capabilities);
    card
}

/// Returns the capabilities that both models have.
fn both(a: Capabilities, b: Capabilities) -> Capabilities {
    let mut both = a;
    both.tools &= b.tools;
    both.output_schema &= b.output_schema;
    both.images &= b.images;
    both.thinking &= b.thinking;
    both
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<A: Model + 'static, B: Model + 'static> Model for Fallback<A, B> {
    fn card(&self) -> &ModelCard {
        &self.card
    }

    async fn stream(&self, request: Request) -> Result<Deltas, ModelError> {
        let (first, next, on) = (self.first.clone(), self.next.clone(), self.on.clone());
        let restart = self.restart;
        Ok(flow::deltas(move |out| async move {
            let (mut tally, mut shown) = (Tally::default(), false);
            let mut card = first.card();
            if let Err(error) =
                attempt(&*first, request.clone(), &out, &mut tally, &mut shown).await
            {
                let error = tally.fail(error);
                if !on.contains(error.kind()) || (shown && !restart) {
                    return Err(error);
                }
                log::falling_back(card, next.card(), &error);
                card = next.card();
                let reason = format!(
                    "`{}` failed: {error}; falling back to `{}`",
                    first.card().id,
                    card.id
                );
                out.send(Delta::Restart { reason }).await;
                let reply = attempt(&*next, request, &out, &mut tally, &mut shown).await;
                reply.map_err(|error| tally.fail(error))?;
            }
            out.send(Delta::Usage(tally.total(card))).await;
            Ok(())
        }))
    }

    async fn complete(&self, request: Request) -> Result<Response, ModelError> {
        let mut tally = Tally::default();
        match self.first.complete(request.clone()).await {
            Ok(response) => Ok(tally.close(response, self.first.card())),
            Err(error) => {
                let error = tally.fail(error);
                if !self.on.contains(error.kind()) {
                    return Err(error);
                }
                log::falling_back(self.first.card(), self.next.card(), &error);
                let reply = self
                    .next
                    .complete(request)
                    .await
                    .map_err(|error| tally.fail(error))?;
                Ok(tally.close(reply, self.next.card()))
            }
        }
    }

    fn cost_bound(&self, request: &Request) -> CostBound {
        let (first, next) = (
            self.first.cost_bound(request),
            self.next.cost_bound(request),
        );
        max_bound(first, next).with_sends(first.sends.saturating_add(next.sends))
    }
}

impl<A: Model, B: Model> fmt::Debug for Fallback<A, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, next) = (&self.first.card().id, &self.next.card().id);
        f.debug_struct("Fallback")
            .field("first", first)
            .field("next", next)
            .finish()
    }
}
