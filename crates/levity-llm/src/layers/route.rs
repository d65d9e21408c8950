//! The model [`Route`]: chooses one of several models for each request.
//!
//! The choice is a pure function of the request and the cards, so the same request always goes to
//! the same model, and a replay of a run makes the same choices. Nothing is sent to find out. The
//! router does not react to failures; wrap it, or its models, in `Fallback` or `Retry` for that.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{
    Capabilities, CostBound, Deltas, Model, ModelCard, ModelError, Money, Part, Request, Response,
};

use super::auto_thinking::asks_for_thought;
use super::fallback::common;
use super::flow;
use super::tally::{Tally, attempt, max_bound};

/// Chooses a model for each request by cost, by difficulty or by a custom rule.
///
/// By default it chooses the cheapest model that can serve the request. The model must support its
/// tools, images and schema, and its number of tokens (estimated at a quarter of the bytes). Models
/// without a known price rank after all others. If no model can serve the request, the first model
/// receives it and returns the error.
///
/// The card has the provider `route`, and its id lists all ids. When routing by cost or difficulty,
/// the card has the capabilities and the window that at least one model has. With a custom rule, it
/// has those that all models have. The price is the highest of all, and unknown if one of them is.
/// The usage has the cost of the model that answered.
///
/// ```
/// use levity_core::{Message, Model, ModelCard, Price, Request};
/// use levity_llm::layers::Route;
/// use levity_test::{ScriptedModel, Turn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::ModelError> {
/// let model = |name: &str, price| {
///     let card = ModelCard::new("test", name).with_price(Price::new(price, price));
///     ScriptedModel::looping(Turn::new().text(name).usage(10, 1)).with_card(card)
/// };
/// let cheapest = Route::new(model("large", 3.0)).or(model("small", 0.1));
/// assert_eq!(cheapest.complete(Request::new()).await?.message.text(), "small");
///
/// let by_difficulty = Route::new(model("small", 0.1)).or(model("large", 3.0)).by_difficulty();
/// let hard = Request::new().with_message(Message::user("Compare the two proofs, step by step."));
/// assert_eq!(by_difficulty.complete(hard).await?.message.text(), "large");
/// # Ok(())
/// # }
/// ```
pub struct Route {
    models: Vec<Arc<dyn Model>>,
    choice: Choice,
    card: ModelCard,
}

/// The rule that selects a model.
enum Choice {
    Cheapest,
    Difficulty(Arc<dyn Classifier>),
    Rule(Arc<Rule>),
}

/// A custom rule: the request and all cards in, the index of a model out.
type Rule = dyn Fn(&Request, &[&ModelCard]) -> usize + Send + Sync;

/// The difficulty of a request, which selects a model.
///
/// ```
/// use levity_llm::layers::Difficulty;
///
/// assert!(Difficulty::Easy < Difficulty::Medium && Difficulty::Medium < Difficulty::Hard);
/// ```
///
/// With two models, medium requests go to the second. With three, they go to the one in the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Difficulty {
    /// Any model can answer the request.
    Easy,
    /// A difficulty between easy and hard.
    Medium,
    /// The request needs the best model.
    Hard,
}

