//! The embedder beside the facts. Whatever it does, facts are kept and found by their words.

use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{Either, select};
use levity_core::{
    Embedded, Embedder, MemoryError, ModelError, ModelErrorKind, Purpose, Timestamp, Usage, World,
};

use super::{EmbeddingReport, FactId, File, Recall, Scope, rows, vectors, words};

/// How long an embedder may take.
const TIME: Duration = Duration::from_secs(20);
/// How long it is left alone after it failed.
const REST: Duration = Duration::from_secs(30);
/// How many facts get their vectors beside what is remembered or recalled.
const BESIDE: usize = 32;
/// How many facts get their vectors at once when all are to have them.
const BATCH: usize = 64;
/// A text that every embedder takes.
const PLAIN: &str = "fact";
/// How many components a vector has at most.
const MOST: usize = 1 << 14;

/// An embedder, and how it has been lately.
#[derive(Clone)]
pub(super) struct Meaning {
    embedder: Arc<dyn Embedder>,
    /// What the file knows it by.
    pub(super) card: Arc<str>,
    /// When and how it failed.
    failed: Arc<Mutex<Option<(Timestamp, ModelError)>>>,
}

impl fmt::Debug for Meaning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Meaning").field(&self.card).finish()
    }
}

impl Meaning {
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

    /// Why it is not asked now.
    fn resting(&self, now: Timestamp) -> Result<(), ModelError> {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        match &*failed {
            Some((when, error)) if now.since(*when) < REST && now >= *when => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// The vector of what is looked for.
    pub(super) async fn query(
        &self,
        world: &dyn World,
        text: &str,
    ) -> Result<(Vec<f32>, Usage), ModelError> {
        self.resting(world.now())?;
        let text = words::head(text).to_owned();
        let mut embedded = self.embed(world, &[text], Purpose::Query).await?;
        Ok((embedded.vectors.pop().unwrap_or_default(), embedded.usage))
    }

    /// The vectors of facts; an error in the place of each that the embedder does not take, though
    /// it takes others.
    async fn documents(
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
            Err(error) if may_be_one_text(&error) => error,
            Err(error) => return Err(error),
        };
        let (vectors, usage) = match texts {
            [_] => (vec![Err(error.clone())], Usage::default()),
            texts => self.one_by_one(world, texts).await?,
        };
        // When none is taken, it may be the embedder that is wrong, and not the texts.
        let plain = [PLAIN.to_owned()];
        if vectors.iter().all(Result::is_err)
            && self.embed(world, &plain, Purpose::Document).await.is_err()
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
            if world.now().since(start) >= TIME {
                let error = late();
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
                Err(error) if may_be_one_text(&error) => vectors.push(Err(error)),
                Err(error) => return Err(error),
            }
        }
        Ok((vectors, usage))
    }

    /// Asks it. When it fails, it is left alone for a while, unless that may have been because of
    /// the texts.
    async fn embed(
        &self,
        world: &dyn World,
        texts: &[String],
        purpose: Purpose,
    ) -> Result<Embedded, ModelError> {
        let work = pin!(self.embedder.embed(texts, purpose));
        let embedded = match select(work, world.sleep(TIME)).await {
            Either::Left((embedded, _)) => {
                embedded.and_then(|embedded| checked(embedded, texts.len()))
            }
            Either::Right(_) => Err(late()),
        };
        match &embedded {
            Ok(_) => self.remember_failure(None),
            Err(error) if may_be_one_text(error) => {}
            Err(error) => self.remember_failure(Some((world.now(), error.clone()))),
        }
        embedded
    }

    fn remember_failure(&self, failure: Option<(Timestamp, ModelError)>) {
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = failure;
    }
}

/// The vector of a fact, or why it has none.
type Vector = Result<Vec<f32>, ModelError>;

fn late() -> ModelError {
    ModelError::new(
        ModelErrorKind::Timeout,
        format!("the embedder did not answer within {TIME:?}"),
    )
}

/// Whether an embedder may fail so because of one text among others.
fn may_be_one_text(error: &ModelError) -> bool {
    matches!(
        error.kind(),
        ModelErrorKind::BadRequest
            | ModelErrorKind::ContextTooLong
            | ModelErrorKind::ContentFiltered
            | ModelErrorKind::Malformed
    )
}

