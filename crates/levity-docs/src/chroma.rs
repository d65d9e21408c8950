//! Vectors in a Chroma server, through version 2 of its HTTP API.
//!
//! Each namespace is a collection that compares cosines. The key of a vector is the id of its
//! record, and its properties are the metadata.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use levity_core::{
    Timestamp, VectorEntry, VectorFilter, VectorKeys, VectorMatch, VectorStore, VectorStoreError,
    VectorStoreErrorKind,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::OnceCell;

mod server;

use server::{Method, Reply, Server};

/// The number of records in one request that lists or removes them. Chroma Cloud accepts 300.
const MAX_RECORDS: usize = 300;
/// The number of vectors in one request.
const MAX_VECTORS: usize = 200;
/// The number of components of all vectors in one request.
const MAX_COMPONENTS: usize = 200_000;
/// The maximum number of components of a vector.
const MAX_DIMENSIONS: usize = 1 << 16;

/// Stores vectors in a [Chroma](https://www.trychroma.com) server of version 1.0 or later.
///
/// - Each namespace is a collection of the database, which the first vectors create.
/// - A request that a closed connection interrupted is sent once more; there are no other retries.
/// - Errors name the address and the next step. They contain neither the token nor passwords.
///
/// ```no_run
/// use levity_docs::{ChromaStore, DocumentIndex};
/// # use levity_test::WordEmbedder;
///
/// # fn main() -> Result<(), levity_docs::DocumentError> {
/// # let embedder = WordEmbedder::new();
/// let store = ChromaStore::new("http://127.0.0.1:8000");
/// let index = DocumentIndex::open("documents.db")?
///     .with_embedder(embedder)
///     .with_vector_store(store);
/// # let _ = index;
/// # Ok(())
/// # }
/// ```
pub struct ChromaStore {
    server: Server,
    tenant: String,
    database: String,
    /// The ids of the collections that were used, by their names.
    collections: Mutex<HashMap<String, Arc<str>>>,
    /// The maximum number of vectors that the server accepts in one request.
    max_batch: OnceCell<usize>,
}

impl ChromaStore {
    /// Creates a store for the server at this address, such as `http://127.0.0.1:8000`.
    ///
    /// Nothing is sent yet. The tenant is `default_tenant`, and the database `default_database`.
    pub fn new(address: impl AsRef<str>) -> Self {
        Self {
            server: Server::new(address.as_ref()),
            tenant: "default_tenant".to_owned(),
            database: "default_database".to_owned(),
            collections: Mutex::default(),
            max_batch: OnceCell::new(),
        }
    }

    /// Sets the tenant, which must exist; `default_tenant` by default.
    ///
    /// ```
    /// use levity_docs::ChromaStore;
    ///
    /// let store = ChromaStore::new("http://127.0.0.1:8000").tenant("harbour");
    /// assert!(format!("{store:?}").contains("harbour"));
    /// ```
    #[must_use]
    pub fn tenant(mut self, tenant: impl Into<String>) -> Self {
        self.tenant = tenant.into();
        self
    }

    /// Sets the database, which must exist; `default_database` by default.
    ///
    /// ```
    /// use levity_docs::ChromaStore;
    ///
    /// let store = ChromaStore::new("http://127.0.0.1:8000").database("documents");
    /// assert!(format!("{store:?}").contains("documents"));
    /// ```
    #[must_use]
    pub fn database(mut self, database: impl Into<String>) -> Self {
        self.database = database.into();
        self
    }

    /// Sends this token in the header `x-chroma-token`, as Chroma Cloud expects it.
    ///
    /// The token is never shown: it is removed from errors, even if the server repeats it.
    ///
    /// ```
    /// use levity_docs::ChromaStore;
    ///
    /// let store = ChromaStore::new("http://127.0.0.1:8000").token("ck-123456");
    /// assert!(!format!("{store:?}").contains("ck-123456"));
    /// ```
    #[must_use]
    pub fn token(self, token: impl AsRef<str>) -> Self {
        self.header("x-chroma-token", token)
    }

