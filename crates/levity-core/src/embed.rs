use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{ModelError, Usage};

/// Turns texts into vectors, so that texts with similar meanings have nearby vectors.
///
/// # Contract
/// - It returns one vector per text, in the order of the texts, all with the same number of
///   components.
/// - Each vector has length 1, except that a text without content may have all zeros.
/// - No component is infinite or not a number.
/// - Nothing is sent before the returned future is first polled; dropping it cancels the call.
/// - It accepts any number of texts and decides how many to send per request.
///
/// Use `levity_test::conformance::embedder` to check an implementation.
#[async_trait]
pub trait Embedder: Send + Sync {
    /// Returns the identity of this embedder. Vectors of different embedders cannot be compared, so
    /// store the card together with the vectors.
    fn card(&self) -> &EmbedderCard;

    /// Returns the vectors of these texts.
    async fn embed(&self, texts: &[String], purpose: Purpose) -> Result<Embeddings, ModelError>;
}

macro_rules! forward_embedder {
    ($($pointer:ty),*) => {$(
        #[async_trait]
        #[deny(clippy::missing_trait_methods)]
        impl<E: Embedder + ?Sized> Embedder for $pointer {
            fn card(&self) -> &EmbedderCard {
                (**self).card()
            }

            async fn embed(
                &self,
                texts: &[String],
                purpose: Purpose,
            ) -> Result<Embeddings, ModelError> {
                (**self).embed(texts, purpose).await
            }
        }
    )*};
}

forward_embedder!(std::sync::Arc<E>, Box<E>);

/// The purpose of an embedded text; some embedders distinguish the two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Purpose {
    /// The text is stored to be found later.
    #[default]
    Document,
    /// The text is a search query.
    Query,
}

/// The properties of an embedder that are known without a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EmbedderCard {
    /// The name of the provider.
    pub provider: String,
    /// The name of the embedder at the provider.
    pub id: String,
    /// The number of components of its vectors, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dimensions: Option<usize>,
}

impl EmbedderCard {
    /// Creates a card with unknown dimensions.
    pub fn new(provider: impl Into<String>, id: impl Into<String>) -> Self {
        Self {
            provider: provider.into(),
            id: id.into(),
            dimensions: None,
        }
    }

    /// Sets the number of components of its vectors.
    #[must_use]
    pub fn with_dimensions(mut self, dimensions: usize) -> Self {
        self.dimensions = Some(dimensions);
        self
    }
}

/// The vectors of a list of texts.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Embeddings {
    /// One vector per text, in the order of the texts.
    pub vectors: Vec<Vec<f32>>,
    /// The tokens and money that the call used.
    pub usage: Usage,
}

impl Embeddings {
    /// Creates a result with these vectors and no usage.
    pub fn new(vectors: Vec<Vec<f32>>) -> Self {
        Self {
            vectors,
            usage: Usage::default(),
        }
    }

    /// Sets the tokens and money that the call used.
    #[must_use]
    pub fn with_usage(mut self, usage: Usage) -> Self {
        self.usage = usage;
        self
    }
}
