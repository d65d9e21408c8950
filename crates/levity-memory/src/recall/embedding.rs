//! The embedder of a file of facts. Its failures never prevent saving or finding facts by words.
//!
//! Three rules keep a bad embedder harmless. A call has 20 seconds. After a failure, no call is
//! made for 30 seconds. A text that the embedder rejects is marked, so that it is not sent again
//! and again. Facts without a vector are caught up with later calls.

use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{Either, select};
use levity_core::{
    Embedder, Embeddings, MemoryError, ModelError, ModelErrorKind, Purpose, Timestamp, Usage, World,
};

use super::{EmbeddingReport, FactId, File, Recall, Scope, full_text, rows, vectors};

/// The timeout of a call to the embedder.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The delay after a failure before the embedder is called again.
const RETRY_DELAY: Duration = Duration::from_secs(30);
/// The number of facts that are embedded along with a `remember` or `recall`.
const BACKLOG: usize = 32;
/// The batch size when all missing facts are embedded.
const BATCH: usize = 64;
/// A text that every embedder accepts.
const PROBE_TEXT: &str = "fact";
/// The maximum number of components of a vector.
const MAX_DIMENSIONS: usize = 1 << 14;

/// An embedder and its most recent failure.
#[derive(Clone)]
pub(super) struct Embedding {
    embedder: Arc<dyn Embedder>,
    /// The card that identifies the embedder in the file.
    pub(super) card: Arc<str>,
    /// The time and error of the last failure.
    failed: Arc<Mutex<Option<(Timestamp, ModelError)>>>,
}

impl fmt::Debug for Embedding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Embedding").field(&self.card).finish()
    }
}

impl Embedding {
    pub(super) fn new(embedder: Arc<dyn Embedder>) -> Self {
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

    /// Returns the last error while the embedder must not be called again.
    fn check_available(&self, now: Timestamp) -> Result<(), ModelError> {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        match &*failed {
            Some((when, error)) if now.since(*when) < RETRY_DELAY && now >= *when => {
                Err(error.clone())
            }
            _ => Ok(()),
        }
    }

    /// Embeds a query text.
    pub(super) async fn embed_query(
        &self,
        world: &dyn World,
        text: &str,
    ) -> Result<(Vec<f32>, Usage), ModelError> {
        self.check_available(world.now())?;
        let text = full_text::truncate(text).to_owned();
        let mut embedded = self.embed(world, &[text], Purpose::Query).await?;
        Ok((embedded.vectors.pop().unwrap_or_default(), embedded.usage))
    }

    /// Embeds facts, with an error for each fact that the embedder rejects while it accepts others.
    ///
    /// A batch that fails because of one text is repeated one by one, to find that text.
    async fn embed_documents(
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
                    add(&mut usage, embedded.usage);
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

/// The vector of a fact, or the reason why it has none.
type Vector = Result<Vec<f32>, ModelError>;

fn timeout_error() -> ModelError {
    ModelError::new(
        ModelErrorKind::Timeout,
        format!("the embedder did not answer within {TIMEOUT:?}"),
    )
}

/// Returns `true` if a single text among others may have caused the error.
fn may_concern_one_text(error: &ModelError) -> bool {
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

fn add(total: &mut Usage, more: Usage) {
    total.input = match (total.input, more.input) {
        (Some(total), Some(more)) => Some(total.saturating_add(more)),
        (total, more) => total.or(more),
    };
}

impl Recall {
    /// Embeds every fact of the file that has no vector of this embedder yet.
    ///
    /// Such facts were saved without an embedder, during a failure, or with another embedder. Every
    /// `remember` and `recall` embeds some of them; this method embeds all. It has no effect
    /// without an embedder.
    ///
    /// A failure of the embedder ends the call; vectors that were already written remain.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub async fn embed_missing(&self) -> Result<EmbeddingReport, MemoryError> {
        let mut report = EmbeddingReport::default();
        let Some(embedding) = &self.embedding else {
            return Ok(report);
        };
        let mut after = 0;
        loop {
            let card = embedding.card.clone();
            let next = move |file: &File| {
                file.write(|change| {
                    let embedder = vectors::insert_embedder(change, &card)?;
                    Ok(vectors::next_missing(change, embedder, after, BATCH)?)
                })
            };
            let facts = self.run_on_file(next).await?;
            let Some((last, _)) = facts.last() else {
                return Ok(report);
            };
            after = *last;
            match self.embed_facts(embedding, facts).await? {
                Ok((vectors, usage)) => {
                    report.facts += vectors.iter().filter(|(_, vector)| vector.is_ok()).count();
                    report.error = vectors
                        .into_iter()
                        .find_map(|(_, vector)| vector.err())
                        .or(report.error);
                    add(&mut report.usage, usage);
                }
                Err(error) => {
                    return Ok(EmbeddingReport {
                        error: Some(error),
                        ..report
                    });
                }
            }
        }
    }

    /// Embeds some facts of these scopes that have no vector, newest first. It fails if the
    /// embedder does, or if it rejects the fact `wanted`.
    pub(super) async fn embed_backlog(
        &self,
        scopes: &[Scope],
        wanted: Option<FactId>,
    ) -> Result<Result<Usage, ModelError>, MemoryError> {
        let Some(embedding) = &self.embedding else {
            return Ok(Ok(Usage::default()));
        };
        if let Err(error) = embedding.check_available(self.world.now()) {
            return Ok(Err(error));
        }
        let (card, scopes) = (embedding.card.clone(), scopes.to_vec());
        let wanted = wanted.map_or(0, FactId::key);
        let backlog = move |file: &File| {
            file.read(|view| {
                let scopes = rows::scope_keys(view, &scopes)?;
                // An embedder that is not in the file has embedded no facts.
                let embedder = vectors::embedder(view, &card)?.unwrap_or(i64::MAX);
                vectors::missing(view, embedder, &scopes, (wanted, BACKLOG))
            })
        };
        let facts = self.run_on_file(backlog).await?;
        if facts.is_empty() {
            return Ok(Ok(Usage::default()));
        }
        let embedded = self.embed_facts(embedding, facts).await?;
        Ok(embedded.and_then(|(vectors, usage)| {
            let wanted_fact = vectors.into_iter().find(|(id, _)| *id == wanted);
            wanted_fact.map_or(Ok(usage), |(_, vector)| vector.map(|_| usage))
        }))
    }

    async fn embed_facts(
        &self,
        embedding: &Embedding,
        facts: Vec<(i64, String)>,
    ) -> Result<Result<(Vec<(i64, Vector)>, Usage), ModelError>, MemoryError> {
        let (ids, texts): (Vec<i64>, Vec<String>) = facts.into_iter().unzip();
        let (found, usage) = match embedding.embed_documents(&*self.world, &texts).await {
            Ok(found) => found,
            Err(error) => return Ok(Err(error)),
        };
        let card = embedding.card.clone();
        let write_vectors = move |file: &File| {
            file.write(|change| {
                let embedder = vectors::insert_embedder(change, &card)?;
                for ((id, text), vector) in ids.iter().zip(&texts).zip(&found) {
                    let vector = vector.as_deref().ok();
                    vectors::save(change, embedder, (*id, rows::digest(text)), vector)?;
                }
                Ok(())
            })?;
            Ok(ids.into_iter().zip(found).collect())
        };
        Ok(Ok((self.run_on_file(write_vectors).await?, usage)))
    }
}
