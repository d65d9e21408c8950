//! The vectors of an index in an outside store.
//!
//! The file is the truth. A vector belongs to a passage, whose key is never used again, so a vector
//! of a removed passage can be recognized at any time. The order of changes makes every crash
//! harmless:
//!
//! 1. A passage is in the file, without a mark.
//! 2. Its vector is in the store.
//! 3. The passage is marked. Without the mark, the vector is computed and added once more.
//!
//! A removal deletes the passages and notes their keys in one transaction. The notes are deleted
//! when the store has removed the vectors.

mod client;
mod repair;
mod rows;
mod search;

pub(crate) use client::StoreClient;
pub(crate) use rows::note_removed;
pub(crate) use search::StoreMatches;

use crate::index::File;
use crate::{DocumentError, DocumentIndex};
use levity_core::{ModelError, VectorStore, VectorStoreError};

/// The number of vectors that are added to the store before their passages are marked.
const BATCH: usize = 256;

/// The vectors of passages; a passage whose text the embedder rejects has an error.
pub(crate) type NewVectors = Vec<(i64, Result<Vec<f32>, ModelError>)>;

/// The reason why a change is incomplete.
pub(crate) enum Failure {
    /// The file cannot be read or written.
    File(DocumentError),
    /// The store failed; the file is correct.
    Store(VectorStoreError),
}

impl From<DocumentError> for Failure {
    fn from(error: DocumentError) -> Self {
        Self::File(error)
    }
}

impl From<VectorStoreError> for Failure {
    fn from(error: VectorStoreError) -> Self {
        Self::Store(error)
    }
}

/// Separates a failure of the store, which a report states, from one of the file.
pub(crate) fn reported(
    result: Result<(), Failure>,
) -> Result<Option<VectorStoreError>, DocumentError> {
    match result {
        Ok(()) => Ok(None),
        Err(Failure::Store(error)) => Ok(Some(error)),
        Err(Failure::File(error)) => Err(error),
    }
}

impl DocumentIndex {
    /// Keeps the vectors in an outside store instead of the file. Texts, words and places stay in
    /// the file. It has no effect without an [embedder](Self::with_embedder).
    ///
    /// A failure of the store does not fail a search: documents are then found by their words, and
    /// [`SearchResult::store_error`](crate::SearchResult::store_error) states the reason. Changes
    /// of the file remain as well, and [`embed_missing`](Self::embed_missing) completes those of
    /// the store.
    ///
    /// Each file has a random namespace in the store. In a copy of the file, call
    /// [`reset_vectors`](Self::reset_vectors).
    ///
    /// ```
    /// use levity_docs::{Document, DocumentIndex, SearchOptions};
    /// use levity_test::{InMemoryVectors, WordEmbedder};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_docs::DocumentError> {
    /// let index = DocumentIndex::in_memory()?
    ///     .with_embedder(WordEmbedder::new().synonyms(["boat", "vessel"]))
    ///     .with_vector_store(InMemoryVectors::new());
    /// index.add(Document::new("harbour.md", "The vessel is blue.")).await?;
    /// let found = index.search("boat", &SearchOptions::new()).await?;
    /// assert_eq!(found.passages[0].document, "harbour.md");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_vector_store(mut self, store: impl VectorStore + 'static) -> Self {
        self.store = Some(StoreClient::new(store));
        self
    }

    /// Adds vectors to the store and marks their passages, after it has removed the vectors of
    /// removed passages.
    pub(crate) async fn update_store(
        &self,
        embedder: i64,
        vectors: NewVectors,
    ) -> Result<Option<VectorStoreError>, DocumentError> {
        let removed = self.remove_noted().await;
        let updated = match removed {
            Ok(()) => self.add_to_store(embedder, vectors).await,
            failed => failed,
        };
        reported(updated)
    }

    /// Adds vectors in batches: entries from the file, the call, and then the marks.
    async fn add_to_store(&self, embedder: i64, mut vectors: NewVectors) -> Result<(), Failure> {
        let Some(client) = self.store.as_ref().filter(|_| !vectors.is_empty()) else {
            return Ok(());
        };
        let namespace = self.namespace(embedder).await?;
        while !vectors.is_empty() {
            let rest = vectors.split_off(vectors.len().min(BATCH));
            let batch = std::mem::replace(&mut vectors, rest);
            let mut accepted = Vec::with_capacity(batch.len());
            let mut refused = Vec::new();
            for (key, vector) in batch {
                // No angle to a vector of zeros can be compared.
                match vector
                    .ok()
                    .filter(|vector| vector.iter().any(|part| *part != 0.0))
                {
                    Some(vector) => accepted.push((key, vector)),
                    None => refused.push(key),
                }
            }
            let keys: Vec<i64> = accepted.iter().map(|(key, _)| *key).collect();
            let entries = self
                .file
                .run(move |file| file.read(|view| rows::entries(view, accepted)));
            let entries = entries.await?;
            client
                .change(&*self.world, client.store.upsert(&namespace, &entries))
                .await?;
            let namespace = namespace.clone();
            let mark = move |file: &File| {
                file.write(|change| {
                    rows::mark(change, embedder, &namespace, &keys)?;
                    rows::mark_refused(change, embedder, &refused)?;
                    Ok(())
                })
            };
            self.file.run(mark).await?;
        }
        // Passages that were removed in the meantime.
        self.remove_noted().await
    }

    /// Removes the vectors of removed passages, and returns the reason if that fails.
    pub(crate) async fn clean_store(&self) -> Result<Option<VectorStoreError>, DocumentError> {
        reported(self.remove_noted().await)
    }

    /// Removes the vectors of passages that the file no longer has.
    pub(crate) async fn remove_noted(&self) -> Result<(), Failure> {
        let Some(client) = &self.store else {
            return Ok(());
        };
        loop {
            let noted = self.file.run(|file| file.read(rows::noted)).await?;
            let Some((namespace, keys)) = noted else {
                return Ok(());
            };
            client
                .change(&*self.world, client.store.remove(&namespace, &keys))
                .await?;
            let forget = move |file: &File| {
                file.write(|change| Ok(rows::forget_notes(change, &namespace, &keys)?))
            };
            self.file.run(forget).await?;
        }
    }

    /// Returns the namespace of the vectors of an embedder, and creates it if it is new.
    async fn namespace(&self, embedder: i64) -> Result<String, DocumentError> {
        let id = format!(
            "levity-{:016x}{:016x}",
            self.world.random(),
            self.world.random()
        );
        let name = move |file: &File| {
            file.write(|change| Ok(rows::insert_namespace(change, embedder, &id)?))
        };
        self.file.run(name).await
    }
}
