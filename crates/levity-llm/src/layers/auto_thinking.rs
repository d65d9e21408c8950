//! The layer [`AutoThinking`]: turns thinking on for queries that seem to need it.
//!
//! Thinking costs tokens and time, and most queries do not need it. The decision uses the words and
//! the length of the user's last message, without a call and the same way every time. Words match
//! at their start only, in lower case, so that `analys` finds "analysis" and "analyse", and `why`
//! does not match inside of another word.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{
    CostBound, Deltas, Model, ModelCard, ModelError, Request, Response, Role, ThinkingMode,
};

/// Prefixes of words that call for thinking.
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

/// Enables thinking for queries that need it.
///
/// A query needs thinking if one of its words starts with one of [`words`](Self::words) (`analys`,
/// `compar`, `why`, …). It also needs thinking if it is longer than
/// [`longer_than`](Self::longer_than) (1,500 characters). The query is the user's last message. The
/// layer then sets thinking to [`mode`](Self::mode) (`Auto`), and otherwise leaves it to the model.
///
/// The layer does not change a request that sets its own thinking mode, or any request to a model
/// that cannot think. It also enables nothing if the reply has room for fewer than
/// [`min_reply_tokens`](Self::min_reply_tokens) tokens (4,096), for example near the end of a
/// budget. Thoughts would otherwise use up the tokens that the answer needs.
///
/// ```
/// use levity_core::{Capabilities, Message, Model, ModelCard, Request, ThinkingMode};
/// use levity_llm::ModelExt;
/// use levity_test::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::ModelError> {
/// let mut capabilities = Capabilities::default();
/// capabilities.thinking = true;
/// let inner = ScriptedModel::new()
///     .reply("yes")
///     .with_card(ModelCard::new("test", "m").with_capabilities(capabilities));
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
    /// The number of tokens that a reply must have room for.
    room: u64,
    mode: ThinkingMode,
    /// The mode of queries that need no thinking; `None` leaves it to the model.
    otherwise: Option<ThinkingMode>,
    /// A rule that replaces the checks of words and length.
    rule: Option<Rule>,
}

/// A custom decision: the mode for a request, or `None` to use the default mode.
type Rule = Arc<dyn Fn(&Request) -> Option<ThinkingMode> + Send + Sync>;

impl<M: Model> AutoThinking<M> {
    /// The default query length above which thinking is enabled: 1,500 characters.
    pub const DEFAULT_LONGER_THAN: usize = 1_500;

    /// The default minimum reply size for thinking to be enabled: 4,096 tokens.
    pub const DEFAULT_ROOM: u64 = 4_096;

    /// Wraps the given model.
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

