//! What a search looks for, and what it finds.

use levity_core::{ModelError, Timestamp, Usage, VectorStoreError};

use crate::{Passage, TextKind};

/// The default number of passages that a reranker orders again.
const RERANKED: usize = 30;

/// Options of a search. By default, it finds the best eight passages of all documents.
///
/// ```
/// use levity_docs::{SearchOptions, TextKind};
///
/// let options = SearchOptions::new().limit(20).path("docs/*").kind(TextKind::Markdown);
/// assert_eq!(options.limit, 20);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SearchOptions {
    /// The maximum number of passages.
    pub limit: usize,
    /// A pattern for the names of documents: `*` stands for any characters, also `/`; `?` for one
    /// character, and `[a-z]` for one of these.
    pub path: Option<String>,
    /// The kind of the documents.
    pub kind: Option<TextKind>,
    /// The time after which the documents were changed.
    pub changed_after: Option<Timestamp>,
    /// How much the passages should differ from each other, from 0 (the default) to 1.
    pub diversity: f32,
    /// The number of passages that a reranker orders again.
    pub reranked: usize,
}

impl Default for SearchOptions {
    fn default() -> Self {
        Self {
            limit: 8,
            path: None,
            kind: None,
            changed_after: None,
            diversity: 0.0,
            reranked: RERANKED,
        }
    }
}

impl SearchOptions {
    /// Creates the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the maximum number of passages; 8 by default, and at most 1,000.
    #[must_use]
    pub fn limit(mut self, passages: usize) -> Self {
        self.limit = passages;
        self
    }

    /// Searches only documents whose names match this pattern; see [`path`](Self#structfield.path).
    #[must_use]
    pub fn path(mut self, pattern: impl Into<String>) -> Self {
        self.path = Some(pattern.into());
        self
    }

    /// Searches only documents of this kind.
    #[must_use]
    pub fn kind(mut self, kind: TextKind) -> Self {
        self.kind = Some(kind);
        self
    }

    /// Searches only documents that were changed after this time.
    #[must_use]
    pub fn changed_after(mut self, time: Timestamp) -> Self {
        self.changed_after = Some(time);
        self
    }

    /// Sets how much the passages should differ from each other, from 0 (the default) to 1. It has
    /// no effect without an embedder.
    ///
    /// A passage that is similar to a better one then comes later (maximal marginal relevance).
    /// This helps if many documents contain the same sentences.
    #[must_use]
    pub fn diversity(mut self, diversity: f32) -> Self {
        self.diversity = diversity;
        self
    }

    /// Sets how many of the best passages a reranker orders again; 30 by default, and at most 200.
    /// It has no effect without a [reranker](crate::DocumentIndex::with_reranker).
    #[must_use]
    pub fn reranked(mut self, passages: usize) -> Self {
        self.reranked = passages;
        self
    }
}

/// The passages that a search found.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SearchResult {
    /// The passages, best first.
    pub passages: Vec<Passage>,
    /// The reason why the search used words only, although there is an embedder.
    pub embedding_error: Option<ModelError>,
    /// The reason why the search used words only, although there is a vector store.
    pub store_error: Option<VectorStoreError>,
    /// The reason why the passages have the order of the search, although there is a reranker.
    pub reranking_error: Option<ModelError>,
    /// The queries that a [rewriter](crate::DocumentIndex::with_rewriter) added to the question.
    pub added_queries: Vec<String>,
    /// The reason why there are no added queries, although there is a rewriter.
    pub rewriting_error: Option<ModelError>,
    /// The tokens and money that the embedder, the reranker and the rewriter used.
    pub usage: Usage,
}

/// The result of adding documents.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct AddReport {
    /// The number of documents that were new or had another text.
    pub added: usize,
    /// The number of documents whose text the index had already.
    pub unchanged: usize,
    /// The number of passages of the added documents.
    pub passages: usize,
    /// The reason why some passages have no vector, although there is an embedder.
    pub embedding_error: Option<ModelError>,
    /// The reason why the vector store does not have all vectors, or still has those of removed
    /// passages.
    pub store_error: Option<VectorStoreError>,
    /// The tokens that the embedder used.
    pub usage: Usage,
}

/// The result of a [repair](crate::DocumentIndex::repair_vectors) of a vector store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VectorRepair {
    /// The number of vectors that were removed, because their passages no longer exist.
    pub removed: usize,
    /// The number of passages whose vectors are missing.
    pub missing: usize,
}

/// The size of an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IndexStatus {
    /// The number of documents.
    pub documents: u64,
    /// The number of their passages.
    pub passages: u64,
    /// The size of their texts, in bytes.
    pub bytes: u64,
    /// The number of passages with a vector of this embedder.
    pub vectors: u64,
}
