use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{
    CostBound, Deltas, Model, ModelCard, ModelError, Request, Response, Role, ThinkingMode,
};

/// What words begin with that ask for thinking.
const WORDS: [&str; 26] = [
    "analys",
    "analyz",
    "compar",
    "contrast",
    "evaluat",
    "assess",
    "critiqu",
    "reason",
    "prove",
    "proof",
    "deriv",
    "deduc",
    "infer",
    "why",
    "explain how",
    "step by step",
    "trade-off",
    "tradeoff",
    "pros and cons",
    "root cause",
    "debug",
    "diagnos",
    "optimis",
    "optimiz",
    "strateg",
    "implication",
];

/// Switches thinking on for queries that need it.
///
/// A query needs it when one of its words begins with one of [`words`](Self::words) (`analys`,
/// `compar`, `why`, …), or when it is longer than [`longer_than`](Self::longer_than) (1,500
/// characters). The query is the last message of the user's. Thinking is then set to
/// [`mode`](Self::mode) (`Auto`), and left to the model otherwise.
///
/// A request that says itself how much to think is left alone, and so is a model that cannot think.
/// Where the reply has room for fewer than [`room`](Self::room) tokens (4,096), as when little of a
/// budget is left, nothing is switched on: thoughts would use up what the answer needs.
///
/// ```
/// use levity_core::{Abilities, Message, Model, ModelCard, Request, ThinkingMode};
/// use levity_llm::ModelExt;
/// use levity_test::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::ModelError> {
/// let mut abilities = Abilities::default();
/// abilities.thinking = true;
/// let inner = ScriptedModel::new().reply("yes").with_card(ModelCard::new("test", "m").with_abilities(abilities));
/// let model = inner.clone().auto_thinking();
/// model.complete(Request::new().with_message(Message::user("Compare the two plans"))).await?;
/// assert_eq!(inner.requests()[0].options.thinking, Some(ThinkingMode::Auto));
/// # Ok(())
/// # }
/// ```
pub struct AutoThinking<M> {
    inner: M,
    words: Vec<String>,
    longer_than: usize,
    room: u64,
    mode: ThinkingMode,
    otherwise: Option<ThinkingMode>,
    rule: Option<Rule>,
}

type Rule = Arc<dyn Fn(&Request) -> Option<ThinkingMode> + Send + Sync>;

impl<M: Model> AutoThinking<M> {
    /// How long a query must be to need thinking whatever its words: over 1,500 characters.
    pub const DEFAULT_LONGER_THAN: usize = 1_500;

    /// How many tokens a reply must have room for, for thinking to be switched on: 4,096.
    pub const DEFAULT_ROOM: u64 = 4_096;

    /// Wraps a model.
    pub fn new(model: M) -> Self {
        let words = WORDS.map(str::to_owned).to_vec();
        let (longer_than, mode) = (Self::DEFAULT_LONGER_THAN, ThinkingMode::Auto);
        let room = Self::DEFAULT_ROOM;
        Self {
            inner: model,
            words,
            longer_than,
            room,
            mode,
            otherwise: None,
            rule: None,
        }
    }

    /// Sets the words that ask for thinking: a word of the query must begin with one of them, in
    /// any case.
    #[must_use]
    pub fn words(mut self, words: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.words = words
            .into_iter()
            .map(|word| word.into().to_lowercase())
            .collect();
        self.words.retain(|word| !word.is_empty());
        self
    }

    /// Sets how many characters a query must have more than to need thinking whatever its words.
    #[must_use]
    pub fn longer_than(mut self, characters: usize) -> Self {
        self.longer_than = characters;
        self
    }

    /// Sets how many tokens a reply must have room for, for thinking to be switched on.
    #[must_use]
    pub fn room(mut self, tokens: u64) -> Self {
        self.room = tokens;
        self
    }

    /// Sets how much to think about a query that needs it.
    #[must_use]
    pub fn mode(mut self, mode: ThinkingMode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets how much to think about all other queries; by default that is left to the model.
    #[must_use]
    pub fn otherwise(mut self, mode: ThinkingMode) -> Self {
        self.otherwise = Some(mode);
        self
    }

    /// Sets another rule, in place of words and length.
    #[must_use]
    pub fn rule(
        mut self,
        rule: impl Fn(&Request) -> Option<ThinkingMode> + Send + Sync + 'static,
    ) -> Self {
        self.rule = Some(Arc::new(rule));
        self
    }

    fn prepare(&self, mut request: Request) -> Request {
        if request.options.thinking.is_some() || !self.inner.card().abilities.thinking {
            return request;
        }
        let mode = match &self.rule {
            Some(rule) => rule(&request),
            None => self.needed(&request).then_some(self.mode),
        };
        let has_room = request
            .options
            .max_tokens
            .is_none_or(|most| most >= self.room);
        let fits = |mode: &ThinkingMode| {
            has_room || matches!(mode, ThinkingMode::Off | ThinkingMode::Budget(0))
        };
        if let Some(mode) = mode.or(self.otherwise).filter(fits) {
            Arc::make_mut(&mut request.options).thinking = Some(mode);
        }
        request
    }

    fn needed(&self, request: &Request) -> bool {
        let query = query(request);
        query.chars().nth(self.longer_than).is_some() || has_word(&query, &self.words)
    }
}

/// The last thing the user said.
pub(super) fn query(request: &Request) -> String {
    let mut messages = request.history.messages().iter().rev();
    messages
        .find(|message| message.role == Role::User)
        .map(|message| message.text().into_owned())
        .unwrap_or_default()
}

/// Whether a word of the text begins with one of `words`, which are in lower case.
pub(super) fn has_word(text: &str, words: &[impl AsRef<str>]) -> bool {
    let text = text.to_lowercase();
    let begins = |at: usize| !text[..at].ends_with(|before: char| before.is_alphanumeric());
    words
        .iter()
        .any(|word| text.match_indices(word.as_ref()).any(|(at, _)| begins(at)))
}

/// Whether the query of a request asks for some thought, by its words.
pub(super) fn asks_for_thought(request: &Request) -> bool {
    has_word(&query(request), &WORDS)
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<M: Model> Model for AutoThinking<M> {
    fn card(&self) -> &ModelCard {
        self.inner.card()
    }

    async fn stream(&self, request: Request) -> Result<Deltas, ModelError> {
        self.inner.stream(self.prepare(request)).await
    }

    async fn complete(&self, request: Request) -> Result<Response, ModelError> {
        self.inner.complete(self.prepare(request)).await
    }

    fn cost_bound(&self, request: &Request) -> CostBound {
        // How much is thought does not change how many tokens may be received.
        self.inner.cost_bound(request)
    }
}

impl<M: Model> fmt::Debug for AutoThinking<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let model = &self.inner.card().id;
        f.debug_struct("AutoThinking")
            .field("model", model)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}
