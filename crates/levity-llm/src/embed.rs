//! Shared code of all embedders that use HTTP.
//!
//! A provider implements [`EmbeddingWire`]: where to send texts, how to write them and how to read
//! the vectors. [`Remote`] does the rest: batches, empty texts, limits, errors and the validation
//! of vectors. The macro `embedder` gives each provider the same settings.
//!
//! Invariants: one vector per text in the order of the texts, all of the same dimensions, each of
//! length 1 or all zeros.

use std::borrow::Cow;

use async_trait::async_trait;
use levity_core::{Embedder, EmbedderCard, Embeddings, ModelError, ModelErrorKind, Purpose, Usage};
use serde_json::Value;

use crate::http::{
    Endpoint, ErrorTarget, Secret, error_from_reply, find_failure, scrub_error,
    unexpected_body_error,
};

mod vectors;

use vectors::ValidVectors;

/// The maximum size of a reply in bytes.
const MAX_REPLY_BYTES: usize = 64 << 20;

/// The maximum number of bytes of text in one request. No tokenizer produces more tokens than
/// bytes, and providers accept this many.
const MAX_BATCH_BYTES: usize = 256 << 10;

/// A replacement for empty text, if only the number of dimensions is needed.
const PLACEHOLDER: &str = "-";

/// The embedding protocol of one provider.
///
/// # Contract
/// - All methods are pure: they neither wait nor send anything.
/// - `read` returns one vector for each text of the request, in the same order. [`Remote`] checks
///   the number and the dimensions.
/// - `headers` contains every secret of the request, so that errors can be cleaned of it.
#[async_trait]
pub(crate) trait EmbeddingWire: Clone + Send + Sync + 'static {
    /// Returns the request path, relative to the server's address.
    fn path(&self, card: &EmbedderCard) -> String;

    /// Returns the provider's own headers, which authenticate the request.
    fn headers(&self) -> Vec<(&'static str, Secret)>;

    /// Returns the prefix for each text in the request.
    fn prefix(&self, card: &EmbedderCard, purpose: Purpose) -> Cow<'_, str>;

    /// Returns the body of the request.
    fn body(&self, input: &Texts<'_>) -> Vec<u8>;

    /// Parses a reply: vectors in the order of the texts, and the number of tokens sent, if
    /// reported.
    fn read(&self, reply: &[u8]) -> Result<(Vec<Vec<f32>>, Option<u64>), ModelError>;

    /// Adds details to an error, if the provider has advice for it.
    ///
    /// The error is not yet addressed to the model; [`Remote`] does that afterwards.
    fn explain(&self, error: ModelError, _: &EmbedderCard, _: &Endpoint) -> ModelError {
        error
    }
}

/// The input for the body of a request.
///
/// The texts have their prefixes already and none of them is empty.
pub(crate) struct Texts<'a> {
    pub(crate) card: &'a EmbedderCard,
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) texts: &'a [Cow<'a, str>],
    #[allow(dead_code, reason = "only some providers need it")]
    pub(crate) purpose: Purpose,
    /// The requested number of dimensions.
    pub(crate) dimensions: Option<usize>,
}

/// An embedder that calls a server over HTTP.
///
/// Clones share the connections of the process, so cloning is cheap.
#[derive(Clone, Debug)]
pub(crate) struct Remote<E> {
    pub(crate) wire: E,
    pub(crate) card: EmbedderCard,
    pub(crate) endpoint: Endpoint,
    /// The maximum number of texts in one request.
    pub(crate) batch: usize,
}

impl<E: EmbeddingWire> Remote<E> {
    /// Creates an embedder that sends at most `batch` texts per request.
    pub(crate) fn new(wire: E, card: EmbedderCard, endpoint: Endpoint, batch: usize) -> Self {
        Self {
            wire,
            card,
            endpoint,
            batch,
        }
    }

