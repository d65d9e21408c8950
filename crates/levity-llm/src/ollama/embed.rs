//! Ollama's embeddings.

use std::borrow::Cow;

use levity_core::{EmbedderCard, ModelError, Purpose};
use serde::Deserialize;

use super::errors;
use crate::body::Body;
use crate::embed::{Embeds, Remote, Texts, embedder, odd};
use crate::http::{Endpoint, Secret};

/// An embedder that an Ollama runs, on this machine or another.
///
/// ```
/// use levity_core::Embedder as _;
/// use levity_llm::OllamaEmbedder;
///
/// let embedder = OllamaEmbedder::new("nomic-embed-text").with_prefixes("search_document: ", "search_query: ");
/// assert_eq!(embedder.card().provider, "ollama");
/// ```
///
/// Ollama cuts what does not fit the model's window.
#[derive(Clone, Debug)]
pub struct OllamaEmbedder(Remote<Wire>);

#[derive(Clone, Debug, Default)]
pub(crate) struct Wire {
    key: Option<Secret>,
    document: String,
    query: String,
}

impl OllamaEmbedder {
    /// An embedder of the Ollama on this machine, at `http://127.0.0.1:11434`. 32 texts go into one
    /// request.
    pub fn new(model: impl Into<String>) -> Self {
        let (card, endpoint) = (
            EmbedderCard::new("ollama", model),
            Endpoint::new("http://127.0.0.1:11434"),
        );
        Self(Remote::new(Wire::default(), card, endpoint, 32))
    }

    /// Sends this key.
    #[must_use]
    pub fn with_key(mut self, key: impl Into<Secret>) -> Self {
        self.0.wire.key = Some(key.into());
        self
    }

    /// Puts this before texts that are kept and before those that are looked for, as the model's
    /// makers want it.
    #[must_use]
    pub fn with_prefixes(mut self, document: impl Into<String>, query: impl Into<String>) -> Self {
        (self.0.wire.document, self.0.wire.query) = (document.into(), query.into());
        self
    }
}

embedder!(OllamaEmbedder);

impl Embeds for Wire {
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

    fn body(&self, asked: &Texts<'_>) -> Vec<u8> {
        let mut body = Body::over(asked.endpoint.extra());
        body.field("model", &asked.card.id);
        body.field("input", asked.texts);
        body.optional("dimensions", asked.dimensions.as_ref());
        body.finish()
    }

    fn read(&self, reply: &[u8]) -> Result<(Vec<Vec<f32>>, Option<u64>), ModelError> {
        let reply: Reply = serde_json::from_slice(reply).map_err(|error| odd(reply, &error))?;
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
