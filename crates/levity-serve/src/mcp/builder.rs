//! Builds a server and finds contradictions: duplicate names, invalid schemas, limits of zero.
//!
//! Capabilities are derived from what was added, so a server never announces a method that it does
//! not have.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use levity_core::text::chain;
use levity_core::{Tool, ToolSource, Toolbox, World};
use levity_rpc::mcp::{Implementation, ServerCapabilities, ServerConfig, TASKS_EXTENSION_ID};
use levity_runtime::SystemWorld;
use levity_tools::{ArgumentValidator, Dispatcher, Policy, Registry, RegistryBuilder};
use serde_json::json;

use super::paused_calls::PausedCalls;
use super::seal::Seal;
use super::server::{Inner, Offer};
use super::tasks::Tasks;
use super::{Changes, Completer, Handler, McpLimits, McpServer, Prompts, Resources, TaskSupport};
use crate::error::{Error, Result};
use crate::quota::{Quota, TokenShare};

/// A builder for an [`McpServer`].
///
/// ```
/// use levity_core::ToolOutput;
/// use levity_serve::mcp::{McpLimits, McpServer};
/// use levity_test::RecordingTool;
/// use std::time::Duration;
///
/// let add = RecordingTool::new("add", |_| Ok(ToolOutput::text("3")));
/// let server = McpServer::builder("calculator", "1.0")
///     .title("Calculator")
///     .instructions("Use `add` for sums.")
///     .tool(add)
///     .limits(McpLimits::default().tool(Duration::from_secs(10)))
///     .build()?;
/// assert!(format!("{server:?}").contains("calculator"));
/// # Ok::<(), levity_serve::Error>(())
/// ```
#[must_use = "a builder does nothing until `build`"]
pub struct McpServerBuilder {
    name: String,
    version: String,
    title: Option<String>,
    instructions: Option<String>,
    registry: RegistryBuilder,
    has_tools: bool,
    has_sources: bool,
    policy: Policy,
    offers: Vec<Arc<dyn Handler>>,
    resources: Vec<Arc<dyn Resources>>,
    prompts: Vec<Arc<dyn Prompts>>,
    completer: Option<Arc<dyn Completer>>,
    changes: Changes,
    limits: McpLimits,
    world: Arc<dyn World>,
}

impl McpServerBuilder {
    pub(super) fn new(name: String, version: String) -> Self {
        Self {
            name,
            version,
            title: None,
            instructions: None,
            registry: Registry::builder(),
            has_tools: false,
            has_sources: false,
            // The caller has its own policy and can ask its user.
            policy: Policy::allow_all(),
            offers: Vec::new(),
            resources: Vec::new(),
            prompts: Vec::new(),
            completer: None,
            changes: Changes::new(),
            limits: McpLimits::default(),
            world: Arc::new(SystemWorld),
        }
    }

    /// Sets the title of the server, for people.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Sets instructions for the model that uses the server.
    ///
    /// Clients may add them to the system prompt, so keep them short.
    pub fn instructions(mut self, instructions: impl Into<String>) -> Self {
        self.instructions = Some(instructions.into());
        self
    }

    /// Adds a tool. Its schemas are sent without parts that some model providers reject.
    pub fn tool(mut self, tool: impl Tool + 'static) -> Self {
        self.registry = self.registry.tool(tool);
        self.has_tools = true;
        self
    }

    /// Adds all tools of a toolbox.
    ///
    /// ```
    /// use levity_serve::Token;
    /// use levity_serve::bridge::{BridgeClient, BridgeTools};
    /// use levity_serve::mcp::McpServer;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = BridgeClient::new("ws://127.0.0.1:8888", Token::generate()?)?;
    /// let server = McpServer::builder("bridge", "1.0").tools(BridgeTools::new(client)).build()?;
    /// # drop(server);
    /// # Ok(())
    /// # }
    /// ```
    pub fn tools(mut self, tools: impl Toolbox) -> Self {
        self.registry = self.registry.tools(tools);
        self.has_tools = true;
        self
    }

