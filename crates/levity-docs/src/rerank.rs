//! The services that may improve a search: a reranker and a rewriter. Their failures never fail it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use levity_core::{ModelError, ModelErrorKind, Reranker, Reranking, Usage, World};
use levity_search::CircuitBreaker;

use crate::QueryRewriter;

/// The timeout of a call to a model.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A reranker that is not called for a while after a failure.
#[derive(Clone)]
pub(crate) struct OptionalReranker {
    reranker: Arc<dyn Reranker>,
    breaker: CircuitBreaker,
}

impl fmt::Debug for OptionalReranker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reranker")
            .field(self.reranker.card())
            .finish()
    }
}

impl OptionalReranker {
    pub(crate) fn new(reranker: Arc<dyn Reranker>) -> Self {
        Self {
            reranker,
            breaker: CircuitBreaker::new("the reranker", TIMEOUT),
        }
    }

    /// Returns one finite score for each text.
    pub(crate) async fn rerank(
        &self,
        world: &dyn World,
        question: &str,
        texts: &[String],
    ) -> Result<Reranking, ModelError> {
        let call = async {
            let found = self.reranker.rerank(question, texts).await?;
            let valid = found.scores.len() == texts.len()
                && found.scores.iter().all(|score| score.is_finite());
            if valid {
                return Ok(found);
            }
            let message = "the reranker must return one finite score per text";
            Err(ModelError::new(ModelErrorKind::Malformed, message))
        };
        self.breaker.call(world, call).await
    }
}

/// A rewriter that is not called for a while after a failure.
#[derive(Clone, Debug)]
pub(crate) struct OptionalRewriter {
    rewriter: QueryRewriter,
    breaker: CircuitBreaker,
}

impl OptionalRewriter {
    pub(crate) fn new(rewriter: QueryRewriter) -> Self {
        Self {
            rewriter,
            breaker: CircuitBreaker::new("the model that writes queries", TIMEOUT),
        }
    }

    pub(crate) async fn rewrite(
        &self,
        world: &dyn World,
        question: &str,
    ) -> Result<(Vec<String>, Usage), ModelError> {
        let call = self.rewriter.rewrite(question);
        self.breaker.call(world, call).await
    }
}

/// Orders the first chunks by the scores of a reranker. All scores stay between 0 and 1, and the
/// other chunks stay behind.
pub(crate) fn reorder(best: &mut Vec<(i64, f32)>, reranked: &[(i64, f32)]) {
    best.retain(|(key, _)| !reranked.iter().any(|(other, _)| other == key));
    let floor = best.first().map_or(0.0, |(_, score)| score.clamp(0.0, 1.0));
    let scores = || reranked.iter().map(|(_, score)| f64::from(*score));
    let (lowest, highest) = (
        scores().fold(f64::MAX, f64::min),
        scores().fold(f64::MIN, f64::max),
    );
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the value is between 0 and 1"
    )]
    let scaled = |score: f32| match highest > lowest {
        true => ((f64::from(score) - lowest) / (highest - lowest)) as f32,
        false => 1.0,
    };
    let mut first: Vec<(i64, f32)> = reranked
        .iter()
        .map(|(key, score)| (*key, floor + (1.0 - floor) * scaled(*score)))
        .collect();
    first.sort_by(|a, b| b.1.total_cmp(&a.1));
    best.splice(0..0, first);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reranked_chunks_come_first_with_scores_from_zero_to_one() {
        let mut best = vec![(1, 0.9), (2, 0.8), (3, 0.4), (4, 0.2)];
        reorder(&mut best, &[(1, -8.0), (2, 4.0)]);
        assert_eq!(best, [(2, 1.0), (1, 0.4), (3, 0.4), (4, 0.2)]);
        // Equal scores keep the order, and extreme ones stay finite.
        let mut best = vec![(1, 0.9), (2, 0.8)];
        reorder(&mut best, &[(1, 3.0), (2, 3.0)]);
        assert_eq!(best, [(1, 1.0), (2, 1.0)]);
        reorder(&mut best, &[(1, f32::MIN), (2, f32::MAX)]);
        assert_eq!(best, [(2, 1.0), (1, 0.0)]);
        reorder(&mut best, &[]);
        assert_eq!(best.len(), 2);
    }
}
