//! The host: its clients, its commander and the limits that they share.
//!
//! Everything that outlives a request runs on `Inner::spawn`, so it ends with the host. The host
//! accepts file requests before it has a commander, so that a client can connect while a model is
//! still loading.

use std::collections::VecDeque;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{State, WebSocketUpgrade};
use axum::response::Response;
use axum::routing::any;
use http::StatusCode;
use levity_core::CancelToken;
use levity_rpc::RpcMessage;
use levity_sandbox::Workspace;
use serde_json::Value;
use tokio::sync::{Semaphore, broadcast};
use tokio::task::JoinSet;

use super::limits::HostLimits;
use super::notice::Notice;
use super::task_store::{TaskRecord, TaskStore};
use super::{session, tasks};
use crate::access_control::refuse;
use crate::error::{Error, Result};
use crate::listen::Listener;
use crate::runs::Runs;

/// A workspace and an agent that other programs use over a WebSocket. Cloning is cheap.
///
/// ```
/// use levity_loop::Agent;
/// use levity_sandbox::Workspace;
/// use levity_serve::bridge::{BridgeClient, BridgeHost};
/// use levity_serve::{AccessControl, Listener, Runs, Token};
/// use levity_test::ScriptedModel;
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// let host = BridgeHost::builder(Workspace::open(folder.path())?).build()?;
/// let token = Token::generate()?;
/// let listener = Listener::bind("127.0.0.1:0", AccessControl::new(token.clone())).await?;
/// let url = format!("ws://{}", listener.address());
/// # let work = async {
/// host.commander(Runs::new(
///     Agent::builder(ScriptedModel::new().reply("Planned.")).build()?,
/// ))
/// .await?;
///
/// let client = BridgeClient::new(&url, token)?;
/// client.request("agent/dispatch", json!({"prompt": "Plan it.", "done": "DONE_plan"})).await?;
/// let found = client.request("fs/wait", json!({"path": "DONE_plan", "timeout": 10})).await?;
/// assert_eq!(found["found"], json!(["DONE_plan"]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # };
/// # tokio::select! { served = host.serve(listener) => served?, done = work => done? }
/// # Ok(())
/// # }
/// ```
///
/// # Guarantees
/// - Nothing outside the workspace is read, written or listed, and only clients that pass the
///   listener's access control are admitted.
/// - A task whose id was returned is in the commander's journal. One signal file appears exactly
///   once when it ends, even if the process is killed at any moment. This requires that the journal
///   and the [task records](BridgeHostBuilder::tasks) are stored.
/// - No client delays another client or a task: one that does not read is disconnected.
#[derive(Clone)]
pub struct BridgeHost {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) space: Workspace,
    pub(super) limits: HostLimits,
    on_notice: Option<Arc<NoticeFn>>,
    pub(super) broadcasts: broadcast::Sender<Broadcast>,
    pub(super) task_store: TaskStore,
    pub(super) runs: OnceLock<Runs>,
    /// Tasks of an earlier process that wait for a free slot.
    pub(super) queued_tasks: Mutex<VecDeque<TaskRecord>>,
    /// Tasks are started one at a time, so that an id is not used twice.
    pub(super) dispatch_lock: tokio::sync::Mutex<()>,
    work: Mutex<JoinSet<()>>,
    clients: Arc<Semaphore>,
    /// Limits the clients that access files at the same time, because each occupies a thread.
    pub(super) files: Arc<Semaphore>,
    pub(super) waits: Semaphore,
    /// Limits the searches for awaited files. Searching a whole workspace takes long, and must not
    /// block clients that read a file.
    pub(super) searches: Semaphore,
    next: AtomicU64,
}

type NoticeFn = dyn Fn(&Notice) + Send + Sync;

/// A notification for all clients except the one that caused it.
#[derive(Clone)]
pub(super) struct Broadcast {
    pub(super) from: Option<u64>,
    pub(super) text: Arc<str>,
}

/// The number of notifications that are buffered for a client; a slower one misses some and learns
/// how many.
const BROADCAST_BUFFER: usize = 256;
/// The maximum number of threads that access files.
const FILE_THREADS: usize = 16;
/// The maximum number of those that search for awaited files.
const SEARCH_THREADS: usize = 2;

impl BridgeHost {
    /// The default address of a host.
    pub const DEFAULT_ADDRESS: &'static str = "127.0.0.1:8888";

