//! A vector store in memory that compares all vectors, and fails on request.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use levity_core::{
    VectorEntry, VectorFilter, VectorKeys, VectorMatch, VectorStore, VectorStoreError,
    VectorStoreErrorKind,
};

/// The number of keys in one part of a list; small, so that tests see several parts.
const KEYS_PER_PART: usize = 100;

/// A vector store in memory. It finds the nearest vectors exactly, and fails on request.
///
/// Clones share the vectors. It is also an example of an implementation of
/// [`VectorStore`](levity_core::VectorStore).
///
/// ```
/// use levity_core::{VectorEntry, VectorFilter, VectorStore};
/// use levity_test::InMemoryVectors;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::VectorStoreError> {
/// let store = InMemoryVectors::new();
/// store.upsert("guide", &[VectorEntry::new(7, vec![0.6, 0.8])]).await?;
/// let found = store.nearest("guide", &[1.0, 0.0], &VectorFilter::new(), 5).await?;
/// assert_eq!((found[0].key, found[0].cosine), (7, 0.6));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct InMemoryVectors {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    fails: Option<VectorStoreError>,
    namespaces: BTreeMap<String, BTreeMap<i64, VectorEntry>>,
}

impl InMemoryVectors {
    /// Creates a store without vectors.
    pub fn new() -> Self {
        Self::default()
    }

    /// Fails with this error from now on, or no longer.
    ///
    /// ```
    /// use levity_core::{VectorStore, VectorStoreError, VectorStoreErrorKind};
    /// use levity_test::InMemoryVectors;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let store = InMemoryVectors::new();
    /// store.fail(VectorStoreError::new(VectorStoreErrorKind::Unavailable, "down"));
    /// assert!(store.count("guide").await.is_err());
    /// store.fail(None);
    /// assert!(store.count("guide").await.is_ok());
    /// # }
    /// ```
    pub fn fail(&self, error: impl Into<Option<VectorStoreError>>) {
        self.state().fails = error.into();
    }

    /// Returns the names of the namespaces that contain vectors.
    ///
    /// ```
    /// assert!(levity_test::InMemoryVectors::new().namespaces().is_empty());
    /// ```
    pub fn namespaces(&self) -> Vec<String> {
        self.state().namespaces.keys().cloned().collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the state, unless calls fail.
    fn open(&self) -> Result<MutexGuard<'_, State>, VectorStoreError> {
        let state = self.state();
        match &state.fails {
            Some(error) => Err(error.clone()),
            None => Ok(state),
        }
    }
}

impl State {
    /// Returns the vectors of a namespace in the order of their keys.
    fn entries(&self, namespace: &str) -> impl Iterator<Item = &VectorEntry> {
        self.namespaces
            .get(namespace)
            .into_iter()
            .flat_map(BTreeMap::values)
    }

    /// Checks that a vector is comparable with those of a namespace.
    fn check(&self, namespace: &str, vector: &[f32]) -> Result<(), VectorStoreError> {
        let rejected =
            |message: String| VectorStoreError::new(VectorStoreErrorKind::Rejected, message);
        if vector.is_empty() || !vector.iter().all(|part| part.is_finite()) {
            let message = "a vector needs components, all of them finite numbers";
            return Err(rejected(message.to_owned()));
        }
        match self.entries(namespace).next() {
            Some(known) if known.vector.len() != vector.len() => {
                let (size, expected) = (vector.len(), known.vector.len());
                let message = format!("a vector has {size} components instead of {expected}");
                Err(rejected(message))
            }
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl VectorStore for InMemoryVectors {
    async fn upsert(
        &self,
        namespace: &str,
        entries: &[VectorEntry],
    ) -> Result<(), VectorStoreError> {
        let mut state = self.open()?;
        let size = entries.first().map(|entry| entry.vector.len());
        for entry in entries {
            state.check(namespace, &entry.vector)?;
            if Some(entry.vector.len()) != size {
                let message = "the vectors have different numbers of components";
                let kind = VectorStoreErrorKind::Rejected;
                return Err(VectorStoreError::new(kind, message));
            }
        }
        for entry in entries {
            let namespace = state.namespaces.entry(namespace.to_owned()).or_default();
            namespace.insert(entry.key, entry.clone());
        }
        Ok(())
    }

    async fn remove(&self, namespace: &str, keys: &[i64]) -> Result<(), VectorStoreError> {
        let mut state = self.open()?;
        if let Some(entries) = state.namespaces.get_mut(namespace) {
            entries.retain(|key, _| !keys.contains(key));
            if entries.is_empty() {
                state.namespaces.remove(namespace);
            }
        }
        Ok(())
    }

    async fn remove_all(&self, namespace: &str) -> Result<(), VectorStoreError> {
        self.open()?.namespaces.remove(namespace);
        Ok(())
    }

    async fn nearest(
        &self,
        namespace: &str,
        vector: &[f32],
        filter: &VectorFilter,
        limit: usize,
    ) -> Result<Vec<VectorMatch>, VectorStoreError> {
        let state = self.open()?;
        state.check(namespace, vector)?;
        let mut found: Vec<_> = state
            .entries(namespace)
            .filter(|entry| filter.allows(entry))
            .map(|entry| VectorMatch::new(entry.key, cosine(&entry.vector, vector)))
            .collect();
        found.sort_by(|a, b| b.cosine.total_cmp(&a.cosine).then(b.key.cmp(&a.key)));
        found.truncate(limit);
        Ok(found)
    }

    async fn get(
        &self,
        namespace: &str,
        keys: &[i64],
    ) -> Result<Vec<(i64, Vec<f32>)>, VectorStoreError> {
        let state = self.open()?;
        let found = state
            .entries(namespace)
            .filter(|entry| keys.contains(&entry.key));
        Ok(found
            .map(|entry| (entry.key, entry.vector.clone()))
            .collect())
    }

    async fn keys(
        &self,
        namespace: &str,
        after: Option<&str>,
    ) -> Result<VectorKeys, VectorStoreError> {
        let after = match after.map(str::parse::<i64>) {
            None => i64::MIN,
            Some(Ok(after)) => after,
            Some(Err(_)) => {
                let kind = VectorStoreErrorKind::Rejected;
                return Err(VectorStoreError::new(kind, "the position is not a key"));
            }
        };
        let state = self.open()?;
        let keys = state.entries(namespace).map(|entry| entry.key);
        let mut keys: Vec<_> = keys
            .filter(|key| *key > after)
            .take(KEYS_PER_PART + 1)
            .collect();
        let has_more = keys.len() > KEYS_PER_PART;
        keys.truncate(KEYS_PER_PART);
        let next = keys.last().filter(|_| has_more).map(i64::to_string);
        let part = VectorKeys::new(keys);
        Ok(match next {
            Some(next) => part.with_next(next),
            None => part,
        })
    }

    async fn count(&self, namespace: &str) -> Result<u64, VectorStoreError> {
        Ok(self.open()?.entries(namespace).count() as u64)
    }
}

/// Returns the cosine of the angle between two vectors of the same size, or 0 for a zero vector.
fn cosine(one: &[f32], other: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    let lengths = (dot(one, one) * dot(other, other)).sqrt();
    if lengths > 0.0 {
        dot(one, other) / lengths
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls a future that never waits.
    fn now<T>(future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        match future.as_mut().poll(&mut cx) {
            std::task::Poll::Ready(value) => value,
            std::task::Poll::Pending => unreachable!("the store never waits"),
        }
    }

    #[test]
    fn store_in_memory_conforms() {
        now(crate::conformance::vector_store(InMemoryVectors::new));
    }
}