    /// Sets the words that call for thinking. A word of the query must start with one of them,
    /// ignoring case.
    ///
    /// ```
    /// use levity_core::{Capabilities, Message, Model, ModelCard, Request, ThinkingMode};
    /// use levity_llm::ModelExt;
    /// use levity_test::{ScriptedModel, Turn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::ModelError> {
    /// let mut capabilities = Capabilities::default();
    /// capabilities.thinking = true;
    /// let card = ModelCard::new("test", "m").with_capabilities(capabilities);
    /// let inner = ScriptedModel::looping(Turn::new().text("ok")).with_card(card);
    /// let model = inner.clone().auto_thinking().words(["warum", "vergleich"]);
    /// for text in ["Warum ist der Himmel blau?", "Guten Morgen!"] {
    ///     model.complete(Request::new().with_message(Message::user(text))).await?;
    /// }
    /// let modes: Vec<_> = inner.requests().iter().map(|sent| sent.options.thinking).collect();
    /// assert_eq!(modes, [Some(ThinkingMode::Auto), None]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn words(mut self, words: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.words = words
            .into_iter()
            .map(|word| word.into().to_lowercase())
            .collect();
        self.words.retain(|word| !word.is_empty());
        self
    }

    /// Sets the length in characters above which a query needs thinking regardless of its words.
    ///
    /// Use `usize::MAX` to ignore the length.
    #[must_use]
    pub fn longer_than(mut self, characters: usize) -> Self {
        self.longer_than = characters;
        self
    }

    /// Sets the minimum reply size in tokens for thinking to be enabled.
    ///
    /// The limit applies to requests with their own `max_tokens`. Without one, there is always
    /// room. A mode that turns thinking off is set in any case.
    #[must_use]
    pub fn min_reply_tokens(mut self, tokens: u64) -> Self {
        self.room = tokens;
        self
    }

    /// Sets the thinking mode for a query that needs it.
    #[must_use]
    pub fn mode(mut self, mode: ThinkingMode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets the thinking mode for all other queries; by default the model decides.
    ///
    /// ```
    /// use levity_core::{Capabilities, Message, Model, ModelCard, Request, ThinkingMode};
    /// use levity_llm::ModelExt;
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::ModelError> {
    /// # let mut capabilities = Capabilities::default();
    /// # capabilities.thinking = true;
    /// # let card = ModelCard::new("test", "m").with_capabilities(capabilities);
    /// let inner = ScriptedModel::new().reply("Hi").with_card(card);
    /// let model = inner.clone().auto_thinking().default_mode(ThinkingMode::Off);
    /// model.complete(Request::new().with_message(Message::user("Hello"))).await?;
    /// assert_eq!(inner.requests()[0].options.thinking, Some(ThinkingMode::Off));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn default_mode(mut self, mode: ThinkingMode) -> Self {
        self.otherwise = Some(mode);
        self
    }

    /// Sets a custom rule that replaces the checks of words and length.
    ///
    /// A rule that returns `None` falls back to the [default mode](Self::default_mode). The other
    /// conditions still apply: the model can think, the request sets no mode, and the reply has
    /// room.
    #[must_use]
    pub fn rule(
        mut self,
        rule: impl Fn(&Request) -> Option<ThinkingMode> + Send + Sync + 'static,
    ) -> Self {
        self.rule = Some(Arc::new(rule));
        self
    }

    /// Returns the request with a thinking mode, if one applies.
    fn prepare(&self, mut request: Request) -> Request {
        if request.options.thinking.is_some() || !self.inner.card().capabilities.thinking {
            return request;
        }
        let mode = match &self.rule {
            Some(rule) => rule(&request),
            None => self.needed(&request).then_some(self.mode),
        };
        let has_room = request
            .options
            .max_tokens
            .is_none_or(|tokens| tokens >= self.room);
        let fits = |mode: &ThinkingMode| {
            has_room || matches!(mode, ThinkingMode::Off | ThinkingMode::Budget(0))
        };
        if let Some(mode) = mode.or(self.otherwise).filter(fits) {
            Arc::make_mut(&mut request.options).thinking = Some(mode);
        }
        request
    }

    /// Finding the character at the limit avoids counting a long text to its end.
    fn needed(&self, request: &Request) -> bool {
        let query = query(request);
        query.chars().nth(self.longer_than).is_some() || has_word(&query, &self.words)
    }
}

/// Returns the text of the user's last message.
pub(super) fn query(request: &Request) -> String {
    let mut messages = request.history.messages().iter().rev();
    messages
        .find(|message| message.role == Role::User)
        .map(|message| message.text().into_owned())
        .unwrap_or_default()
}

/// Returns `true` if a word of the text starts with one of `words`, which are in lower case.
///
/// `text` is compared in lower case. A match must not follow a letter or digit.
pub(super) fn has_word(text: &str, words: &[impl AsRef<str>]) -> bool {
    let text = text.to_lowercase();
    let begins = |at: usize| !text[..at].ends_with(|before: char| before.is_alphanumeric());
    words
        .iter()
        .any(|word| text.match_indices(word.as_ref()).any(|(at, _)| begins(at)))
}

/// Returns `true` if the words of the request's query call for thinking.
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
        // The amount of thinking does not change how many tokens may be received.
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
