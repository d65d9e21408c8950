//! An embedder whose failures never prevent saving or finding texts by words.
//!
//! Three rules keep a bad embedder harmless. A call has 20 seconds. After a failure, no call is
//! made for 30 seconds. A text that the embedder rejects is marked, so that it is not sent again
//! and again. Texts without a vector can get one later.

use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{Either, select};
use levity_core::{
    Embedder, Embeddings, ModelError, ModelErrorKind, Purpose, Timestamp, Usage, World,
};

use crate::truncate_question;

/// The timeout of a call to the embedder.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The delay after a failure before the embedder is called again.
pub(crate) const RETRY_DELAY: Duration = Duration::from_secs(30);
/// A text that every embedder accepts.
const PROBE_TEXT: &str = "fact";
/// The maximum number of components of a vector.
const MAX_DIMENSIONS: usize = 1 << 14;

/// An embedder and its most recent failure.
///
/// ```
/// use levity_search::Embedding;
/// use levity_system::SystemWorld;
/// use levity_test::WordEmbedder;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::ModelError> {
/// let embedding = Embedding::new(std::sync::Arc::new(WordEmbedder::new()));
/// let (vector, _usage) = embedding.embed_query(&SystemWorld, "tea").await?;
/// assert!(!vector.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Embedding {
    embedder: Arc<dyn Embedder>,
    /// The card that identifies the embedder in the file.
    card: Arc<str>,
    /// The time and error of the last failure.
    failed: Arc<Mutex<Option<(Timestamp, ModelError)>>>,
}

impl fmt::Debug for Embedding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Embedding").field(&self.card).finish()
    }
}

impl Embedding {
    /// Wraps an embedder that has not failed yet.
    pub fn new(embedder: Arc<dyn Embedder>) -> Self {
        let card = embedder.card();
        let named = || format!("{}:{}", card.provider, card.id);
        let card = serde_json::to_string(card)
            .unwrap_or_else(|_| named())
            .into();
        Self {
            embedder,
            card,
            failed: Arc::default(),
        }
    }

    /// Returns the text that identifies the embedder in a file.
    pub fn card(&self) -> &Arc<str> {
        &self.card
    }

    /// Checks that the embedder may be called.
    ///
    /// # Errors
    /// The last error, for 30 seconds after it.
    pub fn check_available(&self, now: Timestamp) -> Result<(), ModelError> {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        match &*failed {
            Some((when, error)) if now.since(*when) < RETRY_DELAY && now >= *when => {
                Err(error.clone())
            }
            _ => Ok(()),
        }
    }

    /// Embeds a query text.
    ///
    /// # Errors
    /// If the embedder fails, or failed in the last 30 seconds.
    pub async fn embed_query(
        &self,
        world: &dyn World,
        text: &str,
    ) -> Result<(Vec<f32>, Usage), ModelError> {
        let (mut vectors, usage) = self.embed_queries(world, &[text]).await?;
        Ok((vectors.pop().unwrap_or_default(), usage))
    }

    /// Embeds the texts of several queries with one call.
    ///
    /// # Errors
    /// As [`embed_query`](Self::embed_query).
    pub async fn embed_queries(
        &self,
        world: &dyn World,
        texts: &[&str],
    ) -> Result<(Vec<Vec<f32>>, Usage), ModelError> {
        self.check_available(world.now())?;
        let texts = texts.iter().map(|text| truncate_question(text).to_owned());
        let texts: Vec<String> = texts.collect();
        let embedded = self.embed(world, &texts, Purpose::Query).await?;
        Ok((embedded.vectors, embedded.usage))
    }

    /// Embeds texts, with an error for each text that the embedder rejects while it accepts others.
    ///
    /// A batch that fails because of one text is repeated one by one, to find that text.
    ///
    /// # Errors
    /// If the embedder fails, or rejects every text.
    pub async fn embed_documents(
        &self,
        world: &dyn World,
        texts: &[String],
    ) -> Result<(Vec<Vector>, Usage), ModelError> {
        let error = match self.embed(world, texts, Purpose::Document).await {
            Ok(embedded) => {
                return Ok((
                    embedded.vectors.into_iter().map(Ok).collect(),
                    embedded.usage,
                ));
            }
            Err(error) if may_concern_one_text(&error) => error,
            Err(error) => return Err(error),
        };
        let (vectors, usage) = match texts {
            [_] => (vec![Err(error.clone())], Usage::default()),
            texts => self.one_by_one(world, texts).await?,
        };
        // If all texts are rejected, the cause may be the embedder instead of the texts.
        let probe = [PROBE_TEXT.to_owned()];
        if vectors.iter().all(Result::is_err)
            && self.embed(world, &probe, Purpose::Document).await.is_err()
        {
            self.remember_failure(Some((world.now(), error.clone())));
            return Err(error);
        }
        Ok((vectors, usage))
    }

