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

/// Where replies are kept: in memory, and in a folder if there is one. Clones share it.
///
/// In memory it keeps the 256 replies used last, of 64 MiB together; in a folder the 10,000 newest.
/// A folder may be shared by several processes; a damaged file counts as none and is written anew.
///
/// ```
/// use levity_llm::layers::Cache;
///
/// let cache = Cache::new().entries(1_000).bytes(16 << 20);
/// # let _ = cache;
/// ```
#[derive(Clone, Debug)]
pub struct Cache {
    memory: Arc<Mutex<Memory>>,
    disk: Option<Arc<Disk>>,
    entries: usize,
    bytes: usize,
    namespace: Namespace,
}

/// A prefix of all keys; it may be a secret, so that nothing prints it.
#[derive(Clone, Default)]
struct Namespace(Arc<str>);

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

impl Cache {
    /// How many replies are kept in memory: 256.
    pub const DEFAULT_ENTRIES: usize = 256;
    /// How large they may be together: 64 MiB.
    pub const DEFAULT_BYTES: usize = 64 << 20;
    /// How many replies are kept in a folder: 10,000.
    pub const DEFAULT_FILES: usize = 10_000;

    /// An empty cache in memory.
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

    /// Keeps replies apart from those of other namespaces, in memory and in the folder. Clones may
    /// have namespaces of their own.
    ///
    /// A request names its model by provider and id alone. Put the server's address into the
    /// namespace where two servers offer models of the same name. Put a secret into it where others
    /// write into the folder: then they cannot plant replies, because they cannot name them.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<Arc<str>>) -> Self {
        self.namespace = Namespace(namespace.into());
        self
    }

    /// Sets how many replies are kept in memory.
    #[must_use]
    pub fn entries(mut self, count: usize) -> Self {
        self.entries = count;
        self
    }

    /// Sets how large the replies in memory may be together.
    #[must_use]
    pub fn bytes(mut self, bytes: usize) -> Self {
        self.bytes = bytes;
        self
    }

    /// Keeps replies in this folder too, at most [`DEFAULT_FILES`](Self::DEFAULT_FILES); it is made
    /// when needed.
    #[must_use]
    pub fn folder(self, folder: impl Into<PathBuf>) -> Self {
        self.folder_of(folder, Self::DEFAULT_FILES)
    }

    /// Keeps replies in this folder too, and about so many at most.
    #[must_use]
    pub fn folder_of(mut self, folder: impl Into<PathBuf>, files: usize) -> Self {
        let disk = Disk {
            folder: folder.into(),
            most: files,
            written: 0.into(),
        };
        self.disk = Some(Arc::new(disk));
        self
    }

    async fn get(&self, key: &str) -> Option<Response> {
        let kept = self
            .memory
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(key);
        let Some(disk) = self.disk.clone().filter(|_| kept.is_none()) else {
            return kept;
        };
        let name = key.to_owned();
        let read = files::aside(move || Ok(disk.get(&name))).await.ok()??;
        self.remember(key, &read);
        Some(read)
    }

    /// Keeps a reply; a disk that fails is no reason to fail the call.
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
            let _ = files::aside(move || disk.put(&key, response)).await;
        }
    }

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

/// Answers a request that was answered before without asking the model.
///
/// Requests are the same when everything in them is, and the model's provider and id. What is kept
/// are whole replies: no errors, nothing withheld, no stream that was dropped. A reply from the
/// cache reports zero tokens and no cost, which no call does that was made.
///
/// A whole request is hashed for each call, so a long history costs its length.
///
/// ```
/// use levity_core::{Model, Request};
/// use levity_llm::ModelExt;
/// use levity_llm::layers::Cache;
/// use levity_test::{ScriptedModel, Turn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::ModelError> {
/// let model = ScriptedModel::new().turn(Turn::new().text("yes").usage(10, 1)).cached(Cache::new());
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
    /// Wraps a model.
    pub fn new(model: M, cache: Cache) -> Self {
        Self {
            inner: Arc::new(model),
            cache,
        }
    }

    fn key(&self, request: &Request) -> String {
        let key = canonical::key(self.inner.card(), &canonical::canonical(request));
        canonical::within(&self.cache.namespace.0, key)
    }
}

/// A kept reply, which costs nothing this time.
fn free(response: Response) -> Response {
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
            return Ok(Deltas::from_response(&free(response)));
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
            return Ok(free(response));
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