/// Vectors as the contract of embedders has them: nothing else gets into the file.
fn checked(embedded: Embedded, texts: usize) -> Result<Embedded, ModelError> {
    let vectors = &embedded.vectors;
    let dimensions = vectors.first().map_or(0, Vec::len);
    let right = vectors.len() == texts
        && (1..=MOST).contains(&dimensions)
        && vectors.iter().all(|vector| vector.len() == dimensions)
        && vectors.iter().flatten().all(|part| part.is_finite());
    if right {
        return Ok(embedded);
    }
    let message = format!(
        "the embedder's vectors are not one for each text, of one size up to {MOST} numbers"
    );
    Err(ModelError::new(ModelErrorKind::Malformed, message))
}

fn add(all: &mut Usage, more: Usage) {
    all.input = match (all.input, more.input) {
        (Some(all), Some(more)) => Some(all.saturating_add(more)),
        (all, more) => all.or(more),
    };
}

impl Recall {
    /// Gives every fact of the file its vector that has none of this embedder yet: facts from
    /// before there was one, from a time when it was down, or from another embedder. A part of that
    /// is done whenever something is remembered or recalled; this does all of it. Without an
    /// embedder there is nothing to do.
    ///
    /// An embedder that fails ends it; what is done so far stays done.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub async fn embed_missing(&self) -> Result<EmbeddingReport, MemoryError> {
        let mut filled = EmbeddingReport::default();
        let Some(meaning) = &self.meaning else {
            return Ok(filled);
        };
        let mut after = 0;
        loop {
            let card = meaning.card.clone();
            let next = move |file: &File| {
                file.write(|change| {
                    let embedder = vectors::make_embedder(change, &card)?;
                    Ok(vectors::next_missing(change, embedder, after, BATCH)?)
                })
            };
            let facts = self.work(next).await?;
            let Some((last, _)) = facts.last() else {
                return Ok(filled);
            };
            after = *last;
            match self.embed_facts(meaning, facts).await? {
                Ok((vectors, usage)) => {
                    filled.facts += vectors.iter().filter(|(_, vector)| vector.is_ok()).count();
                    filled.failed = vectors
                        .into_iter()
                        .find_map(|(_, vector)| vector.err())
                        .or(filled.failed);
                    add(&mut filled.usage, usage);
                }
                Err(error) => {
                    return Ok(EmbeddingReport {
                        failed: Some(error),
                        ..filled
                    });
                }
            }
        }
    }

    /// Gives some facts of these scopes their vectors, newest first, if there are any without. It
    /// fails when the embedder does, or when it does not take the fact `wanted`.
    pub(super) async fn embed_some(
        &self,
        scopes: &[Scope],
        wanted: Option<FactId>,
    ) -> Result<Result<Usage, ModelError>, MemoryError> {
        let Some(meaning) = &self.meaning else {
            return Ok(Ok(Usage::default()));
        };
        if let Err(error) = meaning.resting(self.world.now()) {
            return Ok(Err(error));
        }
        let (card, scopes) = (meaning.card.clone(), scopes.to_vec());
        let wanted = wanted.map_or(0, FactId::key);
        let some = move |file: &File| {
            file.read(|view| {
                let scopes = rows::scope_keys(view, &scopes)?;
                // An embedder that the file does not know has embedded nothing.
                let embedder = vectors::embedder(view, &card)?.unwrap_or(i64::MAX);
                vectors::missing(view, embedder, &scopes, (wanted, BESIDE))
            })
        };
        let facts = self.work(some).await?;
        if facts.is_empty() {
            return Ok(Ok(Usage::default()));
        }
        let embedded = self.embed_facts(meaning, facts).await?;
        Ok(embedded.and_then(|(vectors, usage)| {
            let own = vectors.into_iter().find(|(id, _)| *id == wanted);
            own.map_or(Ok(usage), |(_, vector)| vector.map(|_| usage))
        }))
    }

    async fn embed_facts(
        &self,
        meaning: &Meaning,
        facts: Vec<(i64, String)>,
    ) -> Result<Result<(Vec<(i64, Vector)>, Usage), ModelError>, MemoryError> {
        let (ids, texts): (Vec<i64>, Vec<String>) = facts.into_iter().unzip();
        let (found, usage) = match meaning.documents(&*self.world, &texts).await {
            Ok(found) => found,
            Err(error) => return Ok(Err(error)),
        };
        let card = meaning.card.clone();
        let keep = move |file: &File| {
            file.write(|change| {
                let embedder = vectors::make_embedder(change, &card)?;
                for ((id, text), vector) in ids.iter().zip(&texts).zip(&found) {
                    let vector = vector.as_deref().ok();
                    vectors::keep(change, embedder, (*id, rows::digest(text)), vector)?;
                }
                Ok(())
            })?;
            Ok(ids.into_iter().zip(found).collect())
        };
        Ok(Ok((self.work(keep).await?, usage)))
    }
}
