use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{ModelError, Usage};

/// Scores how well texts answer a query, so that a search can order its best results again.
///
/// A reranker reads the query and a text together. It is therefore more accurate than an
/// [`Embedder`](crate::Embedder), and too slow for more than some dozens of texts.
///
/// # Contract
/// - It returns one score per text, in the order of the texts. A higher score is a better match.
/// - No score is infinite or not a number. Scores of different calls cannot be compared.
/// - For no texts, it returns no scores and sends nothing.
/// - Nothing is sent before the returned future is first polled; dropping it cancels the call.
/// - No input makes it panic.
///
/// Use `levity_test::conformance::reranker` to check an implementation.
///
/// ```
/// use async_trait::async_trait;
/// use levity_core::{ModelError, Reranker, RerankerCard, Reranking};
///
/// /// Prefers texts that contain the query, and short ones.
/// struct Contains(RerankerCard);
///
/// #[async_trait]
/// impl Reranker for Contains {
///     fn card(&self) -> &RerankerCard {
///         &self.0
///     }
///
///     async fn rerank(&self, query: &str, texts: &[String]) -> Result<Reranking, ModelError> {
///         let score = |text: &String| match text.contains(query) {
///             true => 1.0 / (text.len() as f32 + 1.0),
///             false => -1.0,
///         };
///         Ok(Reranking::new(texts.iter().map(score).collect()))
///     }
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), ModelError> {
/// let contains = Contains(RerankerCard::new("example", "contains"));
/// let texts = ["a boat".to_owned(), "high tide".to_owned()];
/// let found = contains.rerank("tide", &texts).await?;
/// assert!(found.scores[1] > found.scores[0]);
/// # Ok(())
/// # }
/// ```
#[async_trait]
pub trait Reranker: Send + Sync {
    /// Returns the identity of this reranker, known without a call.
    fn card(&self) -> &RerankerCard;

    /// Returns the scores of these texts for a query.
    async fn rerank(&self, query: &str, texts: &[String]) -> Result<Reranking, ModelError>;
}

macro_rules! forward_reranker {
    ($($pointer:ty),*) => {$(
        #[async_trait]
        #[deny(clippy::missing_trait_methods)]
        impl<R: Reranker + ?Sized> Reranker for $pointer {
            fn card(&self) -> &RerankerCard {
                (**self).card()
            }

            async fn rerank(
                &self,
                query: &str,
                texts: &[String],
            ) -> Result<Reranking, ModelError> {
                (**self).rerank(query, texts).await
            }
        }
    )*};
}

forward_reranker!(std::sync::Arc<R>, Box<R>);

/// The identity of a reranker, known without a call.
///
/// ```
/// # use levity_core::RerankerCard;
/// let card = RerankerCard::new("compatible", "bge-reranker-v2-m3");
/// assert_eq!(card.id, "bge-reranker-v2-m3");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RerankerCard {
    /// The name of the provider.
    pub provider: String,
    /// The name of the reranker at the provider.
    pub id: String,
}

impl RerankerCard {
    /// Creates the card of a provider's reranker.
    pub fn new(provider: impl Into<String>, id: impl Into<String>) -> Self {
        Self {
            provider: provider.into(),
            id: id.into(),
        }
    }
}

/// The scores of a list of texts.
///
/// ```
/// # use levity_core::{Reranking, Usage};
/// let found = Reranking::new(vec![0.2, 0.9, 0.4]).with_usage(Usage::new(90, 0));
/// assert_eq!(found.order(), [1, 2, 0]);
/// assert_eq!(found.usage.total(), 90);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Reranking {
    /// One score per text, in the order of the texts.
    pub scores: Vec<f32>,
    /// The tokens and money that the call used.
    pub usage: Usage,
}

impl Reranking {
    /// Creates a result with these scores and no usage.
    pub fn new(scores: Vec<f32>) -> Self {
        Self {
            scores,
            usage: Usage::default(),
        }
    }

    /// Sets the tokens and money that the call used.
    #[must_use]
    pub fn with_usage(mut self, usage: Usage) -> Self {
        self.usage = usage;
        self
    }

    /// Returns the positions of the texts, best first. Texts with equal scores keep their order.
    pub fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.scores.len()).collect();
        order.sort_by(|a, b| self.scores[*b].total_cmp(&self.scores[*a]));
        order
    }
}
