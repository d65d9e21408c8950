//! Embedders behind HTTP: what all providers have in common.

use std::borrow::Cow;

use async_trait::async_trait;
use levity_core::{Embedded, Embedder, EmbedderCard, ModelError, ModelErrorKind, Purpose, Usage};
use serde_json::Value;

use crate::http::{Endpoint, Place, Secret, foreign, plain, refused, scrubbed};

mod vectors;

use vectors::Checked;

/// The longest reply that is read.
const LONGEST: usize = 64 << 20;

/// How many bytes of text go into one request. No tokeniser makes more tokens of them, and
/// providers take as many.
const MOST_BYTES: usize = 256 << 10;

/// What stands for a text that says nothing, where only its answer's length is wanted.
const SOMETHING: &str = "-";

/// How one provider embeds.
#[async_trait]
pub(crate) trait Embeds: Clone + Send + Sync + 'static {
    /// Where requests go, behind the server's address.
    fn path(&self, card: &EmbedderCard) -> String;

    /// Headers of its own: who asks.
    fn headers(&self) -> Vec<(&'static str, Secret)>;

    /// What stands before a text in the request.
    fn prefix(&self, card: &EmbedderCard, purpose: Purpose) -> Cow<'_, str>;

    /// The request's body.
    fn body(&self, asked: &Texts<'_>) -> Vec<u8>;

    /// Reads a reply: vectors in the order of the texts, and how many tokens were sent, where that
    /// is said.
    fn read(&self, reply: &[u8]) -> Result<(Vec<Vec<f32>>, Option<u64>), ModelError>;

    /// Says more of an error, where the provider knows what to do about it.
    fn explain(&self, error: ModelError, _: &EmbedderCard, _: &Endpoint) -> ModelError {
        error
    }
}

/// What a body is made from.
pub(crate) struct Texts<'a> {
    pub(crate) card: &'a EmbedderCard,
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) texts: &'a [Cow<'a, str>],
    #[allow(dead_code, reason = "only some providers need it")]
    pub(crate) purpose: Purpose,
    /// How many components are asked for.
    pub(crate) dimensions: Option<usize>,
}

/// An embedder that is reached by HTTP.
#[derive(Clone, Debug)]
pub(crate) struct Remote<E> {
    pub(crate) wire: E,
    pub(crate) card: EmbedderCard,
    pub(crate) endpoint: Endpoint,
    /// How many texts go into one request.
    pub(crate) batch: usize,
}

impl<E: Embeds> Remote<E> {
    pub(crate) fn new(wire: E, card: EmbedderCard, endpoint: Endpoint, batch: usize) -> Self {
        Self {
            wire,
            card,
            endpoint,
            batch,
        }
    }

    /// Sends one request.
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
        let headers = self.wire.headers();
        let sent = endpoint.send(&self.wire.path(card), &headers, body).await;
        let place = Place::new(&card.provider, &card.id, endpoint);
        let explain = |error| place.sent(self.wire.explain(error, card, endpoint));
        let mut reply = sent.map_err(explain)?;
        if !(200..300).contains(&reply.status()) {
            return Err(explain(refused(&mut reply, endpoint, &headers).await));
        }
        let body = reply.rest(LONGEST + 1).await.map_err(explain)?;
        if body.len() > LONGEST {
            return Err(explain(malformed(format!(
                "the reply is larger than {LONGEST} bytes"
            ))));
        }
        if let Some(error) = foreign(&reply, &body) {
            return Err(explain(scrubbed(error, endpoint, &headers)));
        }
        self.wire
            .read(&body)
            .map_err(|error| explain(scrubbed(error, endpoint, &headers)))
    }

    /// The vectors of texts that say something.
    async fn embed_all(&self, texts: &[&str], purpose: Purpose) -> Result<Embedded, ModelError> {
        let prefix = self.wire.prefix(&self.card, purpose);
        let texts: Vec<Cow<'_, str>> = texts.iter().map(|text| prefixed(&prefix, text)).collect();
        let mut checked = Checked::new(self.card.dimensions);
        let mut input = Some(0_u64);
        for batch in batches(&texts, self.batch) {
            let sent = self.send(batch, purpose).await;
            let taken = sent.and_then(|(vectors, tokens)| {
                input = input
                    .zip(tokens)
                    .map(|(all, more)| all.saturating_add(more));
                checked.take(vectors, batch.len())
            });
            let before = !std::ptr::eq(batch.as_ptr(), texts.as_ptr());
            taken.map_err(|error| if before { error.with_charge() } else { error })?;
        }
        let mut usage = Usage::default();
        usage.input = input;
        Ok(Embedded::new(checked.vectors).with_usage(usage))
    }
}

