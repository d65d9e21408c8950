//! The layer [`Cached`] and its store [`Cache`].
//!
//! A lookup goes to the memory first and then to the folder; a reply from the folder moves into the
//! memory. A stream that finds a stored reply emits it as deltas, so consumers see no difference
//! except for the usage. Concurrent equal requests are not merged: each of them reaches the model
//! until the first reply is stored.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use levity_core::{
    CostBound, Deltas, Finish, Model, ModelCard, ModelError, Money, Request, Response, Usage,
};

use super::{canonical, files, flow};

mod disk;
mod memory;

use disk::Disk;
use memory::Memory;

/// A store for replies, in memory and optionally in a folder. Clones share the store.
///
/// In memory it retains the 256 most recently used replies, up to 64 MiB in total. In a folder it
/// retains the 10,000 newest replies. Several processes may share a folder. The cache ignores a
/// damaged file and writes it again.
///
/// ```
/// use levity_llm::layers::Cache;
///
/// let cache = Cache::new().entries(1_000).bytes(16 << 20);
/// # let _ = cache;
/// ```
///
/// Replies survive a restart only in a folder, where each one is a separate file that is replaced
/// atomically. Files are untrusted input: an entry counts only if its version and its key match.
///
/// ```
/// use levity_core::{Model, Request};
/// use levity_llm::ModelExt;
/// use levity_llm::layers::Cache;
/// use levity_test::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let folder = tempfile::tempdir()?;
/// let first = ScriptedModel::new().reply("yes").cached(Cache::new().folder(folder.path()));
/// first.complete(Request::new()).await?;
///
/// // A later process with the same folder does not call its model.
/// let unused = ScriptedModel::new();
/// let second = unused.clone().cached(Cache::new().folder(folder.path()));
/// assert_eq!(second.complete(Request::new()).await?.message.text(), "yes");
/// assert!(unused.requests().is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Cache {
    memory: Arc<Mutex<Memory>>,
    disk: Option<Arc<Disk>>,
    entries: usize,
    bytes: usize,
    namespace: Namespace,
}

/// A prefix of all keys. It may be a secret, so its `Debug` output hides it.
#[derive(Clone, Default)]
struct Namespace(Arc<str>);

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

impl Cache {
    /// The default number of replies in memory: 256.
    pub const DEFAULT_ENTRIES: usize = 256;
    /// The default total size of the replies in memory: 64 MiB.
    pub const DEFAULT_BYTES: usize = 64 << 20;
    /// The default number of replies in a folder: 10,000.
    pub const DEFAULT_FILES: usize = 10_000;

    /// Creates an empty cache in memory.
    pub fn new() -> Self {
        let (entries, bytes) = (Self::DEFAULT_ENTRIES, Self::DEFAULT_BYTES);
        Self {
            memory: Arc::default(),
            disk: None,
            entries,
            bytes,
            namespace: Namespace::default(),
        }
    }

    /// Separates replies from those of other namespaces, in memory and in the folder. Clones may
    /// have different namespaces.
    ///
    /// A request identifies its model only by provider and id. Put the server's address into the
    /// namespace if two servers offer models of the same name. Put a secret into it if other
    /// parties can write to the folder: without it, they cannot compute the keys and so cannot
    /// plant replies.
    ///
    /// ```
    /// use levity_core::{Model, Request};
    /// use levity_llm::ModelExt;
    /// use levity_llm::layers::Cache;
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::ModelError> {
    /// let shared = Cache::new();
    /// let (a, b) = (ScriptedModel::new().reply("from a"), ScriptedModel::new().reply("from b"));
    /// let a = a.cached(shared.clone().namespace("http://a:8080"));
    /// let b = b.cached(shared.namespace("http://b:8080"));
    /// assert_eq!(a.complete(Request::new()).await?.message.text(), "from a");
    /// assert_eq!(b.complete(Request::new()).await?.message.text(), "from b");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<Arc<str>>) -> Self {
        self.namespace = Namespace(namespace.into());
        self
    }

    /// Sets the maximum number of replies in memory.
    ///
    /// With 0, the memory stores nothing and only a folder is used. Clones share the store but keep
    /// their own limits.
    #[must_use]
    pub fn entries(mut self, count: usize) -> Self {
        self.entries = count;
        self
    }

    /// Sets the maximum total size of the replies in memory.
    ///
    /// The size of a reply is that of its message, plus its key and 512 bytes. A reply that is
    /// larger than the whole limit is not stored in memory.
    #[must_use]
    pub fn bytes(mut self, bytes: usize) -> Self {
        self.bytes = bytes;
        self
    }

    /// Also stores replies in this folder, at most [`DEFAULT_FILES`](Self::DEFAULT_FILES). The
    /// folder is created when needed.
    #[must_use]
    pub fn folder(self, folder: impl Into<PathBuf>) -> Self {
        self.folder_with_limit(folder, Self::DEFAULT_FILES)
    }