    async fn one_by_one(
        &self,
        world: &dyn World,
        texts: &[String],
    ) -> Result<(Vec<Vector>, Usage), ModelError> {
        let (mut vectors, mut usage) = (Vec::with_capacity(texts.len()), Usage::default());
        let start = world.now();
        for text in texts {
            if world.now().since(start) >= TIMEOUT {
                let error = timeout_error();
                self.remember_failure(Some((world.now(), error.clone())));
                return Err(error);
            }
            match self
                .embed(world, std::slice::from_ref(text), Purpose::Document)
                .await
            {
                Ok(mut embedded) => {
                    add_usage(&mut usage, embedded.usage);
                    vectors.push(Ok(embedded.vectors.pop().unwrap_or_default()));
                }
                Err(error) if may_concern_one_text(&error) => vectors.push(Err(error)),
                Err(error) => return Err(error),
            }
        }
        Ok((vectors, usage))
    }

    /// Calls the embedder. A failure blocks further calls for a while, unless the texts may have
    /// caused it.
    async fn embed(
        &self,
        world: &dyn World,
        texts: &[String],
        purpose: Purpose,
    ) -> Result<Embeddings, ModelError> {
        let work = pin!(self.embedder.embed(texts, purpose));
        let embedded = match select(work, world.sleep(TIMEOUT)).await {
            Either::Left((embedded, _)) => {
                embedded.and_then(|embedded| validate(embedded, texts.len()))
            }
            Either::Right(_) => Err(timeout_error()),
        };
        match &embedded {
            Ok(_) => self.remember_failure(None),
            Err(error) if may_concern_one_text(error) => {}
            Err(error) => self.remember_failure(Some((world.now(), error.clone()))),
        }
        embedded
    }

    fn remember_failure(&self, failure: Option<(Timestamp, ModelError)>) {
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = failure;
    }
}

/// The vector of a text, or the reason why it has none.
pub type Vector = Result<Vec<f32>, ModelError>;

fn timeout_error() -> ModelError {
    ModelError::new(
        ModelErrorKind::Timeout,
        format!("the embedder did not answer within {TIMEOUT:?}"),
    )
}

/// Returns `true` if a single text among others may have caused the error.
pub(crate) fn may_concern_one_text(error: &ModelError) -> bool {
    matches!(
        error.kind(),
        ModelErrorKind::BadRequest
            | ModelErrorKind::ContextTooLong
            | ModelErrorKind::ContentFiltered
            | ModelErrorKind::Malformed
    )
}

/// Validates vectors against the contract of embedders, before any get into the file.
///
/// A vector with an infinite component would be the nearest to everything.
fn validate(embedded: Embeddings, texts: usize) -> Result<Embeddings, ModelError> {
    let vectors = &embedded.vectors;
    let dimensions = vectors.first().map_or(0, Vec::len);
    let valid = vectors.len() == texts
        && (1..=MAX_DIMENSIONS).contains(&dimensions)
        && vectors.iter().all(|vector| vector.len() == dimensions)
        && vectors.iter().flatten().all(|part| part.is_finite());
    if valid {
        return Ok(embedded);
    }
    let message = format!(
        "the embedder must return one vector per text, all of one size of at most {MAX_DIMENSIONS} \
            finite numbers"
    );
    Err(ModelError::new(ModelErrorKind::Malformed, message))
}

/// Adds the tokens that another call used.
///
/// ```
/// use levity_core::Usage;
///
/// let (mut total, mut more) = (Usage::default(), Usage::default());
/// more.input = Some(7);
/// levity_search::add_usage(&mut total, more);
/// assert_eq!(total.input, Some(7));
/// ```
pub fn add_usage(total: &mut Usage, more: Usage) {
    total.input = match (total.input, more.input) {
        (Some(total), Some(more)) => Some(total.saturating_add(more)),
        (total, more) => total.or(more),
    };
}
