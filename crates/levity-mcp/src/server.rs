//! One server: its handle, its state and its tool calls.
//!
//! `ServerInner` is shared by the handles, the tools and one supervisor task (`supervise`). The
//! supervisor alone changes the phase, except for a stop, which is final. Callers only read the
//! phase and wait on it. A call goes through three gates: a permit (at most `max_concurrent`
//! calls), the connection (a call waits up to 5 s for a server that is starting), and the timeouts
//! of the request.
//!
//! The last list of tools stays while the server is away. A model may then still call a tool, and
//! gets an error that says when the server restarts.

#[cfg(feature = "http")]
mod http;
mod listen;
mod open;
mod requests;
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

use crate::client::{Client, Era, HostServices, RequestLimits, ToolCall};
use crate::config::Transport;
use crate::event::Events;
use crate::link::ServerProcess;
use crate::naming::Namer;
use crate::redact::Redactor;
use crate::tool::McpTool;
use crate::{Error, ErrorKind, Result, ServerConfig};

/// The maximum time that a call waits for a server that is starting.
const START_WAIT: Duration = Duration::from_secs(5);

/// A handle of one server; cheap to clone.
///
/// The server runs as long as the [`Servers`](crate::Servers) it belongs to.
///
/// ```
/// use levity_mcp::{Servers, WaitFor};
/// use serde_json::json;
///
/// # fn clock() -> levity_mcp::ServerConfig {
/// #     use serde_json::{Value, json};
/// #     use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
/// #     let serve = |pipe: tokio::io::DuplexStream| async move {
/// #         let (mut pipe, mut line) = (BufReader::new(pipe), String::new());
/// #         while pipe.read_line(&mut line).await.is_ok_and(|read| read > 0) {
/// #             let ask: Value = serde_json::from_str(&line).unwrap_or_default();
/// #             let answer = json!({"jsonrpc": "2.0", "id": ask["id"], "result": {
/// #                 "protocolVersion": "2025-11-25",
/// #                 "serverInfo": {"name": "clock", "version": "1"},
/// #                 "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
/// #                 "tools": [{"name": "now"}],
/// #                 "content": [{"type": "text", "text": "noon"}],
/// #             }});
/// #             let _ = pipe.write_all(format!("{answer}\n").as_bytes()).await;
/// #             line.clear();
/// #         }
/// #     };
/// #     levity_mcp::ServerConfig::in_process("clock", move || {
/// #         let (client, server) = tokio::io::duplex(1 << 16);
/// #         tokio::spawn(serve(server));
/// #         client
/// #     })
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> levity_mcp::Result<()> {
/// let servers = Servers::builder().server(clock()).start()?;
/// servers.wait(WaitFor::All).await;
/// let clock = servers.get("clock").expect("it is configured");
/// assert_eq!(clock.call("now", json!({})).await?.as_text(), "noon");
/// servers.stop().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Server(pub(crate) Arc<ServerInner>);

/// The state that a server's handle, its tools and its supervisor task share.
pub(crate) struct ServerInner {
    pub(crate) config: ServerConfig,
    /// Masks secrets of the settings and the login that the server may repeat.
    pub(crate) secrets: Redactor,
    pub(crate) world: Arc<dyn World>,
    pub(crate) events: Events,
    pub(crate) host_services: HostServices,
    pub(crate) namer: Namer,
    pub(crate) phase: watch::Sender<Phase>,
    pub(crate) tools: Mutex<Tools>,
    /// Counts the changes to the tools of all servers.
    pub(crate) version: Arc<AtomicU64>,
    permits: Semaphore,
    era: Mutex<Option<Era>>,
    process: Mutex<Option<Arc<dyn ServerProcess>>>,
    tools_changed: Arc<Notify>,
    /// Notifies that a caller needs a server that levity stopped trying to start.
    retry_requested: Notify,
    /// Notifies that a caller requested a restart.
    restart_requested: Notify,
    /// Notifies that a call got no response, so the server may hang.
    check_requested: Notify,
    starts: AtomicU32,
    /// The login, which persists across restarts.
    #[cfg(feature = "http")]
    login: Option<Arc<dyn crate::link::authorize::Authorize>>,
    /// The resources that a caller subscribed to.
    subscribed: Mutex<BTreeSet<String>>,
    /// Notifies that the subscriptions of the stream of changes have changed.
    subscriptions_changed: Notify,
}

/// The tools of a server, and the definitions that could not become tools.
#[derive(Clone, Default)]
pub(crate) struct Tools {
    pub(crate) list: Arc<[Arc<McpTool>]>,
    pub(crate) problems: Arc<[String]>,
}

/// The phase of a server's life cycle, with the connection while it is ready.
///
/// `Away` has the error that ended the last connection or start, and the time of the next start.
/// Without a time, levity has given up until a caller asks for the server.
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

/// The status of a server.
///
/// The status is a copy of one moment. `implementation`, `protocol` and `instructions` are known
/// only while the server is ready; they are the server's words and untrusted.
///
/// ```
/// use levity_mcp::{Servers, WaitFor};
///
/// # fn clock() -> levity_mcp::ServerConfig {
/// #     use serde_json::{Value, json};
/// #     use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
/// #     let serve = |pipe: tokio::io::DuplexStream| async move {
/// #         let (mut pipe, mut line) = (BufReader::new(pipe), String::new());
/// #         while pipe.read_line(&mut line).await.is_ok_and(|read| read > 0) {
/// #             let ask: Value = serde_json::from_str(&line).unwrap_or_default();
/// #             let answer = json!({"jsonrpc": "2.0", "id": ask["id"], "result": {
/// #                 "protocolVersion": "2025-11-25",
/// #                 "serverInfo": {"name": "clock", "version": "1"},
/// #                 "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
/// #                 "tools": [{"name": "now"}],
/// #                 "content": [{"type": "text", "text": "noon"}],
/// #             }});
/// #             let _ = pipe.write_all(format!("{answer}\n").as_bytes()).await;
/// #             line.clear();
/// #         }
/// #     };
/// #     levity_mcp::ServerConfig::in_process("clock", move || {
/// #         let (client, server) = tokio::io::duplex(1 << 16);
/// #         tokio::spawn(serve(server));
/// #         client
/// #     })
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> levity_mcp::Result<()> {
/// let servers = Servers::builder().server(clock()).start()?;
/// let status = servers.wait(WaitFor::All).await;
/// assert_eq!((status[0].tools, status[0].starts), (1, 1));
/// assert_eq!(status[0].implementation.as_deref(), Some("clock 1"));
/// assert_eq!(status[0].protocol.as_deref(), Some("2025-11-25"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerStatus {
    /// The name of the server.
    pub name: Arc<str>,
    /// The transport: `stdio`, `http`, `sse` or `in-process`.
    pub transport: &'static str,
    /// The phase of the life cycle.
    pub state: ServerState,
    /// The name and the version that the server reports for itself.
    pub implementation: Option<String>,
    /// The version of the protocol in use.
    pub protocol: Option<String>,
    /// The server's instructions on how to use it.
    pub instructions: Option<String>,
    /// The number of tools that the server offers.
    pub tools: usize,
    /// The approximate number of tokens for the names, descriptions and schemas of its tools.
    pub tokens: u64,
    /// The number of times the server was started.
    pub starts: u32,
    /// The reasons why definitions of the server could not become tools.
    pub problems: Vec<String>,
}

/// The phase of a server's life cycle.
///
/// ```
/// use levity_mcp::{ServerConfig, ServerState, Servers, WaitFor};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> levity_mcp::Result<()> {
/// let gone = ServerConfig::stdio("gone", "no-such-program").retries(0);
/// let servers = Servers::builder().server(gone).start()?;
/// let state = servers.wait(WaitFor::All).await.remove(0).state;
/// assert_eq!(state.to_string(), "away, restarts on the next request");
/// let ServerState::Unavailable { error, .. } = state else {
///     panic!("the program does not exist");
/// };
/// assert!(error.message().contains("`no-such-program` was not found in `PATH`"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ServerState {
    /// The configuration disables the server.
    Disabled,
    /// The server is starting.
    Starting,
    /// The server is ready for requests.
    Ready,
    /// The server is unavailable; calls fail until it is ready again.
    Unavailable {
        /// The reason why the server is unavailable.
        error: Error,
        /// The time until the next start; `None` if levity waits for the next request to try again.
        retry_after: Option<Duration>,
    },
    /// The server was stopped.
    Stopped,
}

