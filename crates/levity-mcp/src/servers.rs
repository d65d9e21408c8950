//! A set of supervised servers, and its builder.
//!
//! Each enabled server has one supervisor task in a `JoinSet`. Nothing here waits for a server: the
//! tools of all servers are read from their last known lists, so a request to a model is never
//! delayed by a server that starts or hangs. One counter, `version`, changes with every list of
//! tools, so that an agent can tell cheaply if it must read the tools again.
//!
//! Dropping the last handle kills processes without waiting. Tools hold only a weak reference to
//! their server, so a tool that an agent still has does not keep a server alive.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use levity_core::{Tool, ToolSource, World};
use levity_system::SystemWorld;
use tokio::sync::broadcast;
use tokio::task::JoinSet;

use crate::client::HostServices;
use crate::event::{Events, ServerEvent};
use crate::host::{Elicitor, Sampler};
use crate::naming::Namer;
use crate::redact::Redactor;
use crate::server::{Phase, Server, ServerInner, ServerStatus};
use crate::{Error, ErrorKind, Result, ServerConfig};

/// The number of events that levity buffers for a slow receiver; the receiver misses older ones.
const EVENTS: usize = 1024;

/// A set of supervised servers, as a source of tools.
///
/// The servers start concurrently in the background. Dropping the last clone kills all servers at
/// once, with every process they started; [`stop`](Self::stop) shuts them down gracefully.
///
/// ```no_run
/// use levity_mcp::{ServerConfig, Servers, WaitFor};
/// # async fn example() -> levity_mcp::Result<()> {
/// let servers = Servers::builder()
///     .server(ServerConfig::stdio("files", "mcp-server-filesystem").arg("."))
///     .server(
///         ServerConfig::http("search", "https://example.com/mcp")
///             .header("Authorization", "Bearer .."),
///     )
///     .start()?;
/// servers.wait(WaitFor::All).await;
/// for status in servers.status() {
///     println!("{}: {}", status.name, status.state);
/// }
/// servers.stop().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Servers(Arc<Inner>);

struct Inner {
    list: Vec<Arc<ServerInner>>,
    version: Arc<AtomicU64>,
    events: broadcast::Sender<ServerEvent>,
    tasks: tokio::sync::Mutex<JoinSet<()>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.list.iter().for_each(|server| server.kill());
    }
}

/// The servers to wait for.
///
/// Waiting is optional: the tools of a server that becomes ready later appear in the next request
/// to the model.
///
/// ```
/// use levity_mcp::{ServerConfig, Servers, WaitFor};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> levity_mcp::Result<()> {
/// let files = ServerConfig::stdio("files", "mcp-server-filesystem").disabled();
/// let servers = Servers::builder().server(files).start()?;
/// assert!(servers.wait(WaitFor::All).await.is_empty(), "a disabled server is not awaited");
///
/// let status = servers.wait(WaitFor::named(["files", "unknown"])).await;
/// assert_eq!(status.len(), 1);
/// assert_eq!(status[0].state.to_string(), "disabled");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitFor {
    /// All servers that are enabled.
    All,
    /// The servers with these names.
    Named(Vec<String>),
    /// No servers: use those that are ready.
    None,
}

impl WaitFor {
    /// Waits for the servers with these names.
    pub fn named(names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self::Named(names.into_iter().map(Into::into).collect())
    }
}

impl Servers {
    /// Creates a builder without servers.
    pub fn builder() -> ServersBuilder {
        ServersBuilder {
            world: Arc::new(SystemWorld),
            configs: Vec::new(),
            host_services: HostServices::default(),
        }
    }

    /// Waits until the servers are ready or have failed to start once, and returns their status.
    /// Names without a server are ignored.
    ///
    /// The wait ends within the [start timeout](ServerConfig::start_timeout) of the slowest
    /// selected server. Look at [`ServerStatus::state`] to learn which servers are ready.
    pub async fn wait(&self, wait: WaitFor) -> Vec<ServerStatus> {
        let wanted: Vec<_> = self
            .0
            .list
            .iter()
            .filter(|server| wait.selects(&server.config))
            .collect();
        let started = wanted.iter().map(|server| async {
            let mut phase = server.phase.subscribe();
            let _ = phase
                .wait_for(|phase| !matches!(phase, Phase::Starting))
                .await;
        });
        futures_util::future::join_all(started).await;
        wanted.iter().map(|server| server.status()).collect()
    }

