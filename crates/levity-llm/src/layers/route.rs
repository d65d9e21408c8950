use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{
    Abilities, CostBound, Deltas, Model, ModelCard, ModelError, Money, Part, Request, Response,
};

use super::auto_thinking::asks_for_thought;
use super::fallback::common;
use super::flow;
use super::tally::{Tally, attempt, either};

/// Chooses a model for each request: by cost, by difficulty, or by a rule of one's own.
///
/// By default it takes the cheapest model that can do what the request needs: call tools, see
/// images, keep to a schema, take in so many tokens (estimated at a quarter of the bytes). Models
/// whose price is not known come after those whose price is. When none can, the first is asked, and
/// says why it cannot.
///
/// The card has the provider `route` and all ids as its id. Chosen by cost or difficulty, its
/// abilities and its window are those that some model has; by a rule of one's own, those that all
/// have. Its price is the dearest, and unknown when one is. The usage has the cost of the model
/// that answered.
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

enum Choice {
    Cheapest,
    Difficulty(Arc<dyn Classifier>),
    Rule(Arc<Rule>),
}

type Rule = dyn Fn(&Request, &[&ModelCard]) -> usize + Send + Sync;

/// How hard a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Difficulty {
    /// Any model will do.
    Easy,
    /// In between.
    Medium,
    /// The best model is needed.
    Hard,
}

/// Says how hard a request is, without asking anybody.
///
/// # Contract
/// - It does no I/O and returns at once.
/// - The same request is always as hard.
pub trait Classifier: Send + Sync {
    /// How hard the request is.
    fn difficulty(&self, request: &Request) -> Difficulty;
}

impl<F: Fn(&Request) -> Difficulty + Send + Sync> Classifier for F {
    fn difficulty(&self, request: &Request) -> Difficulty {
        self(request)
    }
}

/// Goes by the user's words and how much there is to read: what asks for thought is hard, and so is
/// what has more than 40,000 bytes; what has more than 4,000 bytes or offers tools is in between.
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
    /// Begins with a model.
    pub fn new(model: impl Model + 'static) -> Self {
        let card = model.card().clone();
        Self {
            models: vec![Arc::new(model)],
            choice: Choice::Cheapest,
            card,
        }
        .with_card()
    }

    /// Adds a model. Where difficulty decides, those added later are for what is harder.
    #[must_use]
    pub fn or(mut self, model: impl Model + 'static) -> Self {
        self.models.push(Arc::new(model));
        self.with_card()
    }

    /// Takes the first model for what is easy and the last for what is hard, as words and length
    /// have it; one that cannot do what the request needs is passed over for the next.
    #[must_use]
    pub fn by_difficulty(self) -> Self {
        self.by_difficulty_of(by_words)
    }

    /// Takes the first model for what is easy and the last for what is hard, as `classifier` has
    /// it.
    #[must_use]
    pub fn by_difficulty_of(mut self, classifier: impl Classifier + 'static) -> Self {
        self.choice = Choice::Difficulty(Arc::new(classifier));
        self.with_card()
    }

    /// Takes the model whose place the rule returns, counted from 0; a number too large means the
    /// last.
    #[must_use]
    pub fn by(
        mut self,
        rule: impl Fn(&Request, &[&ModelCard]) -> usize + Send + Sync + 'static,
    ) -> Self {
        self.choice = Choice::Rule(Arc::new(rule));
        self.with_card()
    }

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
            // Without a window, a model takes as much as can be known.
            card.window = cards
                .iter()
                .map(|card| card.window)
                .collect::<Option<Vec<_>>>()
                .and_then(|all| all.into_iter().max());
            card.abilities = cards
                .iter()
                .fold(card.abilities, |all, card| some(all, card.abilities));
        }
        self.card = card;
        self
    }

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
                    .find(|at| can(cards[*at], request))
                    .unwrap_or(at)
            }
        };
        &self.models[at.min(last)]
    }
}

fn some(a: Abilities, b: Abilities) -> Abilities {
    let mut some = a;
    some.tools |= b.tools;
    some.output_schema |= b.output_schema;
    some.images |= b.images;
    some.thinking |= b.thinking;
    some
}

/// How long a reply is taken to be when prices are compared, in tokens.
const REPLY: u64 = 1_000;

fn cheapest(request: &Request, cards: &[&ModelCard]) -> usize {
    let able = (0..cards.len()).filter(|at| can(cards[*at], request));
    let cost = |at: &usize| {
        cards[*at]
            .price
            .map_or(Money::MAX, |price| price.most(size(request), REPLY))
    };
    able.min_by_key(cost).unwrap_or(0)
}

/// How many tokens a request is thought to be.
fn size(request: &Request) -> u64 {
    let system = request.system.as_ref().map_or(0, |system| system.len());
    ((request.history.size() + system) as u64).div_ceil(4)
}

/// Whether a model can do what a request needs, as far as its card says.
fn can(card: &ModelCard, request: &Request) -> bool {
    let mut parts = request
        .history
        .messages()
        .iter()
        .flat_map(|message| &message.parts);
    let images = !card.abilities.images && parts.any(|part| matches!(part, Part::Media(_)));
    let tools = !card.abilities.tools && !request.tools.is_empty();
    let schema = !card.abilities.output_schema && request.output.is_some();
    let room = size(request).saturating_add(request.options.max_tokens.unwrap_or(0));
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

    /// The most that any of the models can take: a request that is asked about in pieces would be
    /// routed otherwise than the whole.
    fn cost_bound(&self, request: &Request) -> CostBound {
        let all = self.models.iter().map(|model| model.cost_bound(request));
        all.reduce(either)
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