    /// Also stores replies in this folder, up to about `files` replies.
    ///
    /// The limit is approximate: a sweep after the first write and then after every 64th removes
    /// the oldest files beyond it.
    #[must_use]
    pub fn folder_with_limit(mut self, folder: impl Into<PathBuf>, files: usize) -> Self {
        let disk = Disk {
            folder: folder.into(),
            max_files: files,
            written: 0.into(),
        };
        self.disk = Some(Arc::new(disk));
        self
    }

    /// Returns the stored reply from memory or from the folder. An unreadable file counts as a
    /// miss.
    async fn get(&self, key: &str) -> Option<Response> {
        let stored = self
            .memory
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(key);
        let Some(disk) = self.disk.clone().filter(|_| stored.is_none()) else {
            return stored;
        };
        let name = key.to_owned();
        let read = files::run_blocking(move || Ok(disk.get(&name)))
            .await
            .ok()??;
        self.remember(key, &read);
        Some(read)
    }

    /// Stores a reply. Disk errors are ignored, because a failing disk must not fail the call.
    ///
    /// Only complete replies are worth storing. A reply that a filter cut off may differ the next
    /// time.
    async fn put(&self, key: String, response: &Response) {
        let worth = matches!(
            response.finish,
            Finish::Stop | Finish::ToolCalls | Finish::Length
        );
        if !worth {
            return;
        }
        self.remember(&key, response);
        if let Some(disk) = self.disk.clone() {
            let response = response.clone();
            let _ = files::run_blocking(move || disk.put(&key, &response)).await;
        }
    }

    /// Stores a reply in memory only, within the limits of this clone.
    fn remember(&self, key: &str, response: &Response) {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.put(key, response.clone(), self.entries, self.bytes);
    }
}

impl Default for Cache {
    fn default() -> Self {
        Self::new()
    }
}

/// Answers a repeated request from a cache, without calling the model.
///
/// Two requests are the same if their content and the model's provider and id are equal. The cache
/// stores only complete replies: no errors, no withheld replies and no dropped streams. A reply
/// from the cache reports zero tokens and no cost, which no real call does.
///
/// Each call hashes the whole request, so the cost grows with the length of the history.
///
/// ```
/// use levity_core::{Model, Request};
/// use levity_llm::ModelExt;
/// use levity_llm::layers::Cache;
/// use levity_test::{ScriptedModel, Turn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::ModelError> {
/// let model = ScriptedModel::new()
///     .turn(Turn::new().text("yes").usage(10, 1))
///     .cached(Cache::new());
/// assert_eq!(model.complete(Request::new()).await?.usage.total(), 11);
/// let again = model.complete(Request::new()).await?;
/// assert_eq!((&*again.message.text(), again.usage.total()), ("yes", 0));
/// # Ok(())
/// # }
/// ```
pub struct Cached<M> {
    inner: Arc<M>,
    cache: Cache,
}

impl<M: Model + 'static> Cached<M> {
    /// Wraps the given model.
    ///
    /// ```
    /// use levity_core::{Message, Model, Request};
    /// use levity_llm::layers::{Cache, Cached};
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::ModelError> {
    /// let inner = ScriptedModel::new().reply("one").reply("two");
    /// let model = Cached::new(inner.clone(), Cache::new());
    /// let ask = |text: &str| Request::new().with_message(Message::user(text));
    /// for text in ["a", "b", "a", "b"] {
    ///     model.complete(ask(text)).await?;
    /// }
    /// assert_eq!(inner.requests().len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(model: M, cache: Cache) -> Self {
        Self {
            inner: Arc::new(model),
            cache,
        }
    }

    /// Returns the key of a request within the namespace of the cache.
    fn key(&self, request: &Request) -> String {
        let key = canonical::key(self.inner.card(), &canonical::canonical(request));
        canonical::namespaced_key(&self.cache.namespace.0, key)
    }
}

/// Resets the usage of a cached reply, because it costs nothing this time.
fn without_usage(response: Response) -> Response {
    let mut usage = Usage::new(0, 0);
    usage.cost = Some(Money::ZERO);
    response.with_usage(usage)
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<M: Model + 'static> Model for Cached<M> {
    fn card(&self) -> &ModelCard {
        self.inner.card()
    }

    async fn stream(&self, request: Request) -> Result<Deltas, ModelError> {
        let key = self.key(&request);
        if let Some(response) = self.cache.get(&key).await {
            return Ok(Deltas::from_response(&without_usage(response)));
        }
        let (model, cache) = (self.inner.clone(), self.cache.clone());
        Ok(flow::deltas(move |out| async move {
            let response = flow::forward(&*model, request, &out).await?;
            cache.put(key, &response).await;
            Ok(())
        }))
    }

    async fn complete(&self, request: Request) -> Result<Response, ModelError> {
        let key = self.key(&request);
        if let Some(response) = self.cache.get(&key).await {
            return Ok(without_usage(response));
        }
        let response = self.inner.complete(request).await?;
        self.cache.put(key, &response).await;
        Ok(response)
    }

    fn cost_bound(&self, request: &Request) -> CostBound {
        self.inner.cost_bound(request)
    }
}

impl<M: Model> fmt::Debug for Cached<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cached")
            .field("model", &self.inner.card().id)
            .finish_non_exhaustive()
    }
}