impl ServerState {
    /// Returns `true` if the server is ready for requests.
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
            Self::Unavailable {
                retry_after: Some(time),
                ..
            } => write!(f, "away, restarts in {time:?}"),
            Self::Unavailable {
                retry_after: None, ..
            } => f.write_str("away, restarts on the next request"),
            Self::Stopped => f.write_str("stopped"),
        }
    }
}

impl Server {
    /// Returns the name of the server.
    pub fn name(&self) -> &str {
        &self.0.config.name
    }

    /// Returns the current status of the server.
    pub fn status(&self) -> ServerStatus {
        self.0.status()
    }

    /// Returns the server's tools as an agent sees them.
    ///
    /// The list is the last one that levity received; it is empty before the first start and stays
    /// while the server restarts.
    pub fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.0
            .tools()
            .list
            .iter()
            .map(|tool| tool.clone() as Arc<dyn Tool>)
            .collect()
    }

    /// Returns the schema of a tool's arguments exactly as the server sent it.
    ///
    /// `tool` is either the name that the server gave the tool or the name that models see.
    ///
    /// [`ToolSpec::input`](levity_core::ToolSpec::input) accepts the same values but leaves out
    /// keywords that a model does not need, such as `$schema`.
    ///
    /// ```
    /// use levity_mcp::{Servers, WaitFor};
    ///
    /// # fn clock() -> levity_mcp::ServerConfig {
    /// #     use serde_json::{Value, json};
    /// #     use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    /// #     let serve = |pipe: tokio::io::DuplexStream| async move {
    /// #         let (mut pipe, mut line) = (BufReader::new(pipe), String::new());
    /// #         while pipe.read_line(&mut line).await.is_ok_and(|read| read > 0) {
    /// #             let ask: Value = serde_json::from_str(&line).unwrap_or_default();
    /// #             let answer = json!({"jsonrpc": "2.0", "id": ask["id"], "result": {
    /// #                 "protocolVersion": "2025-11-25",
    /// #                 "serverInfo": {"name": "clock", "version": "1"},
    /// #                 "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
    /// #                 "tools": [{"name": "now", "inputSchema": {
    /// #                     "type": "object", "$comment": "nothing",
    /// #                 }}],
    /// #             }});
    /// #             let _ = pipe.write_all(format!("{answer}\n").as_bytes()).await;
    /// #             line.clear();
    /// #         }
    /// #     };
    /// #     levity_mcp::ServerConfig::in_process("clock", move || {
    /// #         let (client, server) = tokio::io::duplex(1 << 16);
    /// #         tokio::spawn(serve(server));
    /// #         client
    /// #     })
    /// # }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_mcp::Result<()> {
    /// let servers = Servers::builder().server(clock()).start()?;
    /// servers.wait(WaitFor::All).await;
    /// let clock = servers.get("clock").expect("it is configured");
    /// let schema = clock.input_schema("now").expect("it has this tool");
    /// assert_eq!(schema["$comment"], "nothing");
    /// assert_eq!(clock.tools()[0].spec().input.get("$comment"), None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn input_schema(&self, tool: &str) -> Option<Value> {
        self.0
            .find(tool)
            .map(|tool| Value::Object(tool.schema().clone()))
    }

    /// Calls a tool by the name that the server gave it or by the name that models see.
    ///
    /// A tool that is not in the list is called nevertheless, unless the configuration excludes it,
    /// because a server may have tools that it does not list. Dropping the future cancels the call
    /// on the server.
    ///
    /// # Errors
    /// - [`Unavailable`](ErrorKind::Unavailable) if the server is not ready within 5 s, disabled or
    ///   stopped;
    /// - [`Timeout`](ErrorKind::Timeout) after the [call timeout](ServerConfig::call_timeout), or
    ///   after the [idle timeout](ServerConfig::idle_timeout) without progress;
    /// - [`Closed`](ErrorKind::Closed) if the connection ends; the server may have performed the
    ///   call;
    /// - [`Rejected`](ErrorKind::Rejected) with the code of the server, with -32602 if `args` is
    ///   neither an object nor null, or with 0 if the tool reports its own failure;
    /// - [`Unsupported`](ErrorKind::Unsupported) if its configuration excludes the tool;
    /// - [`TooLarge`](ErrorKind::TooLarge) or [`Protocol`](ErrorKind::Protocol) if the response is
    ///   not acceptable.
    ///
    /// ```
    /// use levity_mcp::{ErrorKind, ServerConfig, Servers};
    /// use serde_json::json;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_mcp::Result<()> {
    /// let files = ServerConfig::stdio("files", "mcp-files").disabled();
    /// let servers = Servers::builder().server(files).start()?;
    /// let files = servers.get("files").expect("it is configured");
    /// let error = files.call("read", json!({"path": "a.txt"})).await.unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Unavailable);
    /// assert_eq!(error.to_string(), "MCP server `files`: its configuration disables it");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn call(&self, tool: &str, args: Value) -> Result<ToolOutput> {
        let cx = ToolCx::detached();
        self.0.call(tool, args, &cx).await
    }

    /// Works like [`call`](Self::call), with progress and cancellation through `cx`.
    ///
    /// # Errors
    /// Returns the errors of [`call`](Self::call), and [`Cancelled`](ErrorKind::Cancelled) if the
    /// call was cancelled.
    ///
    /// ```
    /// use levity_core::ToolCx;
    /// use levity_mcp::{ErrorKind, Servers, WaitFor};
    /// use serde_json::json;
    ///
    /// # fn clock() -> levity_mcp::ServerConfig {
    /// #     use serde_json::{Value, json};
    /// #     use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    /// #     let serve = |pipe: tokio::io::DuplexStream| async move {
    /// #         let (mut pipe, mut line) = (BufReader::new(pipe), String::new());
    /// #         while pipe.read_line(&mut line).await.is_ok_and(|read| read > 0) {
    /// #             let ask: Value = serde_json::from_str(&line).unwrap_or_default();
    /// #             let answer = json!({"jsonrpc": "2.0", "id": ask["id"], "result": {
    /// #                 "protocolVersion": "2025-11-25",
    /// #                 "serverInfo": {"name": "clock", "version": "1"},
    /// #                 "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
    /// #                 "tools": [{"name": "now"}],
    /// #                 "content": [{"type": "text", "text": "noon"}],
    /// #             }});
    /// #             let _ = pipe.write_all(format!("{answer}\n").as_bytes()).await;
    /// #             line.clear();
    /// #         }
    /// #     };
    /// #     levity_mcp::ServerConfig::in_process("clock", move || {
    /// #         let (client, server) = tokio::io::duplex(1 << 16);
    /// #         tokio::spawn(serve(server));
    /// #         client
    /// #     })
    /// # }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_mcp::Result<()> {
    /// let servers = Servers::builder().server(clock()).start()?;
    /// servers.wait(WaitFor::All).await;
    /// let clock = servers.get("clock").expect("it is configured");
    /// let cx = ToolCx::detached();
    /// assert!(clock.call_with("now", json!({}), &cx).await.is_ok());
    /// cx.cancel.cancel();
    /// let error = clock.call_with("now", json!({}), &cx).await.unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Cancelled);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn call_with(&self, tool: &str, args: Value, cx: &ToolCx) -> Result<ToolOutput> {
        self.0.call(tool, args, cx).await
    }

    /// Restarts the server in any state; running calls fail.
    ///
    /// The function returns at once. A server that is away starts without its delay. A disabled or
    /// stopped server stays as it is.
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