    /// Sends this header with every request, for example for a proxy. Its value is treated as a
    /// secret.
    ///
    /// A header of the same name is replaced. Calls fail as
    /// [`Rejected`](VectorStoreErrorKind::Rejected) if the name or the value has characters that
    /// HTTP does not allow.
    ///
    /// ```
    /// use levity_core::{VectorStore, VectorStoreErrorKind};
    /// use levity_docs::ChromaStore;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let store = ChromaStore::new("http://127.0.0.1:8000").header("authorization", "a\nb");
    /// let error = store.count("guide").await.unwrap_err();
    /// assert_eq!(error.kind(), VectorStoreErrorKind::Rejected);
    /// # }
    /// ```
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl AsRef<str>) -> Self {
        self.server.add_header(name.into(), value.as_ref().trim());
        self
    }

    /// Sets the time limit of a request, which also includes its reply; 30 seconds by default.
    ///
    /// An index waits at most 10 seconds for all requests of a search.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use levity_core::VectorStore;
    /// use levity_docs::ChromaStore;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let store = ChromaStore::new("http://127.0.0.1:1").timeout(Duration::from_secs(5));
    /// let error = store.count("guide").await.unwrap_err();
    /// assert!(error.is_retryable() && error.to_string().contains("is it running"));
    /// # }
    /// ```
    #[must_use]
    pub fn timeout(mut self, time: Duration) -> Self {
        self.server.set_timeout(time);
        self
    }

    /// Returns the path of a collection, or of all collections.
    fn path<'a>(&'a self, rest: &[&'a str]) -> Vec<&'a str> {
        let mut path = vec![
            "tenants",
            &*self.tenant,
            "databases",
            &*self.database,
            "collections",
        ];
        path.extend(rest);
        path
    }

    /// Returns the id of a collection; `None` if there is no such collection.
    async fn find(&self, namespace: &str) -> Result<Option<Arc<str>>, VectorStoreError> {
        let known = self.known().get(namespace).cloned();
        if known.is_some() {
            return Ok(known);
        }
        let reply = self
            .server
            .send(Method::GET, &self.path(&[namespace]), None)
            .await?;
        if reply.is_missing() {
            return Ok(None);
        }
        self.remember(namespace, &reply).map(Some)
    }

    /// Returns the id of a collection, and creates the collection if there is none.
    async fn find_or_create(&self, namespace: &str) -> Result<Arc<str>, VectorStoreError> {
        let known = self.known().get(namespace).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let body = json!({
            "name": namespace,
            "get_or_create": true,
            "configuration": {"hnsw": {"space": "cosine"}},
        });
        let reply = self
            .server
            .send(Method::POST, &self.path(&[]), Some(&body))
            .await?;
        self.remember(namespace, &reply)
    }

    /// Reads the description of a collection.
    fn remember(&self, namespace: &str, reply: &Reply) -> Result<Arc<str>, VectorStoreError> {
        let collection: Collection = self.server.read(reply)?;
        let configuration = collection.configuration_json.unwrap_or_default();
        let space = ["hnsw", "spann"]
            .iter()
            .find_map(|index| configuration.get(*index)?.get("space")?.as_str());
        if let Some(space) = space.filter(|space| *space != "cosine") {
            let message = format!(
                "compares its vectors by `{}` instead of `cosine`; delete the collection \
                 `{namespace}`",
                levity_core::text::one_line(space, 20)
            );
            return Err(self.server.error(VectorStoreErrorKind::Rejected, &message));
        }
        let id: Arc<str> = collection.id.into();
        self.known().insert(namespace.to_owned(), id.clone());
        Ok(id)
    }

    /// Returns the ids of collections that were found, which another program may have deleted.
    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<str>>> {
        self.collections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request to a collection; `None` if there is no such collection.
    ///
    /// Somebody may have deleted a collection whose id is known, and may have created it again.
    async fn ask<T: for<'de> Deserialize<'de>>(
        &self,
        namespace: &str,
        action: &str,
        body: Option<&Value>,
    ) -> Result<Option<T>, VectorStoreError> {
        let method = if body.is_some() {
            Method::POST
        } else {
            Method::GET
        };
        for _ in 0..2 {
            let Some(id) = self.find(namespace).await? else {
                return Ok(None);
            };
            let path = self.path(&[&*id, action]);
            let reply = self.server.send(method.clone(), &path, body).await?;
            if !reply.is_missing() {
                return self.server.read(&reply).map(Some);
            }
            self.known().remove(namespace);
        }
        Ok(None)
    }

    /// Adds vectors in one request.
    async fn upsert_batch(
        &self,
        namespace: &str,
        entries: &[VectorEntry],
    ) -> Result<(), VectorStoreError> {
        let body = records(entries);
        for _ in 0..2 {
            let id = self.find_or_create(namespace).await?;
            let path = self.path(&[&*id, "upsert"]);
            let reply = self.server.send(Method::POST, &path, Some(&body)).await?;
            if !reply.is_missing() {
                return Ok(());
            }
            self.known().remove(namespace);
        }
        let message = "deletes the collection as soon as it is created";
        Err(self
            .server
            .error(VectorStoreErrorKind::Unavailable, message))
    }

    /// Returns the number of vectors in one request.
    async fn max_batch(&self) -> Result<usize, VectorStoreError> {
        let ask = async || {
            let reply = self
                .server
                .send(Method::GET, &["pre-flight-checks"], None)
                .await?;
            let checks: Checks = self.server.read(&reply)?;
            Ok(checks
                .max_batch_size
                .unwrap_or(MAX_VECTORS)
                .clamp(1, MAX_VECTORS))
        };
        self.max_batch.get_or_try_init(ask).await.copied()
    }

    /// Checks a vector before it is sent: JSON has no infinite numbers.
    fn check(&self, vector: &[f32]) -> Result<(), VectorStoreError> {
        let sizes = 1..=MAX_DIMENSIONS;
        if sizes.contains(&vector.len()) && vector.iter().all(|part| part.is_finite()) {
            return Ok(());
        }
        let message = format!(
            "needs vectors of 1 to {MAX_DIMENSIONS} components, all of them finite numbers"
        );
        Err(self.server.error(VectorStoreErrorKind::Rejected, &message))
    }
}

impl fmt::Debug for ChromaStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChromaStore")
            .field("address", &self.server.address())
            .field("tenant", &self.tenant)
            .field("database", &self.database)
            .finish_non_exhaustive()
    }
}

