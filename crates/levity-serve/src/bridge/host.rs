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

use super::book::{Book, Note};
use super::limits::HostLimits;
use super::notice::Notice;
use super::{session, tasks};
use crate::error::{Error, Result};
use crate::gate::refuse;
use crate::listen::Listener;
use crate::runs::Runs;

/// A workspace and an agent that others work with over a WebSocket. Cloning costs nothing.
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
/// host.commander(Runs::new(Agent::builder(ScriptedModel::new().reply("Planned.")).build()?)).await?;
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
/// # Promises
/// - Nothing outside the workspace is read, written or listed, and nobody is let in whom the
///   listener's gate refuses.
/// - A task that was answered with an id is in the commander's journal. Its end is seen by one file
///   that appears once, also when the process is killed at any moment, as far as the journal and
///   the [notes](BridgeHostBuilder::tasks) are kept.
/// - No client holds up another one, or a task: one that does not read is let go.
#[derive(Clone)]
pub struct BridgeHost {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) space: Workspace,
    pub(super) limits: HostLimits,
    tell: Option<Arc<Tell>>,
    pub(super) news: broadcast::Sender<News>,
    pub(super) book: Book,
    pub(super) runs: OnceLock<Runs>,
    /// Tasks of an earlier process for which there was no room yet.
    pub(super) left: Mutex<VecDeque<Note>>,
    /// Tasks are begun one by one, so that an id is not used twice.
    pub(super) booking: tokio::sync::Mutex<()>,
    work: Mutex<JoinSet<()>>,
    clients: Arc<Semaphore>,
    /// How many clients work with files at once: each takes a thread.
    pub(super) files: Arc<Semaphore>,
    pub(super) waits: Semaphore,
    /// How many of those who wait for files look for them at once. Looking through a whole
    /// workspace takes long, and must not keep others from reading a file.
    pub(super) looks: Semaphore,
    next: AtomicU64,
}

type Tell = dyn Fn(&Notice) + Send + Sync;

/// What all clients are told but the one that did it.
#[derive(Clone)]
pub(super) struct News {
    pub(super) from: Option<u64>,
    pub(super) text: Arc<str>,
}

/// How many news wait for a client; one that is slower misses some, and is told how many.
const NEWS: usize = 256;
/// How many threads work with files.
const THREADS: usize = 16;
/// How many of them look for files that are waited for.
const LOOKS: usize = 2;

impl BridgeHost {
    /// Where a host listens unless told otherwise.
    pub const DEFAULT_ADDRESS: &'static str = "127.0.0.1:8888";

    /// A host of this workspace.
    pub fn builder(workspace: Workspace) -> BridgeHostBuilder {
        BridgeHostBuilder {
            space: workspace,
            limits: HostLimits::new(),
            tell: None,
            tasks: None,
        }
    }

    /// Gives the host what works on tasks. Those that an earlier process left are gone on with, and
    /// the end of those that have ended meanwhile is made seen; from then on tasks are taken.
    /// Before, clients are told to try again.
    ///
    /// # Errors
    /// When it has one already.
    pub async fn commander(&self, runs: Runs) -> Result<()> {
        let host = Arc::downgrade(&self.inner);
        let runs = runs.on_event(move |event| {
            if let Some(host) = host.upgrade() {
                tasks::heard(&host, event);
            }
        });
        // A second one waits, and touches nothing of what the first has.
        let booking = self.inner.booking.lock().await;
        let twice = || {
            Error::setting(
                "commander",
                "is there already; make another host for another one",
            )
        };
        if self.inner.runs.get().is_some() {
            return Err(twice());
        }
        for note in self.inner.book.open_ones() {
            tasks::recover(&self.inner, &runs, note).await;
        }
        self.inner.runs.set(runs).map_err(|_| twice())?;
        drop(booking);
        // Some may have ended meanwhile and made room.
        tasks::go_on(&self.inner).await;
        Ok(())
    }

    /// Returns the workspace that its clients work on.
    pub fn workspace(&self) -> &Workspace {
        &self.inner.space
    }

