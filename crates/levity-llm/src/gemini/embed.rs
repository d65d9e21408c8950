//! Gemini's embeddings.

use std::borrow::Cow;

use levity_core::{EmbedderCard, ModelError, Purpose};
use serde::Deserialize;
use serde_json::{Map, json};

use super::paths::Place;
use crate::body::{Body, list};
use crate::embed::{Embeds, Remote, Texts, embedder, odd};
use crate::http::{Endpoint, Secret};

/// How many texts Google takes in one request.
const MOST: usize = 100;

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
/// Texts that are kept and texts that are looked for are told apart as each model wants it: by a
/// task type, or by words before the text since Gemini Embedding 2.
#[derive(Clone, Debug)]
pub struct GeminiEmbedder(Remote<Wire>);

#[derive(Clone, Debug)]
pub(crate) struct Wire {
    key: Secret,
}

impl GeminiEmbedder {
    /// An embedder on Google AI Studio. 100 texts go into one request, which is the most that
    /// Google takes.
    pub fn new(key: impl Into<Secret>, model: impl Into<String>) -> Self {
        let endpoint = Endpoint::new(Place::AiStudio.base());
        Self(Remote::new(
            Wire { key: key.into() },
            EmbedderCard::new("gemini", model),
            endpoint,
            MOST,
        ))
    }
}

embedder!(GeminiEmbedder);

/// Whether the task is said in words before the text.
fn in_words(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    let version = name.strip_prefix("gemini-embedding-").unwrap_or_default();
    !version.is_empty() && !version.starts_with("00") && !version.starts_with("exp")
}

impl Embeds for Wire {
    fn path(&self, card: &EmbedderCard) -> String {
        format!("{}:batchEmbedContents", Place::AiStudio.folder(&card.id))
    }

    fn headers(&self) -> Vec<(&'static str, Secret)> {
        vec![("x-goog-api-key", self.key.clone())]
    }

    fn prefix(&self, card: &EmbedderCard, purpose: Purpose) -> Cow<'_, str> {
        match purpose {
            _ if !in_words(&card.id) => "".into(),
            Purpose::Query => "task: search result | query: ".into(),
            _ => "title: none | text: ".into(),
        }
    }

    fn body(&self, asked: &Texts<'_>) -> Vec<u8> {
        let folder = Place::AiStudio.folder(&asked.card.id);
        let model = folder.strip_prefix("/v1beta/").unwrap_or(&folder);
        let task = if asked.purpose == Purpose::Query {
            "RETRIEVAL_QUERY"
        } else {
            "RETRIEVAL_DOCUMENT"
        };
        let mut body = Body::over(asked.endpoint.extra());
        body.raw("requests", |bytes| {
            list(bytes, |list| {
                for text in asked.texts {
                    let mut request = Map::new();
                    request.insert("model".to_owned(), model.into());
                    request.insert("content".to_owned(), json!({"parts": [{"text": text}]}));
                    if !in_words(model) {
                        request.insert("taskType".to_owned(), task.into());
                    }
                    if let Some(dimensions) = asked.dimensions {
                        request.insert("outputDimensionality".to_owned(), dimensions.into());
                    }
                    list.item(&request);
                }
            });
        });
        body.finish()
    }

    fn read(&self, reply: &[u8]) -> Result<(Vec<Vec<f32>>, Option<u64>), ModelError> {
        let reply: Reply = serde_json::from_slice(reply).map_err(|error| odd(reply, &error))?;
        let vectors = reply
            .embeddings
            .into_iter()
            .map(|entry| entry.values)
            .collect();
        Ok((vectors, reply.usage.and_then(|usage| usage.tokens)))
    }
}

#[derive(Deserialize)]
struct Reply {
    embeddings: Vec<Entry>,
    #[serde(default, rename = "usageMetadata")]
    usage: Option<Used>,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    values: Vec<f32>,
}

#[derive(Deserialize)]
struct Used {
    #[serde(default, rename = "promptTokenCount")]
    tokens: Option<u64>,
}