    /// Sends one request and returns its vectors and tokens.
    ///
    /// # Errors
    /// Returns the provider's error, `Malformed` for a reply without vectors or of more than 64
    /// MiB, and the errors of the [`Endpoint`] for the connection. Secrets of the request are
    /// removed.
    async fn send(
        &self,
        texts: &[Cow<'_, str>],
        purpose: Purpose,
    ) -> Result<(Vec<Vec<f32>>, Option<u64>), ModelError> {
        let (card, endpoint) = (&self.card, &self.endpoint);
        let body = self.wire.body(&Texts {
            card,
            endpoint,
            texts,
            purpose,
            dimensions: card.dimensions,
        });
        let call = Exchange {
            endpoint,
            provider: &card.provider,
            id: &card.id,
            path: self.wire.path(card),
            headers: self.wire.headers(),
        };
        let explain = |error| self.wire.explain(error, card, endpoint);
        call.send(body, explain, |reply| self.wire.read(reply))
            .await
    }

    /// Returns the vectors of texts that are not empty.
    ///
    /// The usage is unknown as soon as one reply does not state it. After the first batch an error
    /// is marked as charged, because the earlier batches were paid.
    async fn embed_all(&self, texts: &[&str], purpose: Purpose) -> Result<Embeddings, ModelError> {
        let prefix = self.wire.prefix(&self.card, purpose);
        let texts: Vec<Cow<'_, str>> = texts.iter().map(|text| prefixed(&prefix, text)).collect();
        let mut checked = ValidVectors::new(self.card.dimensions);
        let mut input = Some(0_u64);
        for batch in batches(&texts, self.batch) {
            let sent = self.send(batch, purpose).await;
            let result = sent.and_then(|(vectors, tokens)| {
                input = input
                    .zip(tokens)
                    .map(|(all, more)| all.saturating_add(more));
                checked.take(vectors, batch.len())
            });
            let before = !std::ptr::eq(batch.as_ptr(), texts.as_ptr());
            result.map_err(|error| if before { error.with_charge() } else { error })?;
        }
        let mut usage = Usage::default();
        usage.input = input;
        Ok(Embeddings::new(checked.vectors).with_usage(usage))
    }
}

#[async_trait]
impl<E: EmbeddingWire> Embedder for Remote<E> {
    fn card(&self) -> &EmbedderCard {
        &self.card
    }

    async fn embed(&self, texts: &[String], purpose: Purpose) -> Result<Embeddings, ModelError> {
        if texts.is_empty() {
            return Ok(Embeddings::default());
        }
        // Providers reject an empty text, along with all other texts of the request.
        let mut nonempty: Vec<&str> = texts
            .iter()
            .map(String::as_str)
            .filter(|text| has_text(text))
            .collect();
        let all_empty = nonempty.is_empty();
        if all_empty {
            if let Some(dimensions) = self.card.dimensions {
                return Ok(Embeddings::new(vec![vec![0.0; dimensions]; texts.len()]));
            }
            nonempty.push(PLACEHOLDER);
        }
        let mut embedded = self.embed_all(&nonempty, purpose).await?;
        let dimensions = embedded.vectors.first().map_or(0, Vec::len);
        let mut found = std::mem::take(&mut embedded.vectors).into_iter();
        let vector = |text: &String| match has_text(text) {
            true => found.next().unwrap_or_default(),
            false => vec![0.0; dimensions],
        };
        embedded.vectors = texts.iter().map(vector).collect();
        Ok(embedded)
    }
}

/// A request with one reply, which is read as a whole.
pub(crate) struct Exchange<'a> {
    pub(crate) endpoint: &'a Endpoint,
    /// The name of the provider, for errors.
    pub(crate) provider: &'a str,
    /// The name of the model, for errors.
    pub(crate) id: &'a str,
    /// The path, relative to the server's address.
    pub(crate) path: String,
    /// The headers with secrets, which are removed from errors.
    pub(crate) headers: Vec<(&'static str, Secret)>,
}

impl Exchange<'_> {
    /// Sends a body, and returns the result of `read` for the body of the reply.
    ///
    /// # Errors
    /// Returns the provider's error, `Malformed` for a reply of more than 64 MiB, and the errors of
    /// `read` and of the [`Endpoint`]. Secrets of the request are removed; `explain` may add
    /// details.
    pub(crate) async fn send<T>(
        &self,
        body: Vec<u8>,
        explain: impl Fn(ModelError) -> ModelError,
        read: impl FnOnce(&[u8]) -> Result<T, ModelError>,
    ) -> Result<T, ModelError> {
        let (endpoint, headers) = (self.endpoint, &self.headers);
        let sent = endpoint.send(&self.path, headers, body).await;
        let target = ErrorTarget::new(self.provider, self.id, endpoint);
        let explain = |error| target.sent(explain(error));
        let mut reply = sent.map_err(explain)?;
        if !(200..300).contains(&reply.status()) {
            let error = error_from_reply(&mut reply, endpoint, headers).await;
            return Err(explain(error));
        }
        let body = reply.rest(MAX_REPLY_BYTES + 1).await.map_err(explain)?;
        if body.len() > MAX_REPLY_BYTES {
            return Err(explain(malformed(format!(
                "the reply is larger than {MAX_REPLY_BYTES} bytes"
            ))));
        }
        if let Some(error) = unexpected_body_error(&reply, &body) {
            return Err(explain(scrub_error(error, endpoint, headers)));
        }
        read(&body).map_err(|error| explain(scrub_error(error, endpoint, headers)))
    }
}

