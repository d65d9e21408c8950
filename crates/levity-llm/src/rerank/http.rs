//! Rerankers over HTTP, in the form that Jina, Cohere, vLLM and llama.cpp share.
//!
//! Invariants: one finite score per text in the order of the texts, or an error.

use std::borrow::Cow;

use async_trait::async_trait;
use levity_core::{ModelError, Reranker, RerankerCard, Reranking, Usage};
use serde::Deserialize;

use super::cut;
use crate::body::Body;
use crate::embed::{Exchange, batches, has_text, malformed, unexpected_reply};
use crate::http::{Endpoint, Secret};

/// The default number of texts in one request.
const BATCH: usize = 100;
/// The default size of a text that is sent, in bytes.
const TEXT_BYTES: usize = 8 << 10;

/// A reranker on a server with the path `/rerank`, such as llama.cpp, vLLM, Jina, Cohere or Voyage.
///
/// ```
/// use levity_core::Reranker as _;
/// use levity_llm::HttpReranker;
///
/// let local = HttpReranker::new("http://127.0.0.1:8080/v1", "bge-reranker-v2-m3");
/// assert_eq!(local.card().id, "bge-reranker-v2-m3");
/// let cohere = HttpReranker::new("https://api.cohere.com/v2", "rerank-v3.5").with_key("my-key");
/// # let _ = cohere;
/// ```
///
/// # Behaviour
/// - A text without content is not sent and gets the lowest score, because servers reject it.
/// - Only the first 8 KiB of a text are sent; see [`with_text_bytes`](Self::with_text_bytes).
/// - Texts are sent in batches of at most 100 texts and 256 KiB, one request after the other. If a
///   later batch fails, the error is marked as [charged](levity_core::ModelError::may_cost).
/// - A reply that lacks a score, or has two for one text, is a
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
/// #     let reply = r#"{"results": [{"index": 1, "relevance_score": 0.9},
/// #         {"index": 0, "relevance_score": 0.1}], "usage": {"total_tokens": 12}}"#;
/// #     let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length";
/// #     let _ = write!(socket, "{head}: {}\r\n\r\n{reply}", reply.len());
/// #     let _ = socket.read_to_end(&mut Vec::new());
/// # });
/// use levity_core::Reranker as _;
/// use levity_llm::HttpReranker;
///
/// let reranker = HttpReranker::new(base, "bge-reranker-v2-m3");
/// let texts = ["A boat.".to_owned(), "High water is at six.".to_owned()];
/// let found = reranker.rerank("When is high water?", &texts).await?;
/// assert_eq!(found.scores, [0.1, 0.9]);
/// assert_eq!(found.usage.input, Some(12));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct HttpReranker {
    card: RerankerCard,
    endpoint: Endpoint,
    key: Option<Secret>,
    batch: usize,
    text_bytes: usize,
}

impl HttpReranker {
    /// Creates a reranker of a server; the address is the part before `/rerank`.
    pub fn new(base_url: impl AsRef<str>, model: impl Into<String>) -> Self {
        Self {
            card: RerankerCard::new("compatible", model),
            endpoint: Endpoint::new(base_url),
            key: None,
            batch: BATCH,
            text_bytes: TEXT_BYTES,
        }
    }