    /// Creates a builder for a host of this workspace.
    ///
    /// ```
    /// use levity_sandbox::Workspace;
    /// use levity_serve::bridge::BridgeHost;
    /// # let folder = tempfile::tempdir()?;
    /// let host = BridgeHost::builder(Workspace::open(folder.path())?).build()?;
    /// assert!(host.runs().is_none(), "it has no commander yet");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder(workspace: Workspace) -> BridgeHostBuilder {
        BridgeHostBuilder {
            space: workspace,
            limits: HostLimits::new(),
            on_notice: None,
            tasks: None,
        }
    }

    /// Sets the runs that execute tasks. Tasks of an earlier process are resumed, and the signal
    /// files of those that have ended are published. After that, the host accepts tasks; before,
    /// clients are asked to try again.
    ///
    /// A task whose run [`Runs::resume_if`] rejects is neither resumed nor published, because
    /// others may have written its record. A task that cannot be resumed does not fail this call;
    /// the operator gets a [`Notice::Problem`].
    ///
    /// # Errors
    /// Fails if the host already has a commander.
    pub async fn commander(&self, runs: Runs) -> Result<()> {
        let host = Arc::downgrade(&self.inner);
        let runs = runs.on_event(move |event| {
            if let Some(host) = host.upgrade() {
                tasks::handle_event(&host, event);
            }
        });
        // A second call waits, and changes nothing that the first one set.
        let dispatch_lock = self.inner.dispatch_lock.lock().await;
        let already_set = || {
            Error::setting(
                "commander",
                "is already set; build another host for another commander",
            )
        };
        if self.inner.runs.get().is_some() {
            return Err(already_set());
        }
        for record in self.inner.task_store.unsignalled() {
            tasks::recover(&self.inner, &runs, record).await;
        }
        self.inner.runs.set(runs).map_err(|_| already_set())?;
        drop(dispatch_lock);
        // Some runs may have ended in the meantime and freed slots.
        tasks::resume_queued(&self.inner).await;
        Ok(())
    }

    /// Returns the workspace that the clients use.
    ///
    /// ```
    /// use levity_sandbox::Workspace;
    /// use levity_serve::bridge::BridgeHost;
    /// # let folder = tempfile::tempdir()?;
    /// let host = BridgeHost::builder(Workspace::open(folder.path())?).build()?;
    /// host.workspace().write("plan.md", b"1. Rest.")?;
    /// assert!(folder.path().join("plan.md").exists());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn workspace(&self) -> &Workspace {
        &self.inner.space
    }

    /// Returns the runs of the tasks, once there is a commander.
    pub fn runs(&self) -> Option<&Runs> {
        self.inner.runs.get()
    }

    /// Serves clients until the listener must stop. Dropping the future disconnects all of them;
    /// tasks continue as long as the host exists.
    ///
    /// Only the owner is admitted: a named token needs the scope `admin`. Clients may send the
    /// token or prove that they have it.
    ///
    /// # Errors
    /// Fails if the listener fails.
    pub async fn serve(&self, listener: Listener) -> Result<()> {
        let stop = CancelToken::new();
        let _guard = stop.clone().into_guard();
        let state = HostState {
            host: self.inner.clone(),
            stop: stop.clone(),
        };
        let listener = listener.with_proofs()?;
        let served = listener
            .serve(
                Router::new()
                    .route("/", any(accept_client))
                    .with_state(state),
            )
            .await;
        stop.cancel();
        // The clients receive a close frame that says that the host is closing.
        let all = u32::try_from(self.inner.limits.clients).unwrap_or(u32::MAX);
        let _ = tokio::time::timeout(Duration::from_secs(1), self.inner.clients.acquire_many(all))
            .await;
        served
    }
}

#[derive(Clone)]
struct HostState {
    host: Arc<Inner>,
    stop: CancelToken,
}

/// Upgrades a request to a WebSocket, if the number of clients allows it. The buffers are small,
/// because most of the 1,024 clients are idle.
async fn accept_client(State(state): State<HostState>, upgrade: WebSocketUpgrade) -> Response {
    let Ok(permit) = state.host.clients.clone().try_acquire_owned() else {
        let message = "the maximum number of clients is connected; try again when one has \
            disconnected";
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "full", message);
    };
    let limit = state.host.limits.message;
    upgrade
        .max_message_size(limit)
        .max_frame_size(limit)
        .read_buffer_size(4 << 10)
        .write_buffer_size(0)
        .on_upgrade(move |socket| async move {
            session::serve(socket, &state.host, &state.stop).await;
            drop(permit);
        })
}