/// Returns `true` if a text has a character other than white space.
pub(crate) fn has_text(text: &str) -> bool {
    !text.trim().is_empty()
}

/// Puts the prefix before a text, without a copy if the prefix is empty.
fn prefixed<'a>(prefix: &str, text: &'a str) -> Cow<'a, str> {
    if prefix.is_empty() {
        text.into()
    } else {
        format!("{prefix}{text}").into()
    }
}

/// Splits the texts into batches of one request each.
///
/// A batch ends before the text that would exceed the bytes, or after `max_texts` texts. A limit of
/// zero counts as one.
pub(crate) fn batches<'a>(
    mut texts: &'a [Cow<'a, str>],
    max_texts: usize,
) -> Vec<&'a [Cow<'a, str>]> {
    let mut batches = Vec::new();
    while !texts.is_empty() {
        let mut bytes = 0_usize;
        let fits = |text: &&Cow<'_, str>| {
            bytes = bytes.saturating_add(text.len());
            bytes <= MAX_BATCH_BYTES
        };
        // A single text is sent regardless of its length; the provider reports if it is too long.
        let count = texts
            .iter()
            .take(max_texts.max(1))
            .take_while(fits)
            .count()
            .max(1);
        let (batch, rest) = texts.split_at(count);
        batches.push(batch);
        texts = rest;
    }
    batches
}

/// Creates the error for a reply that cannot be used, which is not retryable.
pub(crate) fn malformed(message: impl Into<String>) -> ModelError {
    ModelError::new(ModelErrorKind::Malformed, message)
}

/// Returns the error for an unexpected reply: an error of the provider in another form, or an
/// unknown format without the expected content.
pub(crate) fn unexpected_reply(
    reply: &[u8],
    error: &serde_json::Error,
    expected: &str,
) -> ModelError {
    let value: Option<Value> = serde_json::from_slice(reply).ok();
    match value.as_ref().and_then(find_failure) {
        Some(failure) => failure.into_error(None),
        // The content may include a key, so the error states only its position.
        None => malformed(format!("the reply contains no {expected}")).with_source(format!(
            "line {}, column {}",
            error.line(),
            error.column()
        )),
    }
}

/// Implements the shared settings and `Embedder` for a type that wraps a [`Remote`].
macro_rules! embedder {
    ($embedder:ident) => {
        impl $embedder {
            /// Changes the address of the server and its connection: headers, fields and time
            /// limits.
            ///
            /// The closure receives the current endpoint; return it changed, or return another one.
            /// The key of the provider is not part of the endpoint and stays.
            #[must_use]
            pub fn with_endpoint(
                mut self,
                change: impl FnOnce($crate::Endpoint) -> $crate::Endpoint,
            ) -> Self {
                self.0.endpoint = change(self.0.endpoint);
                self
            }

            /// Requests vectors with this number of dimensions; by default the model decides. A
            /// reply with another number is an error.
            ///
            /// Vectors of different dimensions cannot be compared, so do not change the number for
            /// stored vectors. Not every model supports a choice.
            #[must_use]
            pub fn with_dimensions(mut self, dimensions: usize) -> Self {
                self.0.card.dimensions = Some(dimensions);
                self
            }

            /// Sets the maximum number of texts per request.
            ///
            /// A batch also ends at 256 KiB of text. Zero counts as one.
            #[must_use]
            pub fn with_batch(mut self, texts: usize) -> Self {
                self.0.batch = texts.max(1);
                self
            }

            /// Sets the provider name under which the embedder was requested.
            pub(crate) fn of_provider(mut self, provider: &str) -> Self {
                self.0.card.provider = provider.to_owned();
                self
            }
        }

        #[async_trait::async_trait]
        #[deny(clippy::missing_trait_methods)]
        impl levity_core::Embedder for $embedder {
            fn card(&self) -> &levity_core::EmbedderCard {
                self.0.card()
            }

            async fn embed(
                &self,
                texts: &[String],
                purpose: levity_core::Purpose,
            ) -> Result<levity_core::Embeddings, levity_core::ModelError> {
                self.0.embed(texts, purpose).await
            }
        }
    };
}

pub(crate) use embedder;