    /// Sends this key with every request.
    #[must_use]
    pub fn with_key(mut self, key: impl Into<Secret>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Changes the address of the server and its connection: headers, fields and time limits.
    ///
    /// The closure receives the current endpoint; return it changed, or return another one. The key
    /// is not part of the endpoint and stays.
    #[must_use]
    pub fn with_endpoint(mut self, change: impl FnOnce(Endpoint) -> Endpoint) -> Self {
        self.endpoint = change(self.endpoint);
        self
    }

    /// Sets the maximum number of texts per request; 100 by default. Zero counts as one.
    #[must_use]
    pub fn with_batch(mut self, texts: usize) -> Self {
        self.batch = texts.max(1);
        self
    }

    /// Sets how many bytes of a text are sent; 8 KiB by default.
    ///
    /// Some servers reject a text that is longer than the window of the model, instead of cutting
    /// it. llama.cpp, for example, rejects texts of more than 512 tokens by default.
    #[must_use]
    pub fn with_text_bytes(mut self, bytes: usize) -> Self {
        self.text_bytes = bytes.max(1);
        self
    }

    /// Sets the provider name under which the reranker was requested.
    pub(crate) fn of_provider(mut self, provider: &str) -> Self {
        self.card.provider = provider.to_owned();
        self
    }

    /// Sends one request, and returns the scores and the tokens.
    async fn send(
        &self,
        query: &str,
        texts: &[Cow<'_, str>],
    ) -> Result<(Vec<f32>, Option<u64>), ModelError> {
        let bearer = |key: &Secret| {
            let value = Secret::new(format!("Bearer {}", key.expose()));
            ("authorization", value)
        };
        let call = Exchange {
            endpoint: &self.endpoint,
            provider: &self.card.provider,
            id: &self.card.id,
            path: "/rerank".to_owned(),
            headers: self.key.iter().map(bearer).collect(),
        };
        let mut body = Body::over(self.endpoint.extra());
        body.field("model", &self.card.id);
        body.field("query", query);
        body.field("documents", texts);
        let read = |reply: &[u8]| read(reply, texts.len());
        call.send(body.finish(), |error| error, read).await
    }

    /// Returns the scores of texts that are not empty. The usage is unknown as soon as one reply
    /// does not state it.
    async fn rerank_all(&self, query: &str, texts: &[&str]) -> Result<Reranking, ModelError> {
        let query = cut(query, self.text_bytes);
        let cut = |text: &&'_ str| -> Cow<'_, str> { cut(text, self.text_bytes).to_owned().into() };
        let texts: Vec<Cow<'_, str>> = texts.iter().map(cut).collect();
        let (mut scores, mut input) = (Vec::with_capacity(texts.len()), Some(0_u64));
        for batch in batches(&texts, self.batch) {
            let sent = self.send(query, batch).await;
            let charged = |error: ModelError| match scores.is_empty() {
                true => error,
                false => error.with_charge(),
            };
            let (batch, tokens) = sent.map_err(charged)?;
            scores.extend(batch);
            input = input
                .zip(tokens)
                .map(|(all, more)| all.saturating_add(more));
        }
        let mut usage = Usage::default();
        usage.input = input;
        Ok(Reranking::new(scores).with_usage(usage))
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Reranker for HttpReranker {
    fn card(&self) -> &RerankerCard {
        &self.card
    }

    async fn rerank(&self, query: &str, texts: &[String]) -> Result<Reranking, ModelError> {
        let nonempty: Vec<&str> = texts
            .iter()
            .map(String::as_str)
            .filter(|text| has_text(text))
            .collect();
        if nonempty.is_empty() || !has_text(query) {
            return Ok(Reranking::new(vec![0.0; texts.len()]));
        }
        let found = self.rerank_all(query, &nonempty).await?;
        let lowest = found.scores.iter().copied().fold(f32::MAX, f32::min);
        let mut scores = found.scores.into_iter();
        let score = |text: &String| match has_text(text) {
            true => scores.next().unwrap_or(lowest),
            false => lowest,
        };
        let scores = texts.iter().map(score).collect();
        Ok(Reranking::new(scores).with_usage(found.usage))
    }
}

#[derive(Deserialize)]
struct Reply {
    #[serde(alias = "data")]
    results: Vec<Entry>,
    #[serde(default)]
    usage: Option<Tokens>,
}

/// The score of the text at a position.
#[derive(Deserialize)]
struct Entry {
    index: usize,
    relevance_score: f32,
}

/// The tokens of the request. Some servers state only the total, which is the same here.
#[derive(Deserialize)]
struct Tokens {
    #[serde(default)]
    prompt_tokens: Option<u64>,
    #[serde(default)]
    total_tokens: Option<u64>,
}

/// Returns the scores in the order of the texts, and the tokens. Servers send the best text first.
fn read(reply: &[u8], texts: usize) -> Result<(Vec<f32>, Option<u64>), ModelError> {
    let reply: Reply =
        serde_json::from_slice(reply).map_err(|error| unexpected_reply(reply, &error, "scores"))?;
    let tokens = reply
        .usage
        .and_then(|usage| usage.prompt_tokens.or(usage.total_tokens));
    let mut scores: Vec<Option<f32>> = vec![None; texts];
    for entry in reply.results {
        let index = entry.index;
        match scores.get_mut(index) {
            _ if !entry.relevance_score.is_finite() => {
                let message = format!("the score of text {index} is not a finite number");
                return Err(malformed(message));
            }
            Some(place @ None) => *place = Some(entry.relevance_score),
            Some(_) => {
                return Err(malformed(format!(
                    "the reply has two scores for text {index}"
                )));
            }
            None => {
                let message = format!("the reply has a score for text {index} of {texts}");
                return Err(malformed(message));
            }
        }
    }
    let found: Vec<f32> = scores.into_iter().flatten().collect();
    if found.len() < texts {
        let message = format!("the reply has {} scores for {texts} texts", found.len());
        return Err(malformed(message));
    }
    Ok((found, tokens))
}