impl ServerInner {
    /// Creates the shared state; the server is not started. The clock stops during a login, if the
    /// server has one.
    pub(crate) fn new(
        config: ServerConfig,
        world: Arc<dyn World>,
        events: Events,
        host_services: HostServices,
        namer: Namer,
        version: Arc<AtomicU64>,
    ) -> Self {
        #[cfg(feature = "oauth")]
        let (login, world) = crate::auth::login_for(&config, world, events.secrets());
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
            host_services,
            namer,
            phase: watch::Sender::new(phase),
            tools: Mutex::default(),
            version,
            era: Mutex::default(),
            process: Mutex::default(),
            tools_changed: Arc::default(),
            retry_requested: Notify::new(),
            restart_requested: Notify::new(),
            check_requested: Notify::new(),
            starts: AtomicU32::new(0),
            #[cfg(feature = "oauth")]
            login,
            #[cfg(all(feature = "http", not(feature = "oauth")))]
            login: None,
            subscribed: Mutex::default(),
            subscriptions_changed: Notify::new(),
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
                ServerState::Unavailable {
                    error: error.clone(),
                    retry_after: retry,
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
        let implementation = info.and_then(|info| info.server_info.as_ref());
        ServerStatus {
            name: self.config.name.clone(),
            transport: self.config.transport.name(),
            state: self.state(),
            implementation: implementation.map(|own| format!("{} {}", own.name, own.version)),
            protocol: info.map(|info| info.protocol_version.to_string()),
            instructions: info.and_then(|info| info.instructions.clone()),
            tools: tools.list.len(),
            tokens: tools.list.iter().map(|tool| tool.tokens()).sum(),
            starts: self.starts.load(Ordering::Relaxed),
            problems: tools.problems.to_vec(),
        }
    }

    /// Returns the connection; waits briefly for a server that is starting.
    pub(crate) async fn client(&self) -> Result<Arc<Client>> {
        let mut phase = self.phase.subscribe();
        // levity cleans up after a server before it counts as unavailable. A call in the meantime
        // would seem to have been sent.
        let is_settled = |phase: &Phase| match phase {
            Phase::Starting => false,
            Phase::Ready(client) => !client.has_ended(),
            _ => true,
        };
        if !is_settled(&phase.borrow()) {
            let settled = phase.wait_for(is_settled);
            tokio::select! {
                _ = settled => {}
                () = self.world.sleep(START_WAIT.min(self.config.start_timeout)) => {}
            }
        }
        let now = phase.borrow().clone();
        match now {
            Phase::Ready(client) => Ok(client),
            Phase::Away { error, retry } => Err(self.unavailable_error(&error, retry)),
            Phase::Starting => Err(self.unavailable("it is still starting; try again in a moment")),
            Phase::Disabled => Err(self.unavailable("its configuration disables it")),
            Phase::Stopped => Err(self.unavailable("it was stopped")),
        }
    }

    /// Creates the error of a call that was not sent.
    fn unavailable(&self, message: &str) -> Error {
        Error::new(ErrorKind::Unavailable, self.config.name.clone(), message)
    }

    /// Creates the error of a call to a server that is away. If levity has given up, the call also
    /// requests another start, so that the next call may succeed.
    fn unavailable_error(&self, error: &Error, retry: Option<Timestamp>) -> Error {
        let reason = error.message();
        let message = match retry {
            Some(at) => format!(
                "it is unavailable and restarts in {:?}: {reason}",
                at.since(self.world.now())
            ),
            None => {
                self.retry_requested.notify_one();
                format!("it failed to start too often and is now restarted once more: {reason}")
            }
        };
        let unavailable = Error::new(ErrorKind::Unavailable, self.config.name.clone(), message);
        match error.exit() {
            Some(death) => unavailable.with_exit(death.clone()),
            None => unavailable,
        }
    }

    /// Returns the tool with this name on the server, or otherwise the one that models see by this
    /// name.
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
        let as_task = found.as_ref().is_some_and(|tool| tool.requires_task());
        if found.is_none() && !self.allows_tool(tool) {
            let message = format!(
                "its configuration excludes `{}`; see `allow` and `deny`",
                crate::text::truncate(tool, 128)
            );
            return Err(Error::new(
                ErrorKind::Unsupported,
                self.config.name.clone(),
                message,
            ));
        }
        // A tool that is not in the list may exist nevertheless, so the server decides.
        let tool = found.as_ref().map_or(tool, |tool| tool.original());
        let result = self
            .call_raw(tool, args, as_task, cx.progress.clone(), Some(&cx.cancel))
            .await?;
        crate::convert::output(result).map_err(|error| {
            Error::new(
                ErrorKind::Rejected(0),
                self.config.name.clone(),
                format!("`{tool}` failed: {}", error.explain()),
            )
        })
    }

