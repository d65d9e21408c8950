use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{ModelError, Usage};

/// Turns texts into vectors: those of texts that mean the same lie close to each other.
///
/// # Contract
/// - There is one vector for each text, in the order of the texts, and all have the same number of
///   components.
/// - A vector has the length 1, unless its text says nothing; then it may be all zeros.
/// - No component is infinite or not a number.
/// - Nothing is sent before the returned future is first polled; dropping it cancels the call.
/// - It takes any number of texts; how many go into one request is its own business.
///
/// `levity_test::conformance::embedder` checks an implementation.
#[async_trait]
pub trait Embedder: Send + Sync {
    /// Which embedder it is. Vectors of different embedders cannot be compared: whoever keeps
    /// vectors keeps this with them.
    fn card(&self) -> &EmbedderCard;

    /// The vectors of these texts.
    async fn embed(&self, texts: &[String], purpose: Purpose) -> Result<Embedded, ModelError>;
}

macro_rules! forward_embedder {
    ($($pointer:ty),*) => {$(
        #[async_trait]
        #[deny(clippy::missing_trait_methods)]
        impl<E: Embedder + ?Sized> Embedder for $pointer {
            fn card(&self) -> &EmbedderCard {
                (**self).card()
            }

            async fn embed(&self, texts: &[String], purpose: Purpose) -> Result<Embedded, ModelError> {
                (**self).embed(texts, purpose).await
            }
        }
    )*};
}

forward_embedder!(std::sync::Arc<E>, Box<E>);

/// What a text is embedded for; some embedders make a difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Purpose {
    /// It is kept, to be found.
    #[default]
    Document,
    /// It is looked for.
    Query,
}

/// What is known of an embedder without calling it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EmbedderCard {
    /// Who serves it.
    pub provider: String,
    /// Its name there.
    pub id: String,
    /// How many components its vectors have, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dimensions: Option<usize>,
}

impl EmbedderCard {
    /// An embedder of which nothing else is known.
    pub fn new(provider: impl Into<String>, id: impl Into<String>) -> Self {
        Self {
            provider: provider.into(),
            id: id.into(),
            dimensions: None,
        }
    }

    /// Says how many components its vectors have.
    #[must_use]
    pub fn with_dimensions(mut self, dimensions: usize) -> Self {
        self.dimensions = Some(dimensions);
        self
    }
}

/// Texts as vectors.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Embedded {
    /// One for each text, in their order.
    pub vectors: Vec<Vec<f32>>,
    /// What it took.
    pub usage: Usage,
}

impl Embedded {
    /// These vectors.
    pub fn new(vectors: Vec<Vec<f32>>) -> Self {
        Self {
            vectors,
            usage: Usage::default(),
        }
    }

    /// Says what it took.
    #[must_use]
    pub fn with_usage(mut self, usage: Usage) -> Self {
        self.usage = usage;
        self
    }
}