    /// Returns the status of all servers, in the order of their configuration.
    ///
    /// ```
    /// use levity_mcp::{ServerConfig, Servers};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_mcp::Result<()> {
    /// let servers = Servers::builder()
    ///     .server(ServerConfig::stdio("files", "mcp-files").disabled())
    ///     .server(ServerConfig::http("search", "https://example.com/mcp").disabled())
    ///     .start()?;
    /// let lines: Vec<_> = servers
    ///     .status()
    ///     .iter()
    ///     .map(|status| format!("{} ({}): {}", status.name, status.transport, status.state))
    ///     .collect();
    /// assert_eq!(lines, ["files (stdio): disabled", "search (http): disabled"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn status(&self) -> Vec<ServerStatus> {
        self.0.list.iter().map(|server| server.status()).collect()
    }

    /// Returns the server with the given name.
    ///
    /// ```
    /// use levity_mcp::{ServerConfig, Servers};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_mcp::Result<()> {
    /// let search = ServerConfig::http("search", "https://example.com/mcp").disabled();
    /// let servers = Servers::builder().server(search).start()?;
    /// assert!(servers.get("search").is_some(), "a disabled server has a handle too");
    /// assert!(servers.get("other").is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn get(&self, name: &str) -> Option<Server> {
        self.0
            .list
            .iter()
            .find(|server| &*server.config.name == name)
            .cloned()
            .map(Server)
    }

    /// Returns all servers, in the order of their configuration.
    pub fn all(&self) -> Vec<Server> {
        self.0.list.iter().cloned().map(Server).collect()
    }

    /// Returns the events that happen from now on.
    ///
    /// Subscribe directly after [`start`](ServersBuilder::start) to receive all of them: the
    /// servers start as tasks of the runtime, so on a current-thread runtime nothing happens before
    /// the next `await`.
    pub fn events(&self) -> ServerEvents {
        ServerEvents(self.0.events.subscribe())
    }

    /// Returns the tools of the named servers only, for an agent that must not have others.
    ///
    /// The selection follows the servers: their tools appear, change and disappear as in the whole
    /// set. A name without a server selects nothing.
    ///
    /// ```
    /// use levity_core::ToolSource as _;
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
    /// servers.wait(WaitFor::All).await;
    /// assert_eq!(servers.only(["clock"]).tools().len(), 1);
    /// assert!(servers.only(["files"]).tools().is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub fn only(&self, names: impl IntoIterator<Item = impl Into<String>>) -> ServerSelection {
        ServerSelection {
            servers: self.clone(),
            names: names.into_iter().map(Into::into).collect(),
        }
    }

    /// Shuts down all servers gracefully and concurrently, within a few seconds. Processes that do
    /// not exit are killed, and running calls fail.
    ///
    /// A server has 2 s to end its connection, and its process another 2 s to exit after its stdin
    /// is closed. Then it gets SIGTERM, and SIGKILL one second later. A stop is final:
    /// [`Server::restart`] does nothing afterwards.
    pub async fn stop(&self) {
        // The lock is held to the end, so that a second caller waits until the shutdown is
        // complete.
        let mut tasks = self.0.tasks.lock().await;
        tasks.shutdown().await;
        futures_util::future::join_all(self.0.list.iter().map(|server| server.stop())).await;
    }

    /// Kills all servers at once.
    pub(crate) fn kill(&self) {
        self.0.list.iter().for_each(|server| server.kill());
    }

    /// Returns the tools of the wanted servers. If two servers offer the same name, the first
    /// configured one wins.
    fn tools_of(&self, wanted: impl Fn(&str) -> bool) -> Vec<Arc<dyn Tool>> {
        let servers = self
            .0
            .list
            .iter()
            .filter(|server| wanted(&server.config.name));
        let mut seen = std::collections::HashSet::new();
        let tools = servers.flat_map(|server| server.tools().list.to_vec());
        tools
            .filter(|tool| seen.insert(tool.name().to_owned()))
            .map(|tool| tool as Arc<dyn Tool>)
            .collect()
    }

    /// Returns the name of the server that has a tool.
    fn server_of(&self, tool: &str) -> Option<String> {
        let has =
            |server: &&Arc<ServerInner>| server.tools().list.iter().any(|own| own.name() == tool);
        self.0
            .list
            .iter()
            .find(has)
            .map(|server| server.config.name.to_string())
    }

    /// Returns the problems with definitions of tools, each with the name of its server.
    fn problems_of(&self, wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let servers = self
            .0
            .list
            .iter()
            .filter(|server| wanted(&server.config.name));
        let describe = |server: &Arc<ServerInner>| {
            let name = server.config.name.clone();
            let problems = server.tools().problems;
            problems
                .iter()
                .map(|problem| format!("server `{name}`: {problem}"))
                .collect::<Vec<_>>()
        };
        servers.flat_map(describe).collect()
    }
}

