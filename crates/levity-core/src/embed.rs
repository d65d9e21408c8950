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
///
/// ```
/// use async_trait::async_trait;
/// use levity_core::{Embedder, EmbedderCard, Embeddings, ModelError, Purpose};
///
/// /// Compares texts by whether they mention the sea.
/// struct Sea(EmbedderCard);
///
/// #[async_trait]
/// impl Embedder for Sea {
///     fn card(&self) -> &EmbedderCard {
///         &self.0
///     }
///
///     async fn embed(&self, texts: &[String], _: Purpose) -> Result<Embeddings, ModelError> {
///         let of = |text: &String| match text.contains("sea") {
///             true => vec![1.0, 0.0],
///             false => vec![0.0, 1.0],
///         };
///         Ok(Embeddings::new(texts.iter().map(of).collect()))
///     }
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), ModelError> {
/// let sea = Sea(EmbedderCard::new("example", "sea").with_dimensions(2));
/// let found = sea.embed(&["the open sea".to_owned()], Purpose::Document).await?;
/// assert_eq!(found.vectors, [[1.0, 0.0]]);
/// # Ok(())
/// # }
/// ```
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
///
/// ```
/// # use levity_core::Purpose;
/// assert_eq!(Purpose::default(), Purpose::Document);
/// ```
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
///
/// ```
/// # use levity_core::EmbedderCard;
/// let card = EmbedderCard::new("openai", "text-embedding-3-small").with_dimensions(1_536);
/// assert_ne!(card, EmbedderCard::new("openai", "text-embedding-3-large"));
/// ```
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
///
/// ```
/// # use levity_core::{Embeddings, Usage};
/// let found = Embeddings::new(vec![vec![0.6, 0.8]]).with_usage(Usage::new(3, 0));
/// assert_eq!((found.vectors.len(), found.usage.total()), (1, 3));
/// ```
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
