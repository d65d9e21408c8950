//! Embedders on Google AI Studio.

use std::borrow::Cow;

use levity_core::{EmbedderCard, ModelError, Purpose};
use serde::Deserialize;
use serde_json::{Map, json};

use super::paths::Service;
use crate::body::{Body, list};
use crate::embed::{EmbeddingWire, Remote, Texts, embedder, unexpected_reply};
use crate::http::{Endpoint, Secret};

/// The maximum number of texts that Google accepts in one request.
const MAX_TEXTS: usize = 100;

/// An embedder on Google AI Studio.
///
/// ```
/// use levity_core::Embedder as _;
/// use levity_llm::GeminiEmbedder;
///
/// let embedder = GeminiEmbedder::new("my-key", "gemini-embedding-001").with_dimensions(768);
/// assert_eq!(embedder.card().id, "gemini-embedding-001");
/// ```
///
/// Documents and queries are distinguished as each model requires: by a task type, or by a prefix
/// of the text since Gemini Embedding 2.
///
/// Vectors are scaled to length 1, which the API does only for the full number of dimensions.
///
/// ```
/// use levity_core::Embedder as _;
/// use levity_llm::GeminiEmbedder;
///
/// let embedder = GeminiEmbedder::new("my-key", "gemini-embedding-001").with_batch(20);
/// assert_eq!(embedder.card().dimensions, None); // The model decides.
/// assert!(!format!("{embedder:?}").contains("my-key"));
/// ```
#[derive(Clone, Debug)]
pub struct GeminiEmbedder(Remote<Wire>);

/// The key, which is the only setting of this protocol.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    key: Secret,
}

impl GeminiEmbedder {
    /// Creates an embedder on Google AI Studio. One request contains up to 100 texts, which is
    /// Google's limit.
    pub fn new(key: impl Into<Secret>, model: impl Into<String>) -> Self {
        let endpoint = Endpoint::new(Service::AiStudio.base());
        Self(Remote::new(
            Wire { key: key.into() },
            EmbedderCard::new("gemini", model),
            endpoint,
            MAX_TEXTS,
        ))
    }
}

embedder!(GeminiEmbedder);

/// Returns `true` if a prefix of the text states the task.
///
/// `gemini-embedding-2` does; `gemini-embedding-001`, `gemini-embedding-exp-03-07` and
/// `text-embedding-004` state it by a task type.
fn uses_prefix(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    let version = name.strip_prefix("gemini-embedding-").unwrap_or_default();
    !version.is_empty() && !version.starts_with("00") && !version.starts_with("exp")
}

impl EmbeddingWire for Wire {
    fn path(&self, card: &EmbedderCard) -> String {
        format!("{}:batchEmbedContents", Service::AiStudio.folder(&card.id))
    }

    fn headers(&self) -> Vec<(&'static str, Secret)> {
        vec![("x-goog-api-key", self.key.clone())]
    }

    fn prefix(&self, card: &EmbedderCard, purpose: Purpose) -> Cow<'_, str> {
        match purpose {
            _ if !uses_prefix(&card.id) => "".into(),
            Purpose::Query => "task: search result | query: ".into(),
            _ => "title: none | text: ".into(),
        }
    }

    fn body(&self, input: &Texts<'_>) -> Vec<u8> {
        let folder = Service::AiStudio.folder(&input.card.id);
        let model = folder.strip_prefix("/v1beta/").unwrap_or(&folder);
        let task = if input.purpose == Purpose::Query {
            "RETRIEVAL_QUERY"
        } else {
            "RETRIEVAL_DOCUMENT"
        };
        let mut body = Body::over(input.endpoint.extra());
        body.raw("requests", |bytes| {
            list(bytes, |list| {
                for text in input.texts {
                    let mut request = Map::new();
                    request.insert("model".to_owned(), model.into());
                    request.insert("content".to_owned(), json!({"parts": [{"text": text}]}));
                    if !uses_prefix(model) {
                        request.insert("taskType".to_owned(), task.into());
                    }
                    if let Some(dimensions) = input.dimensions {
                        request.insert("outputDimensionality".to_owned(), dimensions.into());
                    }
                    list.item(&request);
                }
            });
        });
        body.finish()
    }

    fn read(&self, reply: &[u8]) -> Result<(Vec<Vec<f32>>, Option<u64>), ModelError> {
        let reply: Reply = serde_json::from_slice(reply)
            .map_err(|error| unexpected_reply(reply, &error, "vectors"))?;
        let vectors = reply
            .embeddings
            .into_iter()
            .map(|entry| entry.values)
            .collect();
        Ok((vectors, reply.usage.and_then(|usage| usage.tokens)))
    }
}

/// The vectors in the order of the texts, and the tokens if reported.
#[derive(Deserialize)]
struct Reply {
    embeddings: Vec<Entry>,
    #[serde(default, rename = "usageMetadata")]
    usage: Option<TokenUsage>,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    values: Vec<f32>,
}

#[derive(Deserialize)]
struct TokenUsage {
    #[serde(default, rename = "promptTokenCount")]
    tokens: Option<u64>,
}
