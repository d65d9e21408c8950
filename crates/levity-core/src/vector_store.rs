use async_trait::async_trait;

use crate::{SharedError, Timestamp};

/// Stores vectors with keys, and finds those that are nearest to a vector.
///
/// A namespace contains the vectors of one index, all with the same number of components. Vectors
/// are compared by the cosine of the angle between them.
///
/// # Contract
/// - A key occurs once in a namespace. `upsert` replaces the vector and all properties of a key.
/// - A change is visible to every call that begins after it returned. Repeating a change has no
///   further effect. A change that failed or was dropped may have been made in part; repeating it
///   completes it.
/// - Namespaces do not affect each other. A namespace without vectors is empty, not an error:
///   nothing is found in it, and removing from it succeeds. Its first vectors determine the number
///   of components.
/// - `nearest` returns at most `limit` matches, best first, each key once, and only vectors that
///   the filter allows. It may be approximate and miss some vectors.
/// - Lists may have any length; the store divides them into requests of a bounded size. The limit
///   of a search is at most 1,000, and a filter has at most 1,000 names.
/// - Every call ends: the store limits the time and the size of replies.
/// - An error states its kind, and with that whether a retry helps. A vector of another size than
///   those of the namespace, or with a component that is not finite, is
///   [`Rejected`](VectorStoreErrorKind::Rejected).
/// - Nothing is sent before a returned future is first polled; dropping it cancels the call.
///
/// Use `levity_test::conformance::vector_store` to check an implementation, and
/// `levity_test::InMemoryVectors` as an example of one.
///
/// ```
/// use levity_core::{VectorEntry, VectorFilter, VectorStore, VectorStoreError};
///
/// /// Returns the document that is nearest to a vector.
/// async fn nearest_key(
///     store: &dyn VectorStore,
///     vector: &[f32],
/// ) -> Result<Option<i64>, VectorStoreError> {
///     let entry = VectorEntry::new(7, vec![0.6, 0.8]).document("tides.md");
///     store.upsert("guide", &[entry]).await?;
///     let found = store.nearest("guide", vector, &VectorFilter::new(), 1).await?;
///     Ok(found.first().map(|found| found.key))
/// }
/// ```
#[async_trait]
pub trait VectorStore: Send + Sync {
    /// Adds vectors, or replaces those with the same keys.
    async fn upsert(
        &self,
        namespace: &str,
        entries: &[VectorEntry],
    ) -> Result<(), VectorStoreError>;

    /// Removes the vectors with these keys, as far as they exist.
    async fn remove(&self, namespace: &str, keys: &[i64]) -> Result<(), VectorStoreError>;

    /// Removes all vectors of a namespace.
    async fn remove_all(&self, namespace: &str) -> Result<(), VectorStoreError>;

    /// Returns the keys of the vectors with the highest cosines, best first.
    async fn nearest(
        &self,
        namespace: &str,
        vector: &[f32],
        filter: &VectorFilter,
        limit: usize,
    ) -> Result<Vec<VectorMatch>, VectorStoreError>;

    /// Returns the vectors with these keys in any order, without keys that do not exist. The store
    /// may have scaled a vector, or rounded its components.
    async fn get(
        &self,
        namespace: &str,
        keys: &[i64],
    ) -> Result<Vec<(i64, Vec<f32>)>, VectorStoreError>;

    /// Returns some of the keys in any order. `after` is the [`next`](VectorKeys::next) of the part
    /// before; the first part has none.
    ///
    /// All parts together contain each key that exists the whole time, unless vectors are removed
    /// meanwhile: then keys may be missing.
    async fn keys(
        &self,
        namespace: &str,
        after: Option<&str>,
    ) -> Result<VectorKeys, VectorStoreError>;

    /// Returns the number of vectors.
    async fn count(&self, namespace: &str) -> Result<u64, VectorStoreError>;
}

