//! Repairs after a crash, a failure of the store, or a loss of its data.

use std::collections::HashSet;

use levity_core::{VectorStoreError, VectorStoreErrorKind};

use super::{Failure, File, StoreClient, reported, rows};
use crate::{DocumentError, DocumentIndex, VectorRepair};

/// The number of vectors that are read together.
const BATCH: usize = 100;

impl DocumentIndex {
    /// Compares the passages with all vectors in the [store](Self::with_vector_store): it removes
    /// vectors of passages that no longer exist, and finds passages whose vectors are missing.
    /// [`embed_missing`](Self::embed_missing) then adds the missing ones.
    ///
    /// `embed_missing` calls this if the numbers of vectors differ. Call it yourself after you
    /// restored the file or the store from a backup. It lists the keys of all vectors.
    ///
    /// # Errors
    /// [`VectorStore`](crate::DocumentErrorKind::VectorStore) if the store fails; and if the file
    /// cannot be read or written.
    ///
    /// ```
    /// # use levity_docs::{Document, DocumentIndex};
    /// # use levity_test::{InMemoryVectors, WordEmbedder};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_docs::DocumentError> {
    /// let index = DocumentIndex::in_memory()?
    ///     .with_embedder(WordEmbedder::new())
    ///     .with_vector_store(InMemoryVectors::new());
    /// index.add(Document::new("tea.md", "Tea is served at four.")).await?;
    /// let repair = index.repair_vectors().await?;
    /// assert_eq!((repair.removed, repair.missing), (0, 0));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn repair_vectors(&self) -> Result<VectorRepair, DocumentError> {
        let mut repair = VectorRepair::default();
        let Some((client, embedder, namespace)) = self.open_store().await? else {
            return Ok(repair);
        };
        client.forget_failure();
        let compared = self
            .compare_keys(client, embedder, &namespace, &mut repair)
            .await;
        match reported(compared)? {
            Some(error) => Err(DocumentError::of_store(&error)),
            None => Ok(repair),
        }
    }

    /// Forgets which passages have vectors in the [store](Self::with_vector_store), and the
    /// namespace. [`embed_missing`](Self::embed_missing) then computes all vectors again, in a new
    /// namespace.
    ///
    /// Call this in a copy of the file, before any other change: otherwise, the copy and the
    /// original overwrite each other's vectors. The vectors in the store remain.
    ///
    /// # Errors
    /// If the file cannot be written.
    ///
    /// ```
    /// # use levity_docs::{Document, DocumentIndex};
    /// # use levity_test::{InMemoryVectors, WordEmbedder};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_docs::DocumentError> {
    /// let store = InMemoryVectors::new();
    /// let index = DocumentIndex::in_memory()?
    ///     .with_embedder(WordEmbedder::new())
    ///     .with_vector_store(store.clone());
    /// index.add(Document::new("tea.md", "Tea is served at four.")).await?;
    /// index.reset_vectors().await?;
    /// assert_eq!(index.embed_missing().await?.passages, 1);
    /// assert_eq!(store.namespaces().len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn reset_vectors(&self) -> Result<(), DocumentError> {
        let forget = |file: &File| file.write(|change| Ok(rows::forget_store(change)?));
        self.file.run(forget).await
    }

    /// Brings the store to the state of the file, except for missing vectors.
    pub(crate) async fn check_store(&self) -> Result<Option<VectorStoreError>, DocumentError> {
        let Some((client, embedder, namespace)) = self.open_store().await? else {
            return Ok(None);
        };
        client.forget_failure();
        reported(self.compare_counts(client, embedder, &namespace).await)
    }

    /// Returns the store, the key of the embedder and the namespace, unless there is none yet.
    async fn open_store(&self) -> Result<Option<(&StoreClient, i64, String)>, DocumentError> {
        let (Some(client), Some(card)) = (&self.store, self.card()) else {
            return Ok(None);
        };
        let find = move |file: &File| {
            file.read(|view| {
                let Some(embedder) = crate::rows::embedder(view, &card)? else {
                    return Ok(None);
                };
                let namespace = rows::namespace(view, embedder)?;
                Ok(namespace.map(|namespace| (embedder, namespace)))
            })
        };
        let found = self.file.run(find).await?;
        Ok(found.map(|(embedder, namespace)| (client, embedder, namespace)))
    }

    /// Compares all keys if the numbers of marks and of vectors differ.
    async fn compare_counts(
        &self,
        client: &StoreClient,
        embedder: i64,
        namespace: &str,
    ) -> Result<(), Failure> {
        self.remove_noted().await?;
        let count = client
            .change(&*self.world, client.store.count(namespace))
            .await?;
        let marked = self.marked(embedder).await?.len();
        if u64::try_from(marked).is_ok_and(|marked| marked == count) {
            return Ok(());
        }
        let mut repair = VectorRepair::default();
        self.compare_keys(client, embedder, namespace, &mut repair)
            .await
    }

    /// Returns the passages whose vectors should be in the store.
    async fn marked(&self, embedder: i64) -> Result<HashSet<i64>, DocumentError> {
        let read = move |file: &File| file.read(|view| rows::marked(view, embedder));
        self.file.run(read).await
    }

    /// Compares all keys: it removes vectors without a passage, and the marks of passages without a
    /// vector.
    async fn compare_keys(
        &self,
        client: &StoreClient,
        embedder: i64,
        namespace: &str,
        repair: &mut VectorRepair,
    ) -> Result<(), Failure> {
        self.remove_noted().await?;
        // What is marked now was in the store before the list begins.
        let mut missing = self.marked(embedder).await?;
        let count = client
            .change(&*self.world, client.store.count(namespace))
            .await?;
        // A list may repeat keys, and others may add some, but a faulty one must end.
        let most = (missing.len() as u64)
            .saturating_add(count)
            .saturating_mul(2);
        let (mut after, mut listed) = (None::<String>, 0_u64);
        loop {
            let part = client.store.keys(namespace, after.as_deref());
            let part = client.change(&*self.world, part).await?;
            listed = listed.saturating_add(part.keys.len().max(1) as u64);
            for key in &part.keys {
                missing.remove(key);
            }
            repair.removed += self.note_unknown(namespace, part.keys).await?;
            match part.next {
                None => break,
                Some(next) if listed <= most.saturating_add(10_000) => after = Some(next),
                Some(_) => return Err(endless_list().into()),
            }
        }
        self.remove_noted().await?;
        repair.missing = self
            .unmark_missing(client, embedder, namespace, missing)
            .await?;
        Ok(())
    }

    /// Notes the keys without a passage for removal, and returns their number.
    async fn note_unknown(&self, namespace: &str, keys: Vec<i64>) -> Result<usize, DocumentError> {
        let namespace = namespace.to_owned();
        let note = move |file: &File| {
            file.write(|change| {
                let mut unknown = Vec::new();
                for key in keys {
                    if !rows::has_chunk(change, key)? {
                        unknown.push(key);
                    }
                }
                rows::note(change, &namespace, &unknown)?;
                Ok(unknown.len())
            })
        };
        self.file.run(note).await
    }

    /// Removes the marks of passages whose vectors were not listed and cannot be read either.
    async fn unmark_missing(
        &self,
        client: &StoreClient,
        embedder: i64,
        namespace: &str,
        missing: HashSet<i64>,
    ) -> Result<usize, Failure> {
        let missing: Vec<i64> = missing.into_iter().collect();
        let mut lost = Vec::new();
        for keys in missing.chunks(BATCH) {
            // A list can leave out keys if others remove vectors meanwhile.
            let found = client.store.get(namespace, keys);
            let found = client.change(&*self.world, found).await?;
            let found: HashSet<i64> = found.into_iter().map(|(key, _)| key).collect();
            lost.extend(keys.iter().filter(|key| !found.contains(key)));
        }
        let count = lost.len();
        let unmark =
            move |file: &File| file.write(|change| Ok(rows::unmark(change, embedder, &lost)?));
        self.file.run(unmark).await?;
        Ok(count)
    }

    /// Removes the vectors of other embedders that no passage uses any more.
    pub(crate) async fn remove_unused(
        &self,
        embedder: i64,
    ) -> Result<Option<VectorStoreError>, DocumentError> {
        let Some(client) = &self.store else {
            return Ok(None);
        };
        let unused = move |file: &File| file.read(|view| rows::unused_namespaces(view, embedder));
        for name in self.file.run(unused).await? {
            let removed = client
                .change(&*self.world, client.store.remove_all(&name))
                .await;
            if let Err(error) = removed {
                return Ok(Some(error));
            }
            let forget =
                move |file: &File| file.write(|change| Ok(rows::forget_namespace(change, &name)?));
            self.file.run(forget).await?;
        }
        Ok(None)
    }
}

/// Creates the error of a list that has no end.
fn endless_list() -> VectorStoreError {
    let message = "the vector store lists many more keys than it has vectors";
    VectorStoreError::new(VectorStoreErrorKind::Malformed, message)
}
