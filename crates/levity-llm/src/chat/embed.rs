//! OpenAI's embeddings, and those of compatible servers.
//!
//! OpenAI can send vectors as base64 of little-endian 32-bit floats, which takes about a quarter of
//! the bytes of decimal text. Compatible servers get no `encoding_format`, because not every server
//! supports it; both forms are read in every reply.

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
///
/// # Behaviour
/// - Vectors are scaled to length 1, so the dot product of two of them is their similarity.
/// - An empty text gets a vector of zeros and is not sent, because servers reject it.
/// - Texts are sent in batches of at most 256 KiB, one request after the other. If a later batch
///   fails, the error is marked as [charged](levity_core::ModelError::may_cost).
/// - A reply with too few vectors, or with vectors of different length, is a
///   [`Malformed`](levity_core::ModelErrorKind::Malformed) error and never a wrong assignment.
///
/// ```
/// # use std::io::{Read as _, Write as _};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = std::net::TcpListener::bind("127.0.0.1:0")?;
/// # let base = format!("http://{}/v1", server.local_addr()?);
/// # std::thread::spawn(move || {
/// #     let (mut socket, _) = server.accept().expect("a connection");
/// #     let _ = socket.read(&mut [0; 8_192]);
/// #     let reply = r#"{"data": [{"index": 0, "embedding": [3.0, 4.0]}]}"#;
/// #     let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length";
/// #     let _ = write!(socket, "{head}: {}\r\n\r\n{reply}", reply.len());
/// #     let _ = socket.read_to_end(&mut Vec::new());
/// # });
/// use levity_core::{Embedder as _, Purpose};
/// use levity_llm::OpenAiEmbedder;
///
/// let embedder = OpenAiEmbedder::compatible(base, "bge-m3");
/// let texts = ["Good morning".to_owned(), String::new()];
/// let embedded = embedder.embed(&texts, Purpose::Document).await?;
/// assert_eq!(embedded.vectors, [[0.6, 0.8], [0.0, 0.0]]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct OpenAiEmbedder(Remote<Wire>);

/// The settings of the embedding protocol.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wire {
    key: Option<Secret>,
    /// True if the key has a dedicated header, as Azure requires.
    bare_key: bool,
    /// True if vectors are requested as bytes, which not every server supports.
    bytes: bool,
    /// The prefix of documents, empty by default.
    document: String,
    /// The prefix of queries, empty by default.
    query: String,
}

impl OpenAiEmbedder {
    /// Creates an embedder with these settings; `batch` is the number of texts per request.
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
    ///
    /// OpenAI's models need no prefixes. A key is required, but checked only by the server.
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
    ///
    /// ```
    /// # use levity_core::Embedder as _;
    /// # use levity_llm::OpenAiEmbedder;
    /// let embedder = OpenAiEmbedder::azure(
    ///     "https://my-team.openai.azure.com", "key", "text-embedding-3-small");
    /// assert_eq!(embedder.card().provider, "azure");
    /// ```
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
    ///
    /// ```
    /// # use levity_core::Embedder as _;
    /// # use levity_llm::OpenAiEmbedder;
    /// let embedder = OpenAiEmbedder::compatible("http://127.0.0.1:8080/v1", "e5-large")
    ///     .with_prefixes("passage: ", "query: ");
    /// assert_eq!(embedder.card().id, "e5-large");
    /// ```
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
        let reply: Reply = serde_json::from_slice(reply)
            .map_err(|error| unexpected_reply(reply, &error, "vectors"))?;
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

/// One vector of the reply, and the position of its text if the server states it.
#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    index: Option<usize>,
    embedding: Numbers,
}

/// The components of a vector, as numbers or as base64.
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

/// The visitor that accepts both forms.
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

/// The tokens of the request. Some servers state only the total, which is the same for embeddings.
#[derive(Deserialize)]
struct Tokens {
    #[serde(default)]
    prompt_tokens: Option<u64>,
    #[serde(default)]
    total_tokens: Option<u64>,
}

/// Returns the vectors in the order of the texts. Servers may send them in any order with an index.
///
/// # Errors
/// Returns `Malformed` if an index occurs twice or is out of range.
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

/// Decodes base64 to 32-bit floats in little-endian order.
///
/// # Errors
/// Returns `Malformed` for invalid base64 and for a length that is not a multiple of four.
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