macro_rules! forward_vector_store {
    ($($pointer:ty),*) => {$(
        #[async_trait]
        #[deny(clippy::missing_trait_methods)]
        impl<S: VectorStore + ?Sized> VectorStore for $pointer {
            async fn upsert(
                &self,
                namespace: &str,
                entries: &[VectorEntry],
            ) -> Result<(), VectorStoreError> {
                (**self).upsert(namespace, entries).await
            }

            async fn remove(
                &self,
                namespace: &str,
                keys: &[i64],
            ) -> Result<(), VectorStoreError> {
                (**self).remove(namespace, keys).await
            }

            async fn remove_all(&self, namespace: &str) -> Result<(), VectorStoreError> {
                (**self).remove_all(namespace).await
            }

            async fn nearest(
                &self,
                namespace: &str,
                vector: &[f32],
                filter: &VectorFilter,
                limit: usize,
            ) -> Result<Vec<VectorMatch>, VectorStoreError> {
                (**self).nearest(namespace, vector, filter, limit).await
            }

            async fn get(
                &self,
                namespace: &str,
                keys: &[i64],
            ) -> Result<Vec<(i64, Vec<f32>)>, VectorStoreError> {
                (**self).get(namespace, keys).await
            }

            async fn keys(
                &self,
                namespace: &str,
                after: Option<&str>,
            ) -> Result<VectorKeys, VectorStoreError> {
                (**self).keys(namespace, after).await
            }

            async fn count(&self, namespace: &str) -> Result<u64, VectorStoreError> {
                (**self).count(namespace).await
            }
        }
    )*};
}

forward_vector_store!(std::sync::Arc<S>, Box<S>);

/// A vector to store, with the properties that filters use.
///
/// ```
/// use levity_core::VectorEntry;
///
/// let entry = VectorEntry::new(7, vec![0.6, 0.8]).document("tides.md").kind("markdown");
/// assert_eq!((entry.key, entry.document.as_str()), (7, "tides.md"));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct VectorEntry {
    /// The key, which is unique in the namespace and not negative.
    pub key: i64,
    /// The components, at least one of which is not zero.
    pub vector: Vec<f32>,
    /// The name of the document that contains the text of the vector.
    pub document: String,
    /// The kind of the document.
    pub kind: String,
    /// The time at which the document was changed.
    pub changed: Timestamp,
}

impl VectorEntry {
    /// Creates an entry with empty properties.
    pub fn new(key: i64, vector: Vec<f32>) -> Self {
        Self {
            key,
            vector,
            ..Self::default()
        }
    }

    /// Sets the name of the document.
    #[must_use]
    pub fn document(mut self, name: impl Into<String>) -> Self {
        self.document = name.into();
        self
    }

    /// Sets the kind of the document.
    #[must_use]
    pub fn kind(mut self, kind: impl Into<String>) -> Self {
        self.kind = kind.into();
        self
    }

    /// Sets the time at which the document was changed.
    #[must_use]
    pub fn changed(mut self, time: Timestamp) -> Self {
        self.changed = time;
        self
    }
}

/// The properties of the vectors that a search may find; by default, it may find all.
///
/// ```
/// use levity_core::{VectorEntry, VectorFilter};
///
/// let filter = VectorFilter::new().documents(["tides.md"]).kind("markdown");
/// assert!(filter.allows(&VectorEntry::new(7, vec![1.0]).document("tides.md").kind("markdown")));
/// assert!(!filter.allows(&VectorEntry::new(7, vec![1.0]).document("tea.md").kind("markdown")));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VectorFilter {
    /// The names of the documents, at most 1,000; an empty list allows nothing.
    pub documents: Option<Vec<String>>,
    /// The kind of the documents.
    pub kind: Option<String>,
    /// The time after which the documents were changed.
    pub changed_after: Option<Timestamp>,
}

impl VectorFilter {
    /// Creates a filter that allows all vectors.
    pub fn new() -> Self {
        Self::default()
    }