impl WaitFor {
    /// Returns `true` if the wait includes this server.
    fn selects(&self, server: &ServerConfig) -> bool {
        match self {
            Self::All => server.enabled,
            Self::Named(names) => names.iter().any(|named| **named == *server.name),
            Self::None => false,
        }
    }
}

impl ToolSource for Servers {
    fn name(&self) -> &str {
        "mcp"
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.tools_of(|_| true)
    }

    fn version(&self) -> u64 {
        self.0.version.load(Ordering::Acquire)
    }

    fn problems(&self) -> Vec<String> {
        self.problems_of(|_| true)
    }

    fn part(&self, tool: &str) -> Option<String> {
        self.server_of(tool)
    }
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Servers").field(&self.all()).finish()
    }
}

/// A selection of the servers, as a source of tools.
///
/// [`Servers::only`] creates it. It has the version of the whole set, so an agent may read its
/// tools again although only another server changed.
#[derive(Clone, Debug)]
pub struct ServerSelection {
    servers: Servers,
    names: Vec<String>,
}

impl ServerSelection {
    fn selects(&self, name: &str) -> bool {
        self.names.iter().any(|named| named == name)
    }
}

impl ToolSource for ServerSelection {
    fn name(&self) -> &str {
        "mcp"
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.servers.tools_of(|name| self.selects(name))
    }

    fn version(&self) -> u64 {
        self.servers.version()
    }

    fn problems(&self) -> Vec<String> {
        self.servers.problems_of(|name| self.selects(name))
    }

    fn part(&self, tool: &str) -> Option<String> {
        self.servers
            .server_of(tool)
            .filter(|server| self.selects(server))
    }
}

/// A receiver of server events.
///
/// levity buffers the last 1,024 events of all servers for it.
///
/// ```
/// use levity_mcp::{ServerEventKind, Servers};
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
/// let mut events = servers.events();
/// while let Some(event) = events.next().await {
///     if let ServerEventKind::Ready { tools } = event.kind {
///         assert_eq!((&*event.server, tools), ("clock", 1));
///         break;
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ServerEvents(broadcast::Receiver<ServerEvent>);