    /// The runs of its tasks, once there is a commander.
    pub fn runs(&self) -> Option<&Runs> {
        self.inner.runs.get()
    }

    /// Serves clients until the listener is told to stop. Dropping the future lets all of them go;
    /// tasks go on while the host is there.
    ///
    /// # Errors
    /// When the listener fails.
    pub async fn serve(&self, listener: Listener) -> Result<()> {
        let stop = CancelToken::new();
        let _guard = stop.clone().into_guard();
        let door = Door {
            host: self.inner.clone(),
            stop: stop.clone(),
        };
        let listener = listener.with_proofs()?;
        let served = listener
            .serve(Router::new().route("/", any(enter)).with_state(door))
            .await;
        stop.cancel();
        // They are told that the host is closing.
        let all = u32::try_from(self.inner.limits.clients).unwrap_or(u32::MAX);
        let _ = tokio::time::timeout(Duration::from_secs(1), self.inner.clients.acquire_many(all))
            .await;
        served
    }
}

#[derive(Clone)]
struct Door {
    host: Arc<Inner>,
    stop: CancelToken,
}

async fn enter(State(door): State<Door>, upgrade: WebSocketUpgrade) -> Response {
    let Ok(place) = door.host.clients.clone().try_acquire_owned() else {
        let words = "as many clients are there as there may be; try again when one has left";
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "full", words);
    };
    let most = door.host.limits.message;
    upgrade
        .max_message_size(most)
        .max_frame_size(most)
        .read_buffer_size(4 << 10)
        .write_buffer_size(0)
        .on_upgrade(move |socket| async move {
            session::serve(socket, &door.host, &door.stop).await;
            drop(place);
        })
}

impl Inner {
    pub(super) fn tell(&self, notice: &Notice) {
        if let Some(tell) = &self.tell {
            tell(notice);
        }
    }

    /// Tells all clients but one.
    pub(super) fn spread(&self, from: Option<u64>, method: &str, params: &Value) {
        let text = RpcMessage::notification(method, params).into();
        let _ = self.news.send(News { from, text });
    }

    pub(super) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Does something that no client's leaving breaks off. It ends with the host.
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

/// Settings of a [`BridgeHost`].
#[must_use]
pub struct BridgeHostBuilder {
    space: Workspace,
    limits: HostLimits,
    tell: Option<Arc<Tell>>,
    tasks: Option<PathBuf>,
}

impl BridgeHostBuilder {
    /// How much it takes and gives.
    pub fn limits(mut self, limits: HostLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Calls `tell` with what whoever sits at the host should know; it must not block.
    pub fn on_notice(mut self, tell: impl Fn(&Notice) + Send + Sync + 'static) -> Self {
        self.tell = Some(Arc::new(tell));
        self
    }

    /// Keeps notes of tasks in this folder: their names, and how far their signal files are.
    /// Without it they end with the process, and so does what is known of tasks. It belongs beside
    /// the commander's journal, not into the workspace.
    pub fn tasks(mut self, folder: impl Into<PathBuf>) -> Self {
        self.tasks = Some(folder.into());
        self
    }

    /// The host.
    ///
    /// # Errors
    /// When the folder of the tasks cannot be used, or another host does.
    pub fn build(self) -> Result<BridgeHost> {
        let book = match &self.tasks {
            Some(folder) => Book::open(folder).map_err(|source| Error::Io {
                what: format!("the tasks in `{}` cannot be worked with", folder.display()),
                source,
            })?,
            None => Book::in_memory(),
        };
        let inner = Inner {
            space: self.space,
            limits: self.limits,
            tell: self.tell,
            news: broadcast::Sender::new(NEWS),
            book,
            runs: OnceLock::new(),
            left: Mutex::default(),
            booking: tokio::sync::Mutex::default(),
            work: Mutex::default(),
            clients: Arc::new(Semaphore::new(self.limits.clients)),
            files: Arc::new(Semaphore::new(THREADS)),
            waits: Semaphore::new(self.limits.waits),
            looks: Semaphore::new(LOOKS),
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
