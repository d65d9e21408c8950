//! OpenAI's embeddings, and those of compatible servers.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use levity_core::{EmbedderCard, ModelError, Purpose};
use serde::de::value::SeqAccessDeserializer;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::body::Body;
use crate::embed::{EmbeddingWire, Remote, Texts, embedder, malformed, unexpected_reply};
use crate::http::{Endpoint, Secret};

/// An embedder of OpenAI, or of any compatible server: llama.cpp, vLLM, Mistral, Together and
/// others.
///
/// ```
/// use levity_core::Embedder as _;
/// use levity_llm::OpenAiEmbedder;
///
/// let embedder = OpenAiEmbedder::new("my-key", "text-embedding-3-small").with_dimensions(512);
/// assert_eq!(embedder.card().dimensions, Some(512));
/// let embedder = OpenAiEmbedder::compatible("http://127.0.0.1:8080/v1", "bge-m3");
/// assert_eq!(embedder.card().provider, "compatible");
/// ```
#[derive(Clone, Debug)]
pub struct OpenAiEmbedder(Remote<Wire>);

#[derive(Clone, Debug, Default)]
pub(crate) struct Wire {
    key: Option<Secret>,
    /// True if the key has a dedicated header, as Azure requires.
    bare_key: bool,
    /// True if vectors are requested as bytes, which not every server supports.
    bytes: bool,
    document: String,
    query: String,
}

impl OpenAiEmbedder {
    fn with_wire(
        provider: &str,
        base: impl AsRef<str>,
        model: impl Into<String>,
        wire: Wire,
        batch: usize,
    ) -> Self {
        Self(Remote::new(
            wire,
            EmbedderCard::new(provider, model),
            Endpoint::new(base),
            batch,
        ))
    }

    /// Creates an embedder of OpenAI. One request contains up to 256 texts.
    pub fn new(key: impl Into<Secret>, model: impl Into<String>) -> Self {
        let wire = Wire {
            key: Some(key.into()),
            bytes: true,
            ..Wire::default()
        };
        Self::with_wire("openai", "https://api.openai.com/v1", model, wire, 256)
    }

    /// Creates an OpenAI embedder that Azure serves under a deployment name. The address is that of
    /// the resource: `https://NAME.openai.azure.com`.
    pub fn azure(
        resource: impl AsRef<str>,
        key: impl Into<Secret>,
        deployment: impl Into<String>,
    ) -> Self {
        let base = format!(
            "{}/openai/v1",
            resource.as_ref().trim().trim_end_matches('/')
        );
        let wire = Wire {
            key: Some(key.into()),
            bare_key: true,
            bytes: true,
            ..Wire::default()
        };
        Self::with_wire("azure", base, deployment, wire, 256)
    }

    /// Creates an embedder of a compatible server; the address is the part before `/embeddings`.
    /// One request contains up to 32 texts; some servers accept [fewer](Self::with_batch).
    pub fn compatible(base_url: impl AsRef<str>, model: impl Into<String>) -> Self {
        Self::with_wire("compatible", base_url, model, Wire::default(), 32)
    }

    /// Sends this key with every request.
    #[must_use]
    pub fn with_key(mut self, key: impl Into<Secret>) -> Self {
        self.0.wire.key = Some(key.into());
        self
    }

    /// Sets the prefixes for stored documents and for queries, if the model's authors recommend
    /// them.
    #[must_use]
    pub fn with_prefixes(mut self, document: impl Into<String>, query: impl Into<String>) -> Self {
        (self.0.wire.document, self.0.wire.query) = (document.into(), query.into());
        self
    }
}

embedder!(OpenAiEmbedder);

impl EmbeddingWire for Wire {
    fn path(&self, _: &EmbedderCard) -> String {
        "/embeddings".to_owned()
    }

    fn headers(&self) -> Vec<(&'static str, Secret)> {
        let header = |key: &Secret| match self.bare_key {
            true => ("api-key", key.clone()),
            false => (
                "authorization",
                Secret::new(format!("Bearer {}", key.expose())),
            ),
        };
        self.key.iter().map(header).collect()
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
        body.optional("encoding_format", self.bytes.then_some("base64"));
        body.finish()
    }

    fn read(&self, reply: &[u8]) -> Result<(Vec<Vec<f32>>, Option<u64>), ModelError> {
        let reply: Reply =
            serde_json::from_slice(reply).map_err(|error| unexpected_reply(reply, &error))?;
        let tokens = reply
            .usage
            .and_then(|usage| usage.prompt_tokens.or(usage.total_tokens));
        Ok((in_order(reply.data)?, tokens))
    }
}

#[derive(Deserialize)]
struct Reply {
    data: Vec<Entry>,
    #[serde(default)]
    usage: Option<Tokens>,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    index: Option<usize>,
    embedding: Numbers,
}

enum Numbers {
    Plain(Vec<f32>),
    Bytes(String),
}

/// A custom implementation, because an untagged one buffers all numbers in eight times their size.
impl<'de> Deserialize<'de> for Numbers {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ReadNumbers)
    }
}

struct ReadNumbers;

impl<'de> Visitor<'de> for ReadNumbers {
    type Value = Numbers;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("numbers, or base64")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Numbers, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(list)).map(Numbers::Plain)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Numbers, E> {
        Ok(Numbers::Bytes(text.to_owned()))
    }
}

#[derive(Deserialize)]
struct Tokens {
    #[serde(default)]
    prompt_tokens: Option<u64>,
    #[serde(default)]
    total_tokens: Option<u64>,
}

/// Returns the vectors in the order of the texts. Servers may send them in any order with an index.
fn in_order(data: Vec<Entry>) -> Result<Vec<Vec<f32>>, ModelError> {
    let mut places: Vec<Option<Vec<f32>>> = vec![None; data.len()];
    for (at, entry) in data.into_iter().enumerate() {
        let vector = numbers(entry.embedding)?;
        match places.get_mut(entry.index.unwrap_or(at)) {
            Some(place @ None) => *place = Some(vector),
            _ => {
                return Err(malformed("the vectors are not numbered consecutively"));
            }
        }
    }
    Ok(places.into_iter().flatten().collect())
}

fn numbers(numbers: Numbers) -> Result<Vec<f32>, ModelError> {
    let text = match numbers {
        Numbers::Plain(vector) => return Ok(vector),
        Numbers::Bytes(text) => text,
    };
    let bytes = STANDARD
        .decode(text)
        .map_err(|error| malformed("a vector is not base64").with_source(error.to_string()))?;
    let (parts, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() {
        return Err(malformed("a vector ends in the middle of a number"));
    }
    Ok(parts.iter().map(|part| f32::from_le_bytes(*part)).collect())
}
