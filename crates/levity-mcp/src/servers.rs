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
    pub fn status(&self) -> Vec<ServerStatus> {
        self.0.list.iter().map(|server| server.status()).collect()
    }

    /// Returns the server with the given name.
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
    pub fn events(&self) -> ServerEvents {
        ServerEvents(self.0.events.subscribe())
    }

    /// Returns the tools of the named servers only, for an agent that must not have others.
    pub fn only(&self, names: impl IntoIterator<Item = impl Into<String>>) -> ServerSelection {
        ServerSelection {
            servers: self.clone(),
            names: names.into_iter().map(Into::into).collect(),
        }
    }

    /// Shuts down all servers gracefully and concurrently, within a few seconds. Processes that do
    /// not exit are killed, and running calls fail.
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
#[derive(Debug)]
pub struct ServerEvents(broadcast::Receiver<ServerEvent>);

impl ServerEvents {
    /// Waits for the next event. Returns `None` after the servers were dropped. A slow receiver
    /// misses older events.
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
#[must_use = "a builder does nothing until `start`"]
pub struct ServersBuilder {
    world: Arc<dyn World>,
    configs: Vec<ServerConfig>,
    host_services: HostServices,
}

impl ServersBuilder {
    /// Sets the clock for waits and timeouts; by default the system's.
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
    pub fn roots(mut self, uris: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.host_services.roots = uris.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the model that answers sampling requests of servers; none by default.
    pub fn sampler(mut self, sampler: impl Sampler + 'static) -> Self {
        self.host_services.sampler = Some(Arc::new(sampler));
        self
    }

    /// Sets the handler that asks the user on behalf of servers; none by default.
    pub fn elicitor(mut self, elicitor: impl Elicitor + 'static) -> Self {
        self.host_services.elicitor = Some(Arc::new(elicitor));
        self
    }

    /// Starts the servers in the background and returns immediately.
    ///
    /// # Errors
    /// Returns an error if two servers have the same name, or if there is no tokio runtime.
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