    /// Adds a source of tools that may change; clients are notified within a second.
    ///
    /// Sources are polled once per second, but only while a client listens for changes.
    pub fn source(mut self, source: impl ToolSource + 'static) -> Self {
        self.registry = self.registry.source(source);
        (self.has_tools, self.has_sources) = (true, true);
        self
    }

    /// Adds a tool that talks to its client. Its schemas are sent unchanged.
    pub fn handler(mut self, handler: impl Handler + 'static) -> Self {
        self.offers.push(Arc::new(handler));
        self
    }

    /// Adds resources. Several providers are listed one after the other.
    pub fn resources(mut self, resources: impl Resources + 'static) -> Self {
        self.resources.push(Arc::new(resources));
        self
    }

    /// Adds prompts. Several providers are listed one after the other.
    pub fn prompts(mut self, prompts: impl Prompts + 'static) -> Self {
        self.prompts.push(Arc::new(prompts));
        self
    }

    /// Sets the completer, which proposes values while a user types them.
    pub fn completions(mut self, completer: impl Completer + 'static) -> Self {
        self.completer = Some(Arc::new(completer));
        self
    }

    /// Sets the policy for the tools that [`tool`](Self::tool), [`tools`](Self::tools) and
    /// [`source`](Self::source) added; everything is allowed by default. If the policy requires
    /// approval, the server asks the client's user.
    ///
    /// ```
    /// use levity_core::ToolOutput;
    /// use levity_serve::mcp::McpServer;
    /// use levity_test::RecordingTool;
    /// use levity_tools::{Policy, Rule};
    ///
    /// # async fn ask(server: &McpServer, asked: &'static str) -> std::io::Result<String> {
    /// #     use tokio::io::AsyncReadExt as _;
    /// #     let (mut there, here) = tokio::io::duplex(1 << 16);
    /// #     server.serve(asked.as_bytes(), here).await.map_err(std::io::Error::other)?;
    /// #     let mut answered = String::new();
    /// #     there.read_to_string(&mut answered).await?;
    /// #     Ok(answered)
    /// # }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let delete = RecordingTool::new("delete", |_| Ok(ToolOutput::text("deleted")));
    /// let policy = Policy::new().rule(Rule::tool("delete").deny("the archive is read-only"));
    /// let server = McpServer::builder("archive", "1.0").tool(delete).policy(policy).build()?;
    /// let asked = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"delete"}}"#;
    /// assert!(ask(&server, asked).await?.contains("the archive is read-only"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets the handle that reports changes to clients.
    pub fn changes(mut self, changes: Changes) -> Self {
        self.changes = changes;
        self
    }

