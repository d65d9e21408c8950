mod ask;
#[cfg(feature = "http")]
mod http;
mod listen;
mod open;
mod supervise;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use levity_core::{CancelToken, Progress, Timestamp, Tool, ToolCx, ToolOutput, World};
use levity_rpc::mcp::JsonObject;
use serde_json::Value;
use tokio::sync::{Notify, Semaphore, watch};

use crate::client::{Asked, Client, Era, Patience, ToolCall};
use crate::config::Transport;
use crate::event::Events;
use crate::link::Lifeline;
use crate::naming::Namer;
use crate::redact::Redactor;
use crate::tool::McpTool;
use crate::{Error, ErrorKind, Result, ServerConfig};

/// How long a call waits for a server that is just being started.
const STARTING: Duration = Duration::from_secs(5);

/// One server; cheap to clone.
///
/// It lives as long as the [`Servers`](crate::Servers) it belongs to.
#[derive(Clone)]
pub struct Server(pub(crate) Arc<Shared>);

/// What a server's handle, its tools and the task that keeps it running share.
pub(crate) struct Shared {
    pub(crate) config: ServerConfig,
    /// Masks what the server may repeat of its settings and its login.
    pub(crate) secrets: Redactor,
    pub(crate) world: Arc<dyn World>,
    pub(crate) events: Events,
    pub(crate) asked: Asked,
    pub(crate) namer: Namer,
    pub(crate) phase: watch::Sender<Phase>,
    pub(crate) tools: Mutex<Tools>,
    /// Counts the changes of all servers' tools.
    pub(crate) version: Arc<AtomicU64>,
    permits: Semaphore,
    era: Mutex<Option<Era>>,
    lifeline: Mutex<Option<Arc<dyn Lifeline>>>,
    tools_changed: Arc<Notify>,
    /// Somebody wants it although it was given up.
    revive: Notify,
    /// Somebody wants it started again.
    restarted: Notify,
    /// A call went without an answer: it may hang.
    doubt: Notify,
    starts: AtomicU32,
    /// The login, which is kept over restarts.
    #[cfg(feature = "http")]
    login: Option<Arc<dyn crate::link::authorize::Authorize>>,
    /// The resources that somebody wants word about.
    subscribed: Mutex<BTreeSet<String>>,
    /// What is wanted of the stream of changes is something else now.
    relisten: Notify,
}

/// The tools of a server, and what could not be made a tool of.
#[derive(Clone, Default)]
pub(crate) struct Tools {
    pub(crate) list: Arc<[Arc<McpTool>]>,
    pub(crate) problems: Arc<[String]>,
}

/// Where a server is in its life.
#[derive(Clone)]
pub(crate) enum Phase {
    Disabled,
    Starting,
    Ready(Arc<Client>),
    Away {
        error: Error,
        retry: Option<Timestamp>,
    },
    Stopped,
}

/// How a server is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerStatus {
    /// Its name.
    pub name: Arc<str>,
    /// How it is reached: `stdio`, `http`, `sse` or `in-process`.
    pub transport: &'static str,
    /// Where it is in its life.
    pub state: ServerState,
    /// What it calls itself, and its version.
    pub implementation: Option<String>,
    /// The version of the protocol that is spoken.
    pub protocol: Option<String>,
    /// What it says about how to use it.
    pub instructions: Option<String>,
    /// How many tools it offers.
    pub tools: usize,
    /// How many tokens the names, descriptions and schemas of its tools cost, about.
    pub tokens: u64,
    /// How often it was started.
    pub starts: u32,
    /// What it offers and could not be made a tool of.
    pub problems: Vec<String>,
}

/// Where a server is in its life.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ServerState {
    /// Its settings keep it from being started.
    Disabled,
    /// It is being started.
    Starting,
    /// It answers.
    Ready,
    /// It is away; calls to it fail until it is back.
    Away {
        /// Why.
        error: Error,
        /// How long until it is started again; `None` when it was given up until somebody asks for
        /// it.
        retry: Option<Duration>,
    },
    /// It was stopped.
    Stopped,
}

impl ServerState {
    /// Whether it answers.
    pub fn is_ready(&self) -> bool {
        matches!(self, Self::Ready)
    }
}

impl fmt::Display for ServerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disabled => f.write_str("disabled"),
            Self::Starting => f.write_str("starting"),
            Self::Ready => f.write_str("ready"),
            Self::Away {
                retry: Some(time), ..
            } => write!(f, "away, starts again in {time:?}"),
            Self::Away { retry: None, .. } => f.write_str("away, given up until it is asked for"),
            Self::Stopped => f.write_str("stopped"),
        }
    }
}