impl Inner {
    pub(super) fn notify(&self, notice: &Notice) {
        if let Some(notify) = &self.on_notice {
            notify(notice);
        }
    }

    /// Sends a notification to all clients except one.
    pub(super) fn broadcast(&self, from: Option<u64>, method: &str, params: &Value) {
        let text = RpcMessage::notification(method, params).into();
        let _ = self.broadcasts.send(Broadcast { from, text });
    }

    /// Returns the number of the next client, counted from 1. It names the client in notices.
    pub(super) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Runs work that continues if a client disconnects. It ends with the host.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(work);
    }
}

impl fmt::Debug for BridgeHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BridgeHost")
            .field("workspace", &self.inner.space.root())
            .field("ready", &self.inner.runs.get().is_some())
            .finish_non_exhaustive()
    }
}

/// A builder for a [`BridgeHost`].
///
/// ```
/// use levity_sandbox::Workspace;
/// use levity_serve::bridge::{BridgeHost, HostLimits};
/// # let folder = tempfile::tempdir()?;
/// # let (project, state) = (folder.path().join("project"), folder.path().join("state"));
/// # std::fs::create_dir(&project)?;
/// let host = BridgeHost::builder(Workspace::open(&project)?)
///     .limits(HostLimits::new().clients(8))
///     .tasks(state.join("tasks"))
///     .on_notice(|notice| eprintln!("{notice}"))
///     .build()?;
/// assert!(state.join("tasks").is_dir());
/// # drop(host);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub struct BridgeHostBuilder {
    space: Workspace,
    limits: HostLimits,
    on_notice: Option<Arc<NoticeFn>>,
    tasks: Option<PathBuf>,
}

impl BridgeHostBuilder {
    /// Sets the limits of the host.
    pub fn limits(mut self, limits: HostLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Calls a function with notices for the operator of the host. The function must not block.
    pub fn on_notice(mut self, notify: impl Fn(&Notice) + Send + Sync + 'static) -> Self {
        self.on_notice = Some(Arc::new(notify));
        self
    }

    /// Stores task records in this folder: the ids of tasks, and the state of their signal files.
    /// Without it, this information ends with the process. Put the folder beside the commander's
    /// journal, not into the workspace.
    ///
    /// Only one host can use a folder at a time.
    ///
    /// ```
    /// use levity_sandbox::Workspace;
    /// use levity_serve::bridge::BridgeHost;
    /// # let folder = tempfile::tempdir()?;
    /// # let (project, state) = (folder.path().join("project"), folder.path().join("state"));
    /// # std::fs::create_dir(&project)?;
    /// let space = Workspace::open(&project)?;
    /// let build = || BridgeHost::builder(space.clone()).tasks(&state).build();
    /// let host = build()?;
    /// assert!(build().is_err(), "another host uses the folder");
    /// # drop(host);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn tasks(mut self, folder: impl Into<PathBuf>) -> Self {
        self.tasks = Some(folder.into());
        self
    }

    /// Builds the host.
    ///
    /// # Errors
    /// Fails if the folder of task records cannot be used, or if another host uses it.
    pub fn build(self) -> Result<BridgeHost> {
        let task_store = match &self.tasks {
            Some(folder) => TaskStore::open(folder).map_err(|source| Error::Io {
                what: format!("cannot use the task records in `{}`", folder.display()),
                source,
            })?,
            None => TaskStore::in_memory(),
        };
        let inner = Inner {
            space: self.space,
            limits: self.limits,
            on_notice: self.on_notice,
            broadcasts: broadcast::Sender::new(BROADCAST_BUFFER),
            task_store,
            runs: OnceLock::new(),
            queued_tasks: Mutex::default(),
            dispatch_lock: tokio::sync::Mutex::default(),
            work: Mutex::default(),
            clients: Arc::new(Semaphore::new(self.limits.clients)),
            files: Arc::new(Semaphore::new(FILE_THREADS)),
            waits: Semaphore::new(self.limits.waits),
            searches: Semaphore::new(SEARCH_THREADS),
            next: AtomicU64::new(0),
        };
        Ok(BridgeHost {
            inner: Arc::new(inner),
        })
    }
}

impl fmt::Debug for BridgeHostBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BridgeHostBuilder")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
