//! A deterministic reranker for tests of retrieval.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use levity_core::{ModelError, Reranker, RerankerCard, Reranking, Usage};

/// A reranker that scores a text by the share of its words that are in the query.
///
/// It needs no model, gives the same scores everywhere, and remembers its calls. Clones share them.
///
/// ```
/// use levity_core::Reranker;
/// use levity_test::WordReranker;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::ModelError> {
/// let reranker = WordReranker::new();
/// let texts = ["a red car".to_owned(), "red tide".to_owned()];
/// let found = reranker.rerank("the red tide", &texts).await?;
/// assert_eq!(found.order(), [1, 0]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct WordReranker {
    card: RerankerCard,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    fails: Option<ModelError>,
    calls: Vec<(String, Vec<String>)>,
}

impl WordReranker {
    /// Creates a reranker that has not been called.
    pub fn new() -> Self {
        Self {
            card: RerankerCard::new("test", "words"),
            state: Arc::default(),
        }
    }

    /// Fails with this error from now on, or no longer.
    ///
    /// ```
    /// use levity_core::{ModelError, ModelErrorKind, Reranker};
    /// use levity_test::WordReranker;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let reranker = WordReranker::new();
    /// reranker.fail(ModelError::new(ModelErrorKind::Overloaded, "busy"));
    /// assert!(reranker.rerank("tide", &[]).await.is_err());
    /// reranker.fail(None);
    /// assert!(reranker.rerank("tide", &[]).await.is_ok());
    /// # }
    /// ```
    pub fn fail(&self, error: impl Into<Option<ModelError>>) {
        self.state().fails = error.into();
    }

    /// Returns the query and the texts of each call, including failed ones.
    ///
    /// ```
    /// use levity_core::Reranker;
    /// use levity_test::WordReranker;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::ModelError> {
    /// let reranker = WordReranker::new();
    /// reranker.rerank("tide", &["a car".to_owned()]).await?;
    /// assert_eq!(reranker.calls(), [("tide".to_owned(), vec!["a car".to_owned()])]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn calls(&self) -> Vec<(String, Vec<String>)> {
        self.state().calls.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for WordReranker {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Reranker for WordReranker {
    fn card(&self) -> &RerankerCard {
        &self.card
    }

    async fn rerank(&self, query: &str, texts: &[String]) -> Result<Reranking, ModelError> {
        let mut state = self.state();
        state.calls.push((query.to_owned(), texts.to_vec()));
        if let Some(error) = &state.fails {
            return Err(error.clone());
        }
        drop(state);
        let wanted = words(query);
        let score = |text: &String| {
            let words = words(text);
            let found = words.iter().filter(|word| wanted.contains(word)).count();
            found as f32 / words.len().max(1) as f32
        };
        let mut usage = Usage::default();
        let read = texts.iter().map(|text| words(text).len() + wanted.len());
        usage.input = Some(read.sum::<usize>() as u64);
        Ok(Reranking::new(texts.iter().map(score).collect()).with_usage(usage))
    }
}

fn words(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_alphanumeric());
    words
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect()
}