    /// Calls a tool and returns the result as the server wrote it.
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
            _ => return Err(self.invalid_arguments("the arguments of a tool must be an object")),
        };
        let _permit = self.permit(cancel).await?;
        let client = self.client().await?;
        let call = ToolCall {
            name: tool.to_owned(),
            arguments,
            as_task,
        };
        let limits = RequestLimits {
            progress,
            cancel,
            ..self.limits()
        };
        let result = client.call_tool(call, &limits).await;
        if result.as_ref().is_err_and(Error::suggests_dead_server) {
            self.check_requested.notify_one();
        }
        let failed = |result: &Value| {
            result
                .get("isError")
                .and_then(Value::as_bool)
                .unwrap_or_default()
        };
        match result {
            Ok(result) if failed(&result) => Ok(self.secrets.value(result)),
            result => result.map_err(|error| error.redacted(&self.secrets)),
        }
    }

    /// Waits for a free slot, at most for the timeout of a call.
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
            permit = self.permits.acquire() => {
                permit.map_err(|_| self.unavailable("it was stopped"))
            }
            () = cancelled => {
                Err(Error::new(
                    ErrorKind::Cancelled,
                    self.config.name.clone(),
                    "the call was cancelled",
                ))
            }
            () = self.world.sleep(self.config.call_timeout) => {
                let limit = self.config.call_timeout;
                let message = format!("{} calls are running, and none finished within \
                    {limit:?}", self.config.max_concurrent);
                Err(Error::new(ErrorKind::Timeout, self.config.name.clone(), message))
            }
        }
    }

    /// Creates the error that a server would send for invalid parameters.
    fn invalid_arguments(&self, message: &str) -> Error {
        Error::new(
            ErrorKind::Rejected(-32_602),
            self.config.name.clone(),
            message,
        )
    }
}

impl Transport {
    /// Returns the name of the transport in the status of a server.
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