impl ServerEvents {
    /// Waits for the next event. Returns `None` after the servers were dropped. A slow receiver
    /// misses older events.
    ///
    /// Dropping the future loses no event.
    pub async fn next(&mut self) -> Option<ServerEvent> {
        loop {
            match self.0.recv().await {
                Ok(event) => return Some(event),
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}

/// A builder of a set of [`Servers`].
///
/// ```
/// use levity_mcp::{Decline, ErrorKind, ServerConfig, Servers};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let server = || ServerConfig::stdio("files", "mcp-server-filesystem").disabled();
/// let builder = Servers::builder()
///     .server(server())
///     .roots(["file:///srv/docs"])
///     .elicitor(Decline);
/// assert!(builder.start().is_ok());
///
/// let twice = Servers::builder().servers([server(), server()]).start();
/// assert_eq!(twice.map_err(|error| error.kind()).unwrap_err(), ErrorKind::Config);
/// # }
/// ```
#[must_use = "a builder does nothing until `start`"]
pub struct ServersBuilder {
    world: Arc<dyn World>,
    configs: Vec<ServerConfig>,
    host_services: HostServices,
}

impl ServersBuilder {
    /// Sets the clock for waits and timeouts; by default the system's.
    ///
    /// Every timeout, delay and ping of the servers uses this clock. With a manual clock, a test
    /// controls restarts and timeouts without waiting.
    pub fn world(mut self, world: impl World + 'static) -> Self {
        self.world = Arc::new(world);
        self
    }

    /// Adds a server to start.
    pub fn server(mut self, config: ServerConfig) -> Self {
        self.configs.push(config);
        self
    }

    /// Adds several servers to start.
    pub fn servers(mut self, configs: impl IntoIterator<Item = ServerConfig>) -> Self {
        self.configs.extend(configs);
        self
    }

    /// Sets the folders that servers may work in, as `file://` URIs; none by default. levity sends
    /// them to every server.
    ///
    /// Roots are a hint to the server and no sandbox: a server process can read every file that its
    /// user can read.
    pub fn roots(mut self, uris: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.host_services.roots = uris.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the model that answers sampling requests of servers; none by default.
    ///
    /// levity announces the ability to servers only if a sampler is set. A request without one is
    /// refused.
    pub fn sampler(mut self, sampler: impl Sampler + 'static) -> Self {
        self.host_services.sampler = Some(Arc::new(sampler));
        self
    }

    /// Sets the handler that asks the user on behalf of servers; none by default.
    ///
    /// levity announces the ability to servers only if an elicitor is set. Requests without one are
    /// declined.
    pub fn elicitor(mut self, elicitor: impl Elicitor + 'static) -> Self {
        self.host_services.elicitor = Some(Arc::new(elicitor));
        self
    }

    /// Starts the servers in the background and returns immediately.
    ///
    /// A server that cannot start is no error here: its [status](ServerStatus) and an
    /// [event](crate::ServerEventKind::Unavailable) report it, and levity retries.
    ///
    /// # Errors
    /// Returns an error of the kind [`Config`](ErrorKind::Config) if two servers have the same
    /// name, or if there is no tokio runtime.
    pub fn start(self) -> Result<Servers> {
        let Self {
            world,
            configs,
            host_services,
        } = self;
        for (place, config) in configs.iter().enumerate() {
            if configs[..place]
                .iter()
                .any(|other| other.name == config.name)
            {
                let message = "two servers have this name; rename one of them";
                return Err(Error::new(ErrorKind::Config, config.name.clone(), message));
            }
        }
        let handle = tokio::runtime::Handle::try_current().map_err(|_| {
            let message =
                "cannot start servers outside a tokio runtime; use `levity_mcp::blocking` there";
            Error::new(ErrorKind::Config, "*", message)
        })?;
        let (events, _) = broadcast::channel(EVENTS);
        let version = Arc::new(AtomicU64::new(0));
        let namers = Namer::all(&configs);
        let share = |(config, namer): (ServerConfig, Namer)| {
            let to = Events::new(
                config.name.clone(),
                events.clone(),
                Redactor::new(config.secrets()),
            );
            let host_services = HostServices {
                server: config.name.clone(),
                ..host_services.clone()
            };
            Arc::new(ServerInner::new(
                config,
                world.clone(),
                to,
                host_services,
                namer,
                version.clone(),
            ))
        };
        let list: Vec<_> = configs.into_iter().zip(namers).map(share).collect();
        let mut tasks = JoinSet::new();
        for server in list.iter().filter(|server| server.config.enabled) {
            tasks.spawn_on(server.clone().supervise(), &handle);
        }
        Ok(Servers(Arc::new(Inner {
            list,
            version,
            events,
            tasks: tokio::sync::Mutex::new(tasks),
        })))
    }
}

impl fmt::Debug for ServersBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServersBuilder")
            .field("servers", &self.configs)
            .finish_non_exhaustive()
    }
}
