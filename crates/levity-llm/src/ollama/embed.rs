//! Embedders on an Ollama server.

use std::borrow::Cow;

use levity_core::{EmbedderCard, ModelError, Purpose};
use serde::Deserialize;

use super::errors;
use crate::body::Body;
use crate::embed::{EmbeddingWire, Remote, Texts, embedder, unexpected_reply};
use crate::http::{Endpoint, Secret};

/// An embedder that an Ollama server runs, on this machine or another.
///
/// ```
/// use levity_core::Embedder as _;
/// use levity_llm::OllamaEmbedder;
///
/// let embedder = OllamaEmbedder::new("nomic-embed-text")
///     .with_prefixes("search_document: ", "search_query: ");
/// assert_eq!(embedder.card().provider, "ollama");
/// ```
///
/// Ollama truncates text that exceeds the model's window.
///
/// Vectors are scaled to length 1, and an empty text gets a vector of zeros without a request:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::ModelError> {
/// use levity_core::{Embedder as _, Purpose};
/// use levity_llm::OllamaEmbedder;
///
/// let embedder = OllamaEmbedder::new("nomic-embed-text").with_dimensions(3);
/// let embedded = embedder.embed(&[String::new()], Purpose::Document).await?;
/// assert_eq!(embedded.vectors, [[0.0; 3]]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct OllamaEmbedder(Remote<Wire>);

/// The key and the prefixes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wire {
    key: Option<Secret>,
    document: String,
    query: String,
}

impl OllamaEmbedder {
    /// Creates an embedder of the Ollama server on this machine, at `http://127.0.0.1:11434`. One
    /// request contains up to 32 texts.
    pub fn new(model: impl Into<String>) -> Self {
        let (card, endpoint) = (
            EmbedderCard::new("ollama", model),
            Endpoint::new("http://127.0.0.1:11434"),
        );
        Self(Remote::new(Wire::default(), card, endpoint, 32))
    }

    /// Sends this key with every request.
    #[must_use]
    pub fn with_key(mut self, key: impl Into<Secret>) -> Self {
        self.0.wire.key = Some(key.into());
        self
    }

    /// Sets the prefixes for stored documents and for queries, if the model's authors recommend
    /// them.
    ///
    /// Models such as `nomic-embed-text` are trained with prefixes and find less without them.
    #[must_use]
    pub fn with_prefixes(mut self, document: impl Into<String>, query: impl Into<String>) -> Self {
        (self.0.wire.document, self.0.wire.query) = (document.into(), query.into());
        self
    }
}

embedder!(OllamaEmbedder);

impl EmbeddingWire for Wire {
    fn path(&self, _: &EmbedderCard) -> String {
        "/api/embed".to_owned()
    }

    fn headers(&self) -> Vec<(&'static str, Secret)> {
        let bearer = |key: &Secret| {
            (
                "authorization",
                Secret::new(format!("Bearer {}", key.expose())),
            )
        };
        self.key.iter().map(bearer).collect()
    }

    fn prefix(&self, _: &EmbedderCard, purpose: Purpose) -> Cow<'_, str> {
        if purpose == Purpose::Query {
            (&self.query).into()
        } else {
            (&self.document).into()
        }
    }

    fn body(&self, input: &Texts<'_>) -> Vec<u8> {
        let mut body = Body::over(input.endpoint.extra());
        body.field("model", &input.card.id);
        body.field("input", input.texts);
        body.optional("dimensions", input.dimensions.as_ref());
        body.finish()
    }

    fn read(&self, reply: &[u8]) -> Result<(Vec<Vec<f32>>, Option<u64>), ModelError> {
        let reply: Reply = serde_json::from_slice(reply)
            .map_err(|error| unexpected_reply(reply, &error, "vectors"))?;
        Ok((reply.embeddings, reply.prompt_eval_count))
    }

    fn explain(&self, error: ModelError, card: &EmbedderCard, endpoint: &Endpoint) -> ModelError {
        errors::explain(error, Some(&card.id), endpoint)
    }
}

#[derive(Deserialize)]
struct Reply {
    embeddings: Vec<Vec<f32>>,
    #[serde(default)]
    prompt_eval_count: Option<u64>,
}