    /// Sets the limits for clients.
    pub fn limits(mut self, limits: McpLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the source of time and randomness; the system's by default.
    pub fn world(mut self, world: Arc<dyn World>) -> Self {
        self.world = world;
        self
    }

    /// Builds the server.
    ///
    /// ```
    /// use levity_core::ToolOutput;
    /// use levity_serve::mcp::McpServer;
    /// use levity_test::RecordingTool;
    ///
    /// let tool = || RecordingTool::new("look", |_| Ok(ToolOutput::text("nothing")));
    /// let twice = McpServer::builder("twice", "1.0").tool(tool()).tool(tool()).build();
    /// assert!(twice.unwrap_err().to_string().contains("look"));
    /// ```
    ///
    /// # Errors
    /// Fails if two tools have the same name, if a name or a schema is invalid, or if a limit is
    /// zero.
    pub fn build(self) -> Result<McpServer> {
        let info = self.info();
        let Self {
            registry,
            policy,
            limits,
            world,
            ..
        } = self;
        if limits.calls == 0 {
            return Err(Error::setting(
                "limits.calls",
                "is 0; allow at least one request",
            ));
        }
        let registry = registry.build().map_err(|error| unusable(&error))?;
        let (offers, order) = offers(&registry, self.offers)?;
        let dispatcher = Dispatcher::builder(registry)
            .world(world.clone())
            .policy(policy)
            .timeout(limits.tool)
            .retries(0)
            .max_output(limits.output)
            .max_concurrent(limits.calls)
            .build()
            .map_err(|error| unusable(&error))?;
        let seal = Seal::new().ok_or_else(|| {
            Error::setting(
                "waiting",
                "needs a random key, but the system provides no randomness",
            )
        })?;
        let share = TokenShare::percent(limits.token_share);
        let quota = |limit| Quota::new(limit, share);
        Ok(McpServer(Arc::new(Inner {
            info,
            dispatcher,
            has_sources: self.has_sources,
            offers,
            order,
            resources: self.resources,
            prompts: self.prompts,
            completer: self.completer,
            changes: self.changes,
            paused_calls: PausedCalls::new(
                seal,
                world.clone(),
                quota(limits.waiting),
                limits.answer,
            ),
            tasks: Tasks::new(world.clone(), quota(limits.tasks), limits.task_life),
            calls: quota(limits.calls),
            arguments: quota(limits.arguments),
            listeners: quota(limits.listeners),
            limits,
            tool_list: Mutex::new(None),
            call_prefix: world.random(),
            world,
            count: AtomicU64::new(1),
        })))
    }

    /// Returns the identity and the capabilities of the server. Every version of the protocol uses
    /// the same ones.
    fn info(&self) -> ServerConfig {
        let mut capabilities = json!({"logging": {}});
        let list_changed = json!({"listChanged": true});
        if self.has_tools || !self.offers.is_empty() {
            capabilities["tools"] = list_changed.clone();
        }
        if !self.prompts.is_empty() {
            capabilities["prompts"] = list_changed.clone();
        }
        if !self.resources.is_empty() {
            capabilities["resources"] = list_changed;
            if self
                .resources
                .iter()
                .any(|resources| resources.reports_updates())
            {
                capabilities["resources"]["subscribe"] = true.into();
            }
        }
        if self.completer.is_some() {
            capabilities["completions"] = json!({});
        }
        if self
            .offers
            .iter()
            .any(|offer| offer.task_support() != TaskSupport::Forbidden)
        {
            capabilities["extensions"] = json!({ TASKS_EXTENSION_ID: {} });
        }
        let capabilities: ServerCapabilities =
            serde_json::from_value(capabilities).unwrap_or_default();
        let mut implementation = Implementation::new(&self.name, &self.version);
        implementation.title.clone_from(&self.title);
        let mut info = ServerConfig::new(capabilities).with_server_info(implementation);
        info.instructions.clone_from(&self.instructions);
        info
    }
}

impl fmt::Debug for McpServerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpServerBuilder")
            .field("name", &self.name)
            .field("version", &self.version)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

type Offers = (BTreeMap<String, Offer>, Vec<String>);

/// Checks the names and schemas of handlers. A handler and a tool cannot have the same name, and
/// handlers keep their order in the list of tools.
fn offers(registry: &Registry, handlers: Vec<Arc<dyn Handler>>) -> Result<Offers> {
    let (mut offers, mut order) = (BTreeMap::new(), Vec::new());
    for handler in handlers {
        let spec = Arc::new(handler.spec().clone());
        let name = spec.name.clone();
        let good = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        if name.is_empty() || name.len() > 128 || !name.bytes().all(good) {
            let problem =
                format!("is named `{name}`; use 1 to 128 letters, digits, `_`, `-` and `.`");
            return Err(Error::setting("offer", problem));
        }
        if offers.contains_key(&name) || registry.get(&name).is_some() {
            return Err(Error::setting(
                "offer",
                format!("is a second tool named `{name}`; rename one"),
            ));
        }
        let limit = spec.hints.timeout;
        let arguments = ArgumentValidator::new(spec).map_err(|error| unusable(&error))?;
        order.push(name.clone());
        offers.insert(
            name,
            Offer {
                handler,
                arguments,
                limit,
            },
        );
    }
    Ok((offers, order))
}

fn unusable(error: &levity_tools::Error) -> Error {
    Error::setting("tool", format!("cannot be used: {}", chain(error)))
}