impl Server {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.config.name
    }

    /// How it is.
    pub fn status(&self) -> ServerStatus {
        self.0.status()
    }

    /// Its tools, as an agent sees them.
    pub fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.0
            .tools()
            .list
            .iter()
            .map(|tool| tool.clone() as Arc<dyn Tool>)
            .collect()
    }

    /// Returns the schema of a tool's arguments exactly as the server sent it, by the name that the
    /// server gave the tool or by the one that models know.
    ///
    /// [`ToolSpec::input`](levity_core::ToolSpec::input) accepts the same values but leaves out
    /// keywords that a model does not need, such as `$schema`.
    pub fn input_schema(&self, tool: &str) -> Option<Value> {
        self.0
            .find(tool)
            .map(|tool| Value::Object(tool.schema().clone()))
    }

    /// Calls a tool by the name that the server gave it, or by the one that models know.
    ///
    /// # Errors
    /// When the server is away, does not answer in time, or refuses; when its settings do not let
    /// the tool through; a tool that says itself that it failed is [`Refused`](ErrorKind::Refused)
    /// with code 0.
    pub async fn call(&self, tool: &str, args: Value) -> Result<ToolOutput> {
        let cx = ToolCx::detached();
        self.0.call(tool, args, &cx).await
    }

    /// As [`call`](Self::call), for a call of which somebody wants to hear meanwhile, or that may
    /// be cancelled: by `cx`.
    ///
    /// # Errors
    /// As for [`call`](Self::call); and when it was cancelled.
    pub async fn call_with(&self, tool: &str, args: Value, cx: &ToolCx) -> Result<ToolOutput> {
        self.0.call(tool, args, cx).await
    }

    /// Starts it again, whatever it is doing; calls that are under way fail.
    pub fn restart(&self) {
        self.0.restart();
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("name", &self.0.config.name)
            .field("state", &self.0.state())
            .finish()
    }
}

impl Shared {
    pub(crate) fn new(
        config: ServerConfig,
        world: Arc<dyn World>,
        events: Events,
        asked: Asked,
        namer: Namer,
        version: Arc<AtomicU64>,
    ) -> Self {
        #[cfg(feature = "oauth")]
        let (login, world) = crate::auth::of(&config, world, events.secrets());
        let phase = if config.enabled {
            Phase::Starting
        } else {
            Phase::Disabled
        };
        Self {
            permits: Semaphore::new(config.max_concurrent),
            secrets: events.secrets().clone(),
            config,
            world,
            events,
            asked,
            namer,
            phase: watch::Sender::new(phase),
            tools: Mutex::default(),
            version,
            era: Mutex::default(),
            lifeline: Mutex::default(),
            tools_changed: Arc::default(),
            revive: Notify::new(),
            restarted: Notify::new(),
            doubt: Notify::new(),
            starts: AtomicU32::new(0),
            #[cfg(feature = "oauth")]
            login,
            #[cfg(all(feature = "http", not(feature = "oauth")))]
            login: None,
            subscribed: Mutex::default(),
            relisten: Notify::new(),
        }
    }

    pub(crate) fn tools(&self) -> Tools {
        lock(&self.tools).clone()
    }

    pub(crate) fn state(&self) -> ServerState {
        match &*self.phase.borrow() {
            Phase::Disabled => ServerState::Disabled,
            Phase::Starting => ServerState::Starting,
            Phase::Ready(_) => ServerState::Ready,
            Phase::Away { error, retry } => {
                let retry = retry.map(|at| at.since(self.world.now()));
                ServerState::Away {
                    error: error.clone(),
                    retry,
                }
            }
            Phase::Stopped => ServerState::Stopped,
        }
    }

    pub(crate) fn status(&self) -> ServerStatus {
        let tools = self.tools();
        let client = match &*self.phase.borrow() {
            Phase::Ready(client) => Some(client.clone()),
            _ => None,
        };
        let info = client.as_ref().map(|client| client.info());
        let named = info.and_then(|info| info.server_info.as_ref());
        ServerStatus {
            name: self.config.name.clone(),
            transport: self.config.transport.name(),
            state: self.state(),
            implementation: named.map(|named| format!("{} {}", named.name, named.version)),
            protocol: info.map(|info| info.protocol_version.to_string()),
            instructions: info.and_then(|info| info.instructions.clone()),
            tools: tools.list.len(),
            tokens: tools.list.iter().map(|tool| tool.tokens()).sum(),
            starts: self.starts.load(Ordering::Relaxed),
            problems: tools.problems.to_vec(),
        }
    }

    /// The live connection; waits a moment for one that is being made.
    pub(crate) async fn client(&self) -> Result<Arc<Client>> {
        let mut phase = self.phase.subscribe();
        // What is left of a server is ended before it counts as away. A call meanwhile would seem
        // to have been made.
        let is_settled = |phase: &Phase| match phase {
            Phase::Starting => false,
            Phase::Ready(client) => !client.is_over(),
            _ => true,
        };
        if !is_settled(&phase.borrow()) {
            let settled = phase.wait_for(is_settled);
            tokio::select! {
                _ = settled => {}
                () = self.world.sleep(STARTING.min(self.config.start_limit)) => {}
            }
        }
        let now = phase.borrow().clone();
        match now {
            Phase::Ready(client) => Ok(client),
            Phase::Away { error, retry } => Err(self.away(&error, retry)),
            Phase::Starting => {
                Err(self.not_there("it is still being started; try again in a moment"))
            }
            Phase::Disabled => Err(self.not_there("its settings keep it from being started")),
            Phase::Stopped => Err(self.not_there("it was stopped")),
        }
    }