/// The description of a collection.
#[derive(Deserialize)]
struct Collection {
    id: String,
    configuration_json: Option<Map<String, Value>>,
}

/// The limits of the server.
#[derive(Deserialize)]
struct Checks {
    max_batch_size: Option<usize>,
}

/// The reply to a search: one list per vector of the question.
#[derive(Deserialize)]
struct Found {
    ids: Vec<Vec<String>>,
    distances: Option<Vec<Vec<Option<f64>>>>,
}

/// The reply to a request for records. Without vectors, only the ids are present.
#[derive(Deserialize)]
struct Records {
    ids: Vec<String>,
    embeddings: Option<Vec<Option<Vec<f32>>>>,
}

#[async_trait]
impl VectorStore for ChromaStore {
    async fn upsert(
        &self,
        namespace: &str,
        entries: &[VectorEntry],
    ) -> Result<(), VectorStoreError> {
        let Some(first) = entries.first() else {
            return Ok(());
        };
        entries
            .iter()
            .try_for_each(|entry| self.check(&entry.vector))?;
        let fitting = (MAX_COMPONENTS / first.vector.len().max(1)).max(1);
        let batch = self.max_batch().await?.min(fitting);
        for batch in entries.chunks(batch) {
            self.upsert_batch(namespace, batch).await?;
        }
        Ok(())
    }

    async fn remove(&self, namespace: &str, keys: &[i64]) -> Result<(), VectorStoreError> {
        for keys in keys.chunks(MAX_RECORDS) {
            let body = json!({"ids": ids(keys)});
            self.ask::<Value>(namespace, "delete", Some(&body)).await?;
        }
        Ok(())
    }

    async fn remove_all(&self, namespace: &str) -> Result<(), VectorStoreError> {
        self.known().remove(namespace);
        let path = self.path(&[namespace]);
        // A missing collection is a success.
        self.server
            .send(Method::DELETE, &path, None)
            .await
            .map(drop)
    }

    async fn nearest(
        &self,
        namespace: &str,
        vector: &[f32],
        filter: &VectorFilter,
        limit: usize,
    ) -> Result<Vec<VectorMatch>, VectorStoreError> {
        self.check(vector)?;
        let nothing = filter.documents.as_ref().is_some_and(Vec::is_empty);
        if limit == 0 || nothing {
            return Ok(Vec::new());
        }
        let mut body = json!({
            "query_embeddings": [vector],
            "n_results": limit,
            "include": ["distances"],
        });
        if let Some(conditions) = conditions(filter) {
            body["where"] = conditions;
        }
        let found: Option<Found> = self.ask(namespace, "query", Some(&body)).await?;
        let found = found.map(|found| self.matches(found, limit));
        found.unwrap_or_else(|| Ok(Vec::new()))
    }

