//! A deterministic embedder for tests of retrieval.
//!
//! Each word adds 1 to three components that its hash selects, and the sum is scaled to length 1.
//! Texts with common words are therefore close, and the cosine of unrelated texts is near 0.
//! Synonyms are replaced with the first word of their list before hashing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use levity_core::{Embedder, EmbedderCard, Embeddings, ModelError, Purpose, Usage};

/// The default number of components of its vectors.
const DIMENSIONS: usize = 256;

/// An embedder based on words: texts are close if they share words, or words that are
/// [synonyms](Self::synonyms).
///
/// It needs no model, gives the same vectors everywhere, and remembers its calls. Clones share
/// them.
///
/// ```
/// use levity_core::{Embedder, Purpose};
/// use levity_test::WordEmbedder;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::ModelError> {
/// let embedder = WordEmbedder::new().synonyms(["car", "automobile"]);
/// let texts = ["a red car".to_owned(), "a red automobile".to_owned()];
/// let vectors = embedder.embed(&texts, Purpose::Document).await?.vectors;
/// assert_eq!(vectors[0], vectors[1]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct WordEmbedder {
    card: EmbedderCard,
    alike: Vec<Vec<String>>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    fails: Option<ModelError>,
    calls: Vec<(Vec<String>, Purpose)>,
}

impl WordEmbedder {
    /// Creates an embedder without synonyms.
    pub fn new() -> Self {
        let card = EmbedderCard::new("test", "words").with_dimensions(DIMENSIONS);
        Self {
            card,
            alike: Vec::new(),
            state: Arc::default(),
        }
    }

    /// Sets another name, like an embedder whose vectors cannot be compared with others.
    ///
    /// Stores compare ids to detect vectors of another embedder.
    #[must_use]
    pub fn named(mut self, id: impl Into<String>) -> Self {
        self.card.id = id.into();
        self
    }

    /// Treats these words as one.
    #[must_use]
    pub fn synonyms(mut self, words: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.alike.push(words.into_iter().map(Into::into).collect());
        self
    }

    /// Fails with this error from now on, or no longer.
    ///
    /// ```
    /// use levity_core::{Embedder, ModelError, ModelErrorKind, Purpose};
    /// use levity_test::WordEmbedder;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let embedder = WordEmbedder::new();
    /// let texts = ["a red car".to_owned()];
    /// embedder.fail(ModelError::new(ModelErrorKind::Overloaded, "busy"));
    /// assert!(embedder.embed(&texts, Purpose::Query).await.is_err());
    /// embedder.fail(None);
    /// assert!(embedder.embed(&texts, Purpose::Query).await.is_ok());
    /// # }
    /// ```
    pub fn fail(&self, error: impl Into<Option<ModelError>>) {
        self.state().fails = error.into();
    }

    /// Returns its calls, in order.
    ///
    /// Failed calls are included.
    ///
    /// ```
    /// use levity_core::{Embedder, Purpose};
    /// use levity_test::WordEmbedder;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::ModelError> {
    /// let embedder = WordEmbedder::new();
    /// embedder.embed(&["a red car".to_owned()], Purpose::Query).await?;
    /// assert_eq!(embedder.calls(), [(vec!["a red car".to_owned()], Purpose::Query)]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn calls(&self) -> Vec<(Vec<String>, Purpose)> {
        self.state().calls.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the vector of a text, of length 1. A blank text has a vector of zeros, as the
    /// contract of `Embedder` allows.
    fn vector(&self, text: &str) -> Vec<f32> {
        let mut vector = vec![0.0_f32; DIMENSIONS];
        for word in text
            .to_lowercase()
            .split(|c: char| !c.is_alphanumeric())
            .filter(|word| !word.is_empty())
        {
            let alike = self
                .alike
                .iter()
                .find(|words| words.iter().any(|other| other == word));
            let word = alike
                .and_then(|words| words.first())
                .map_or(word, String::as_str);
            let bytes = word.bytes().fold(0, |hash: u64, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
            // Each word has three components, so that two words seldom share all of theirs.
            let mut state = bytes;
            for _ in 0..3 {
                let place = crate::manual::splitmix(&mut state) as usize % DIMENSIONS;
                vector[place] += 1.0;
            }
        }
        let length = vector.iter().map(|part| part * part).sum::<f32>().sqrt();
        if length == 0.0 && !text.trim().is_empty() {
            // A text without words still has a vector.
            vector[0] = 1.0;
        } else if length > 0.0 {
            vector.iter_mut().for_each(|part| *part /= length);
        }
        vector
    }
}

impl Default for WordEmbedder {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Embedder for WordEmbedder {
    fn card(&self) -> &EmbedderCard {
        &self.card
    }

    async fn embed(&self, texts: &[String], purpose: Purpose) -> Result<Embeddings, ModelError> {
        let mut state = self.state();
        state.calls.push((texts.to_vec(), purpose));
        if let Some(error) = &state.fails {
            return Err(error.clone());
        }
        drop(state);
        let words: usize = texts
            .iter()
            .map(|text| text.split_whitespace().count())
            .sum();
        let mut usage = Usage::default();
        usage.input = Some(words as u64);
        Ok(Embeddings::new(texts.iter().map(|text| self.vector(text)).collect()).with_usage(usage))
    }
}