/// Classifies a request by difficulty without any I/O.
///
/// # Contract
/// - It performs no I/O and returns immediately.
/// - The same request always has the same difficulty.
///
/// Closures over `&Request` implement it. A type of your own can carry settings:
///
/// ```
/// use levity_core::{Message, Model, ModelCard, Request};
/// use levity_llm::layers::{Classifier, Difficulty, Route};
/// use levity_test::{ScriptedModel, Turn};
///
/// /// Treats long histories as hard.
/// struct ByTurns(usize);
///
/// impl Classifier for ByTurns {
///     fn difficulty(&self, request: &Request) -> Difficulty {
///         match request.history.messages().len() > self.0 {
///             true => Difficulty::Hard,
///             false => Difficulty::Easy,
///         }
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::ModelError> {
/// let model = |name: &str| {
///     ScriptedModel::looping(Turn::new().text(name)).with_card(ModelCard::new("test", name))
/// };
/// let route = Route::new(model("small")).or(model("large")).by_classifier(ByTurns(1));
/// let ask = Request::new().with_message(Message::user("Hello"));
/// assert_eq!(route.complete(ask.clone()).await?.message.text(), "small");
/// let longer = ask.with_message(Message::assistant("Hi")).with_message(Message::user("Why?"));
/// assert_eq!(route.complete(longer).await?.message.text(), "large");
/// # Ok(())
/// # }
/// ```
pub trait Classifier: Send + Sync {
    /// Returns the difficulty of the request.
    fn difficulty(&self, request: &Request) -> Difficulty;
}

impl<F: Fn(&Request) -> Difficulty + Send + Sync> Classifier for F {
    fn difficulty(&self, request: &Request) -> Difficulty {
        self(request)
    }
}

/// Classifies by the user's words and the size of the request. Words that call for thinking or more
/// than 40,000 bytes make it hard. More than 4,000 bytes or offered tools make it medium.
///
/// The words are those of [`AutoThinking`](super::AutoThinking). They are English; a long request
/// in another language still counts by its size.
fn by_words(request: &Request) -> Difficulty {
    let bytes = request.history.size();
    if asks_for_thought(request) || bytes > 40_000 {
        Difficulty::Hard
    } else if bytes > 4_000 || !request.tools.is_empty() {
        Difficulty::Medium
    } else {
        Difficulty::Easy
    }
}

impl Route {
    /// Creates a router with a first model.
    ///
    /// A router with one model always chooses it.
    pub fn new(model: impl Model + 'static) -> Self {
        let card = model.card().clone();
        Self {
            models: vec![Arc::new(model)],
            choice: Choice::Cheapest,
            card,
        }
        .with_card()
    }

    /// Adds a model. When routing by difficulty, later models serve harder requests.
    ///
    /// The order matters: it ranks the models by strength for routing by difficulty, and breaks
    /// ties of price for the cheapest.
    #[must_use]
    pub fn or(mut self, model: impl Model + 'static) -> Self {
        self.models.push(Arc::new(model));
        self.with_card()
    }

    /// Routes easy requests to the first model and hard ones to the last, based on words and
    /// length. A model that cannot serve the request is skipped in favour of the next.
    #[must_use]
    pub fn by_difficulty(self) -> Self {
        self.by_classifier(by_words)
    }

    /// Routes easy requests to the first model and hard ones to the last, based on `classifier`.
    #[must_use]
    pub fn by_classifier(mut self, classifier: impl Classifier + 'static) -> Self {
        self.choice = Choice::Difficulty(Arc::new(classifier));
        self.with_card()
    }

    /// Routes to the model at the index that the rule returns. An index that is too large selects
    /// the last model.
    ///
    /// ```
    /// use levity_core::{Model, ModelCard, Request, ToolSpec};
    /// use levity_llm::layers::Route;
    /// use levity_test::{ScriptedModel, Turn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::ModelError> {
    /// let model = |name: &str| {
    ///     ScriptedModel::looping(Turn::new().text(name)).with_card(ModelCard::new("test", name))
    /// };
    /// let route = Route::new(model("talker")).or(model("caller"));
    /// let route = route.by_rule(|request, _cards| usize::from(!request.tools.is_empty()));
    /// assert_eq!(route.complete(Request::new()).await?.message.text(), "talker");
    /// let request = Request::new().with_tools([ToolSpec::new("now", "Tells the time.").into()]);
    /// assert_eq!(route.complete(request).await?.message.text(), "caller");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn by_rule(
        mut self,
        rule: impl Fn(&Request, &[&ModelCard]) -> usize + Send + Sync + 'static,
    ) -> Self {
        self.choice = Choice::Rule(Arc::new(rule));
        self.with_card()
    }

    /// Recomputes the card after each change. A rule may choose any model, so its card promises
    /// only what all can do. The other choices skip models that cannot serve a request, so one able
    /// model suffices.
    fn with_card(mut self) -> Self {
        let any = !matches!(self.choice, Choice::Rule(_));
        let cards: Vec<&ModelCard> = self.models.iter().map(Model::card).collect();
        let ids: Vec<&str> = cards.iter().map(|card| card.id.as_str()).collect();
        let all = cards
            .iter()
            .skip(1)
            .fold(cards[0].clone(), |all, card| common(&all, card));
        let mut card = all;
        (card.provider, card.id) = ("route".into(), ids.join("|"));
        if any {
            // A model without a window accepts any number of tokens.
            card.window = cards
                .iter()
                .map(|card| card.window)
                .collect::<Option<Vec<_>>>()
                .and_then(|all| all.into_iter().max());
            card.capabilities = cards.iter().fold(card.capabilities, |all, card| {
                union_of(all, card.capabilities)
            });
        }
        self.card = card;
        self
    }

    /// Returns the model for a request. By difficulty, it prefers an able model at or above the
    /// wanted strength, then the nearest one below.
    fn choose(&self, request: &Request) -> &Arc<dyn Model> {
        let cards: Vec<&ModelCard> = self.models.iter().map(Model::card).collect();
        let last = self.models.len() - 1;
        let at = match &self.choice {
            Choice::Rule(rule) => rule(request, &cards),
            Choice::Cheapest => cheapest(request, &cards),
            Choice::Difficulty(classifier) => {
                let at = match classifier.difficulty(request) {
                    Difficulty::Easy => 0,
                    Difficulty::Medium => last.div_ceil(2),
                    Difficulty::Hard => last,
                };
                let harder = (at..=last).chain((0..at).rev());
                harder
                    .into_iter()
                    .find(|at| can_serve(cards[*at], request))
                    .unwrap_or(at)
            }
        };
        &self.models[at.min(last)]
    }
}