    async fn get(
        &self,
        namespace: &str,
        keys: &[i64],
    ) -> Result<Vec<(i64, Vec<f32>)>, VectorStoreError> {
        let mut found = Vec::new();
        for keys in keys.chunks(MAX_VECTORS) {
            let body = json!({"ids": ids(keys), "include": ["embeddings"]});
            let records: Option<Records> = self.ask(namespace, "get", Some(&body)).await?;
            let Some(records) = records else { break };
            let vectors = records.embeddings.unwrap_or_default();
            if vectors.len() != records.ids.len() {
                let message = "returned other numbers of ids and of vectors";
                return Err(self.server.error(VectorStoreErrorKind::Malformed, message));
            }
            let pairs = records.ids.iter().zip(vectors).take(keys.len());
            found.extend(pairs.filter_map(|(id, vector)| Some((id.parse().ok()?, vector?))));
        }
        Ok(found)
    }

    async fn keys(
        &self,
        namespace: &str,
        after: Option<&str>,
    ) -> Result<VectorKeys, VectorStoreError> {
        let offset: usize = match after.map(str::parse) {
            None => 0,
            Some(Ok(offset)) => offset,
            Some(Err(_)) => {
                let message = "can continue a list only after a number of keys";
                return Err(self.server.error(VectorStoreErrorKind::Rejected, message));
            }
        };
        let body = json!({"limit": MAX_RECORDS, "offset": offset, "include": []});
        let records: Option<Records> = self.ask(namespace, "get", Some(&body)).await?;
        let ids = records.map(|records| records.ids).unwrap_or_default();
        let keys = ids
            .iter()
            .take(MAX_RECORDS)
            .filter_map(|id| id.parse().ok());
        let part = VectorKeys::new(keys.collect());
        Ok(if ids.len() < MAX_RECORDS {
            part
        } else {
            part.with_next(offset.saturating_add(MAX_RECORDS).to_string())
        })
    }

    async fn count(&self, namespace: &str) -> Result<u64, VectorStoreError> {
        let count: Option<u64> = self.ask(namespace, "count", None).await?;
        Ok(count.unwrap_or(0))
    }
}

impl ChromaStore {
    /// Converts the reply to a search. Records of other programs have other ids, and are left out.
    fn matches(&self, found: Found, limit: usize) -> Result<Vec<VectorMatch>, VectorStoreError> {
        let ids = found.ids.into_iter().next().unwrap_or_default();
        let distances = found.distances.unwrap_or_default().into_iter().next();
        let distances = distances.unwrap_or_default();
        if ids.len() != distances.len() {
            let message = "returned other numbers of ids and of distances";
            return Err(self.server.error(VectorStoreErrorKind::Malformed, message));
        }
        let matches = ids.iter().zip(distances).filter_map(|(id, distance)| {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "a cosine is between -1 and 1"
            )]
            let cosine = (1.0 - distance?) as f32;
            Some(VectorMatch::new(id.parse().ok()?, cosine))
        });
        Ok(matches.take(limit).collect())
    }
}

/// Returns the ids of records.
fn ids(keys: &[i64]) -> Vec<String> {
    keys.iter().map(i64::to_string).collect()
}

/// Returns the body of a request that adds vectors.
fn records(entries: &[VectorEntry]) -> Value {
    let keys: Vec<i64> = entries.iter().map(|entry| entry.key).collect();
    let vectors: Vec<&[f32]> = entries.iter().map(|entry| &*entry.vector).collect();
    let properties = entries.iter().map(|entry| {
        json!({
            "document": entry.document,
            "kind": entry.kind,
            "changed": millis(entry.changed),
        })
    });
    json!({
        "ids": ids(&keys),
        "embeddings": vectors,
        "metadatas": properties.collect::<Vec<_>>(),
    })
}

/// Returns a filter in Chroma's language; `None` if it allows everything.
fn conditions(filter: &VectorFilter) -> Option<Value> {
    let mut all = Vec::new();
    if let Some(names) = &filter.documents {
        all.push(json!({"document": {"$in": names}}));
    }
    if let Some(kind) = &filter.kind {
        all.push(json!({"kind": {"$eq": kind}}));
    }
    if let Some(time) = filter.changed_after {
        all.push(json!({"changed": {"$gt": millis(time)}}));
    }
    match all.len() {
        // Chroma rejects a list of fewer than two conditions.
        0 | 1 => all.pop(),
        _ => Some(json!({"$and": all})),
    }
}

/// Returns a time as a number that Chroma accepts.
fn millis(time: Timestamp) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
