use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use levity_core::{Tool, ToolSource, World};
use levity_system::SystemWorld;
use tokio::sync::broadcast;
use tokio::task::JoinSet;

use crate::client::Asked;
use crate::event::{Events, ServerEvent};
use crate::host::{Elicitor, Sampler};
use crate::naming::Namer;
use crate::redact::Redactor;
use crate::server::{Phase, Server, ServerStatus, Shared};
use crate::{Error, ErrorKind, Result, ServerConfig};

/// How many events are kept for a listener that does not keep up; it misses older ones.
const EVENTS: usize = 1024;

/// Servers that are kept running, as a source of tools.
///
/// They start side by side, in the background. Dropped, all of them end at once, with every process
/// they started; [`stop`](Self::stop) lets them go in order.
///
/// ```no_run
/// use levity_mcp::{ServerConfig, Servers, WaitFor};
/// # async fn example() -> levity_mcp::Result<()> {
/// let servers = Servers::builder()
///     .server(ServerConfig::stdio("files", "mcp-server-filesystem").arg("."))
///     .server(ServerConfig::http("search", "https://example.com/mcp").header("Authorization", "Bearer .."))
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
    list: Vec<Arc<Shared>>,
    version: Arc<AtomicU64>,
    events: broadcast::Sender<ServerEvent>,
    tasks: tokio::sync::Mutex<JoinSet<()>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.list.iter().for_each(|server| server.kill());
    }
}

/// Which servers to wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitFor {
    /// All that are enabled.
    All,
    /// These.
    Named(Vec<String>),
    /// None: what is ready is there.
    None,
}

impl WaitFor {
    /// These servers.
    pub fn named(names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self::Named(names.into_iter().map(Into::into).collect())
    }
}

impl Servers {
    /// Begins with no servers.
    pub fn builder() -> ServersBuilder {
        ServersBuilder {
            world: Arc::new(SystemWorld),
            configs: Vec::new(),
            asked: Asked::default(),
        }
    }

    /// Waits until these servers are ready or have failed to start once, and says how they are. A
    /// name that no server has is left out.
    pub async fn wait(&self, wait: WaitFor) -> Vec<ServerStatus> {
        let wanted: Vec<_> = self
            .0
            .list
            .iter()
            .filter(|server| wait.wants(&server.config))
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

    /// How all servers are, in the order of their settings.
    pub fn status(&self) -> Vec<ServerStatus> {
        self.0.list.iter().map(|server| server.status()).collect()
    }

    /// A server by its name.
    pub fn get(&self, name: &str) -> Option<Server> {
        self.0
            .list
            .iter()
            .find(|server| &*server.config.name == name)
            .cloned()
            .map(Server)
    }

    /// All servers, in the order of their settings.
    pub fn all(&self) -> Vec<Server> {
        self.0.list.iter().cloned().map(Server).collect()
    }

    /// What happens from now on.
    pub fn events(&self) -> ServerEvents {
        ServerEvents(self.0.events.subscribe())
    }

    /// The tools of these servers alone, for an agent that should have no others.
    pub fn only(&self, names: impl IntoIterator<Item = impl Into<String>>) -> ServerSelection {
        ServerSelection {
            servers: self.clone(),
            names: names.into_iter().map(Into::into).collect(),
        }
    }

    /// Ends all servers in order, side by side, within some seconds; what does not go is killed.
    /// Calls that are under way fail.
    pub async fn stop(&self) {
        // Held to the end: who comes second waits until it is done.
        let mut tasks = self.0.tasks.lock().await;
        tasks.shutdown().await;
        futures_util::future::join_all(self.0.list.iter().map(|server| server.stop())).await;
    }

    /// Ends all servers at once.
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

    /// The server that has a tool.
    fn server_of(&self, tool: &str) -> Option<String> {
        let has = |server: &&Arc<Shared>| server.tools().list.iter().any(|own| own.name() == tool);
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
        let told = |server: &Arc<Shared>| {
            let name = server.config.name.clone();
            let problems = server.tools().problems;
            problems
                .iter()
                .map(|problem| format!("server `{name}`: {problem}"))
                .collect::<Vec<_>>()
        };
        servers.flat_map(told).collect()
    }
}

impl WaitFor {
    fn wants(&self, server: &ServerConfig) -> bool {
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

/// Some of the servers, as a source of tools.
#[derive(Clone, Debug)]
pub struct ServerSelection {
    servers: Servers,
    names: Vec<String>,
}

impl ServerSelection {
    fn wants(&self, name: &str) -> bool {
        self.names.iter().any(|named| named == name)
    }
}

impl ToolSource for ServerSelection {
    fn name(&self) -> &str {
        "mcp"
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.servers.tools_of(|name| self.wants(name))
    }

    fn version(&self) -> u64 {
        self.servers.version()
    }

    fn problems(&self) -> Vec<String> {
        self.servers.problems_of(|name| self.wants(name))
    }

    fn part(&self, tool: &str) -> Option<String> {
        self.servers
            .server_of(tool)
            .filter(|server| self.wants(server))
    }
}

/// What happens to servers, as it happens.
#[derive(Debug)]
pub struct ServerEvents(broadcast::Receiver<ServerEvent>);

impl ServerEvents {
    /// The next event; `None` when the servers are gone. Who is slow misses the older ones.
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

/// Collects what [`Servers`] are made of.
#[must_use = "a builder does nothing until `start`"]
pub struct ServersBuilder {
    world: Arc<dyn World>,
    configs: Vec<ServerConfig>,
    asked: Asked,
}

impl ServersBuilder {
    /// The clock that waits and time limits go by; the system's by default.
    pub fn world(mut self, world: impl World + 'static) -> Self {
        self.world = Arc::new(world);
        self
    }

    /// Adds a server.
    pub fn server(mut self, config: ServerConfig) -> Self {
        self.configs.push(config);
        self
    }

    /// Adds servers.
    pub fn servers(mut self, configs: impl IntoIterator<Item = ServerConfig>) -> Self {
        self.configs.extend(configs);
        self
    }

    /// Tells servers which folders they may work in, as `file://` addresses; none by default.
    pub fn roots(mut self, uris: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.asked.roots = uris.into_iter().map(Into::into).collect();
        self
    }

    /// Lets servers have a model reply to them; none does by default.
    pub fn sampler(mut self, sampler: impl Sampler + 'static) -> Self {
        self.asked.sampler = Some(Arc::new(sampler));
        self
    }

    /// Lets servers ask whoever sits before the program; nobody is asked by default.
    pub fn elicitor(mut self, elicitor: impl Elicitor + 'static) -> Self {
        self.asked.elicitor = Some(Arc::new(elicitor));
        self
    }

    /// Starts the servers in the background and returns at once.
    ///
    /// # Errors
    /// When two servers have one name, or there is no tokio runtime.
    pub fn start(self) -> Result<Servers> {
        let Self {
            world,
            configs,
            asked,
        } = self;
        for (place, config) in configs.iter().enumerate() {
            if configs[..place]
                .iter()
                .any(|other| other.name == config.name)
            {
                let words = "two servers have this name; rename one";
                return Err(Error::new(ErrorKind::Config, config.name.clone(), words));
            }
        }
        let handle = tokio::runtime::Handle::try_current().map_err(|_| {
            let words =
                "servers are started within a tokio runtime; use `levity_mcp::blocking` elsewhere";
            Error::new(ErrorKind::Config, "*", words)
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
            let asked = Asked {
                server: config.name.clone(),
                ..asked.clone()
            };
            Arc::new(Shared::new(
                config,
                world.clone(),
                to,
                asked,
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
