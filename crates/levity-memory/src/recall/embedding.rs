//! The vectors of facts: new facts get one when they are saved, others with later calls.

use levity_core::{MemoryError, ModelError, Usage};
use levity_search::{Embedding, Vector, add_usage};

use super::{EmbeddingReport, FactId, File, Recall, Scope, rows, vectors};

/// The number of facts that are embedded along with a `remember` or `recall`.
const BACKLOG: usize = 32;
/// The batch size when all missing facts are embedded.
const BATCH: usize = 64;

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
            let card = embedding.card().clone();
            let next = move |file: &File| {
                file.write(|change| {
                    let embedder = vectors::insert_embedder(change, &card)?;
                    Ok(vectors::next_missing(change, embedder, after, BATCH)?)
                })
            };
            let facts = self.file.run(next).await?;
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
                    add_usage(&mut report.usage, usage);
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
        let (card, scopes) = (embedding.card().clone(), scopes.to_vec());
        let wanted = wanted.map_or(0, FactId::key);
        let backlog = move |file: &File| {
            file.read(|view| {
                let scopes = rows::scope_keys(view, &scopes)?;
                // An embedder that is not in the file has embedded no facts.
                let embedder = vectors::embedder(view, &card)?.unwrap_or(i64::MAX);
                vectors::missing(view, embedder, &scopes, (wanted, BACKLOG))
            })
        };
        let facts = self.file.run(backlog).await?;
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
        let card = embedding.card().clone();
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
        Ok(Ok((self.file.run(write_vectors).await?, usage)))
    }
}