/// Returns the capabilities that at least one model has.
fn union_of(a: Capabilities, b: Capabilities) -> Capabilities {
    let mut union = a;
    union.tools |= b.tools;
    union.output_schema |= b.output_schema;
    union.images |= b.images;
    union.thinking |= b.thinking;
    union
}

/// The assumed length of a reply in tokens when prices are compared.
const REPLY: u64 = 1_000;

/// Returns the index of the able model with the lowest cost for the estimated input and a reply of
/// [`REPLY`] tokens; 0 if no model is able.
fn cheapest(request: &Request, cards: &[&ModelCard]) -> usize {
    let able = (0..cards.len()).filter(|at| can_serve(cards[*at], request));
    let cost = |at: &usize| {
        cards[*at].price.map_or(Money::MAX, |price| {
            price.max_cost(estimate_tokens(request), REPLY)
        })
    };
    able.min_by_key(cost).unwrap_or(0)
}

/// Estimates the number of tokens in a request.
///
/// A quarter of the bytes of the history and the system prompt, rounded up. Tools do not count
/// here.
fn estimate_tokens(request: &Request) -> u64 {
    let system = request.system.as_ref().map_or(0, |system| system.len());
    ((request.history.size() + system) as u64).div_ceil(4)
}

/// Returns `true` if a model can serve a request, as far as its card shows.
///
/// Media of any kind counts as an image, because the card has no other ability for it. A reply
/// limit of the request must fit the window together with the input.
fn can_serve(card: &ModelCard, request: &Request) -> bool {
    let mut parts = request
        .history
        .messages()
        .iter()
        .flat_map(|message| &message.parts);
    let images = !card.capabilities.images && parts.any(|part| matches!(part, Part::Media(_)));
    let tools = !card.capabilities.tools && !request.tools.is_empty();
    let schema = !card.capabilities.output_schema && request.output.is_some();
    let room = estimate_tokens(request).saturating_add(request.options.max_tokens.unwrap_or(0));
    !images && !tools && !schema && card.window.is_none_or(|window| room <= window)
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Model for Route {
    fn card(&self) -> &ModelCard {
        &self.card
    }

    async fn stream(&self, request: Request) -> Result<Deltas, ModelError> {
        let model = self.choose(&request).clone();
        Ok(flow::deltas(move |out| async move {
            let (mut tally, mut shown) = (Tally::default(), false);
            attempt(&*model, request, &out, &mut tally, &mut shown).await?;
            out.send(levity_core::Delta::Usage(tally.total(model.card())))
                .await;
            Ok(())
        }))
    }

    async fn complete(&self, request: Request) -> Result<Response, ModelError> {
        let model = self.choose(&request).clone();
        let response = model.complete(request).await?;
        Ok(Tally::default().close(response, model.card()))
    }

    /// Returns the highest bound of all models, because parts of a request may be routed to other
    /// models than the whole.
    fn cost_bound(&self, request: &Request) -> CostBound {
        let all = self.models.iter().map(|model| model.cost_bound(request));
        all.reduce(max_bound)
            .unwrap_or_else(|| CostBound::of(&self.card, request))
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route")
            .field("models", &self.card.id)
            .finish_non_exhaustive()
    }
}