    fn not_there(&self, words: &str) -> Error {
        Error::new(ErrorKind::Away, self.config.name.clone(), words)
    }

    fn away(&self, error: &Error, retry: Option<Timestamp>) -> Error {
        let why = error.message();
        let words = match retry {
            Some(at) => format!(
                "it is away and starts again in {:?}: {why}",
                at.since(self.world.now())
            ),
            None => {
                self.revive.notify_one();
                format!("it was given up, and is tried once more now: {why}")
            }
        };
        let told = Error::new(ErrorKind::Away, self.config.name.clone(), words);
        match error.death() {
            Some(death) => told.with_death(death.clone()),
            None => told,
        }
    }

    /// The tool of this name on the server, or else the one that models know by it.
    fn find(&self, tool: &str) -> Option<Arc<McpTool>> {
        let tools = self.tools().list;
        let named = |name: fn(&McpTool) -> &str| tools.iter().find(|known| name(known) == tool);
        named(McpTool::original)
            .or_else(|| named(McpTool::name))
            .cloned()
    }

    /// Calls a tool by the name that the server gave it.
    pub(crate) async fn call(&self, tool: &str, args: Value, cx: &ToolCx) -> Result<ToolOutput> {
        let found = self.find(tool);
        let as_task = found.as_ref().is_some_and(|tool| tool.wants_task());
        if found.is_none() && !self.lets_through(tool) {
            let words = format!(
                "its settings keep `{}` out, by `allow` and `deny`",
                crate::text::cut(tool, 128)
            );
            return Err(Error::new(
                ErrorKind::Unsupported,
                self.config.name.clone(),
                words,
            ));
        }
        // One that is not in the list may be there all the same: the server knows best.
        let tool = found.as_ref().map_or(tool, |tool| tool.original());
        let result = self
            .call_raw(tool, args, as_task, cx.progress.clone(), Some(&cx.cancel))
            .await?;
        crate::convert::output(result).map_err(|error| {
            Error::new(
                ErrorKind::Refused(0),
                self.config.name.clone(),
                format!("`{tool}` failed: {}", error.explain()),
            )
        })
    }

    /// Calls a tool; the result is as the server wrote it.
    pub(crate) async fn call_raw(
        &self,
        tool: &str,
        args: Value,
        as_task: bool,
        progress: Progress,
        cancel: Option<&CancelToken>,
    ) -> Result<Value> {
        let arguments = match args {
            Value::Object(arguments) => arguments,
            Value::Null => JsonObject::new(),
            _ => return Err(self.bad("the arguments of a tool are an object")),
        };
        let _permit = self.permit(cancel).await?;
        let client = self.client().await?;
        let call = ToolCall {
            name: tool.to_owned(),
            arguments,
            as_task,
        };
        let patience = Patience {
            progress,
            cancel,
            ..self.patience()
        };
        let result = client.call_tool(call, &patience).await;
        if result.as_ref().is_err_and(Error::is_silence) {
            self.doubt.notify_one();
        }
        let failed = |result: &Value| {
            result
                .get("isError")
                .and_then(Value::as_bool)
                .unwrap_or_default()
        };
        match result {
            Ok(result) if failed(&result) => Ok(self.secrets.value(result)),
            result => result.map_err(|error| error.without(&self.secrets)),
        }
    }

    /// Waits for a turn, at most as long as a call may take.
    async fn permit(
        &self,
        cancel: Option<&CancelToken>,
    ) -> Result<tokio::sync::SemaphorePermit<'_>> {
        if let Ok(permit) = self.permits.try_acquire() {
            return Ok(permit);
        }
        let cancelled = async {
            match cancel {
                Some(cancel) => cancel.cancelled().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            permit = self.permits.acquire() => permit.map_err(|_| self.not_there("it was stopped")),
            () = cancelled => Err(Error::new(ErrorKind::Cancelled, self.config.name.clone(), "the call was cancelled")),
            () = self.world.sleep(self.config.call_limit) => {
                let limit = self.config.call_limit;
                let words = format!("{} calls are under way, and none ended within \
                    {limit:?}", self.config.max_concurrent);
                Err(Error::new(ErrorKind::Timeout, self.config.name.clone(), words))
            }
        }
    }

    fn bad(&self, words: &str) -> Error {
        Error::new(ErrorKind::Refused(-32_602), self.config.name.clone(), words)
    }
}

impl Transport {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Stdio(_) => "stdio",
            Self::Http(_) => "http",
            Self::Sse(_) => "sse",
            Self::InProcess(_) => "in-process",
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