#[async_trait]
impl<E: Embeds> Embedder for Remote<E> {
    fn card(&self) -> &EmbedderCard {
        &self.card
    }

    async fn embed(&self, texts: &[String], purpose: Purpose) -> Result<Embedded, ModelError> {
        if texts.is_empty() {
            return Ok(Embedded::default());
        }
        // Providers refuse a text that says nothing, and all the others with it.
        let mut said: Vec<&str> = texts
            .iter()
            .map(String::as_str)
            .filter(|text| says(text))
            .collect();
        let nothing = said.is_empty();
        if nothing {
            if let Some(dimensions) = self.card.dimensions {
                return Ok(Embedded::new(vec![vec![0.0; dimensions]; texts.len()]));
            }
            said.push(SOMETHING);
        }
        let mut embedded = self.embed_all(&said, purpose).await?;
        let dimensions = embedded.vectors.first().map_or(0, Vec::len);
        let mut found = std::mem::take(&mut embedded.vectors).into_iter();
        let vector = |text: &String| match says(text) {
            true => found.next().unwrap_or_default(),
            false => vec![0.0; dimensions],
        };
        embedded.vectors = texts.iter().map(vector).collect();
        Ok(embedded)
    }
}

fn says(text: &str) -> bool {
    !text.trim().is_empty()
}

fn prefixed<'a>(prefix: &str, text: &'a str) -> Cow<'a, str> {
    if prefix.is_empty() {
        text.into()
    } else {
        format!("{prefix}{text}").into()
    }
}

/// The texts, cut into what goes into one request each.
fn batches<'a>(mut texts: &'a [Cow<'a, str>], most: usize) -> Vec<&'a [Cow<'a, str>]> {
    let mut batches = Vec::new();
    while !texts.is_empty() {
        let mut bytes = 0_usize;
        let fits = |text: &&Cow<'_, str>| {
            bytes = bytes.saturating_add(text.len());
            bytes <= MOST_BYTES
        };
        // One text alone goes, however long: the provider says what it makes of it.
        let count = texts
            .iter()
            .take(most.max(1))
            .take_while(fits)
            .count()
            .max(1);
        let (batch, rest) = texts.split_at(count);
        batches.push(batch);
        texts = rest;
    }
    batches
}

pub(crate) fn malformed(message: impl Into<String>) -> ModelError {
    ModelError::new(ModelErrorKind::Malformed, message)
}

/// A reply that is not what was asked for: an error of the provider's in disguise, or nothing we
/// understand.
pub(crate) fn odd(reply: &[u8], error: &serde_json::Error) -> ModelError {
    let value: Option<Value> = serde_json::from_slice(reply).ok();
    match value.as_ref().and_then(plain) {
        Some(failure) => failure.into_error(None),
        // What is wrong there may be anything, also a key; where it is says enough.
        None => malformed("the reply has no vectors in it").with_source(format!(
            "line {}, column {}",
            error.line(),
            error.column()
        )),
    }
}

/// Gives a type that wraps a [`Remote`] the settings all embedders share, and makes it an embedder.
macro_rules! embedder {
    ($embedder:ident) => {
        impl $embedder {
            /// Changes where the server is and how it is reached: address, headers, fields, time
            /// limits.
            #[must_use]
            pub fn with_endpoint(
                mut self,
                change: impl FnOnce($crate::Endpoint) -> $crate::Endpoint,
            ) -> Self {
                self.0.endpoint = change(self.0.endpoint);
                self
            }

            /// Asks for vectors of so many components; the model's own number unless set. Vectors
            /// of another number are an error.
            #[must_use]
            pub fn with_dimensions(mut self, dimensions: usize) -> Self {
                self.0.card.dimensions = Some(dimensions);
                self
            }

            /// How many texts go into one request at most.
            #[must_use]
            pub fn with_batch(mut self, texts: usize) -> Self {
                self.0.batch = texts.max(1);
                self
            }

            /// Says by whose name it was asked for.
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
            ) -> Result<levity_core::Embedded, levity_core::ModelError> {
                self.0.embed(texts, purpose).await
            }
        }
    };
}

pub(crate) use embedder;