    /// Allows only vectors of these documents.
    #[must_use]
    pub fn documents(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.documents = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Allows only vectors of documents of this kind.
    #[must_use]
    pub fn kind(mut self, kind: impl Into<String>) -> Self {
        self.kind = Some(kind.into());
        self
    }

    /// Allows only vectors of documents that were changed after this time.
    #[must_use]
    pub fn changed_after(mut self, time: Timestamp) -> Self {
        self.changed_after = Some(time);
        self
    }

    /// Returns `true` if the filter allows this vector.
    pub fn allows(&self, entry: &VectorEntry) -> bool {
        self.documents
            .as_ref()
            .is_none_or(|names| names.contains(&entry.document))
            && self.kind.as_ref().is_none_or(|kind| *kind == entry.kind)
            && self.changed_after.is_none_or(|time| entry.changed > time)
    }
}

/// A vector that a search found.
///
/// ```
/// use levity_core::VectorMatch;
///
/// assert_eq!(VectorMatch::new(7, 0.5).key, 7);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct VectorMatch {
    /// The key of the vector.
    pub key: i64,
    /// The cosine of the angle to the vector of the search, from -1 to 1.
    pub cosine: f32,
}

impl VectorMatch {
    /// Creates a match of this vector.
    pub fn new(key: i64, cosine: f32) -> Self {
        Self { key, cosine }
    }
}

/// Some of the keys of a namespace.
///
/// ```
/// use levity_core::VectorKeys;
///
/// let last = VectorKeys::new(vec![7, 9]);
/// assert!(last.next.is_none());
/// assert_eq!(last.with_next("9").next.as_deref(), Some("9"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VectorKeys {
    /// The keys, at most 10,000.
    pub keys: Vec<i64>,
    /// The position of the next part, in a form that only the store interprets; `None` after the
    /// last part.
    pub next: Option<String>,
}

impl VectorKeys {
    /// Creates the last part.
    pub fn new(keys: Vec<i64>) -> Self {
        Self { keys, next: None }
    }

    /// Sets the position of the next part.
    #[must_use]
    pub fn with_next(mut self, next: impl Into<String>) -> Self {
        self.next = Some(next.into());
        self
    }
}

/// The kind of a failed call to a vector store.
///
/// ```
/// use levity_core::VectorStoreErrorKind;
///
/// assert!(VectorStoreErrorKind::Unavailable.is_retryable());
/// assert!(!VectorStoreErrorKind::Auth.is_retryable());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum VectorStoreErrorKind {
    /// The store cannot be reached, or has no capacity now.
    Unavailable,
    /// No reply arrived within the time limit.
    Timeout,
    /// The credentials are missing, invalid or lack permission.
    Auth,
    /// The store rejects the call as invalid, for example a vector of another size.
    Rejected,
    /// The reply could not be interpreted.
    Malformed,
}

impl VectorStoreErrorKind {
    /// Returns `true` if the same call may succeed later.
    pub fn is_retryable(self) -> bool {
        matches!(self, Self::Unavailable | Self::Timeout)
    }
}

/// The reason why a call to a vector store failed.
///
/// ```
/// use levity_core::{VectorStoreError, VectorStoreErrorKind};
///
/// let error = VectorStoreError::new(VectorStoreErrorKind::Timeout, "no reply within 30s");
/// assert!(error.is_retryable());
/// assert_eq!(error.to_string(), "no reply within 30s");
/// ```
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct VectorStoreError {
    kind: VectorStoreErrorKind,
    message: String,
    #[source]
    cause: Option<SharedError>,
}

impl VectorStoreError {
    /// Creates an error of this kind.
    pub fn new(kind: VectorStoreErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            cause: None,
        }
    }

    /// Adds the cause of the error.
    #[must_use]
    pub fn with_source(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        self.cause = Some(SharedError::new(source));
        self
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> VectorStoreErrorKind {
        self.kind
    }

    /// Returns `true` if the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        self.kind.is_retryable()
    }
}
