//! The MCP interface of an agent: `query`, `search`, `fetch`, readable files and logs, prompts.
//!
//! [`AgentServer`] assembles an [`McpServer`] from parts in this folder: the tool `query`, the
//! tools `search` and `fetch`, the resources of files and logs, and prompts. The parts use only the
//! public interface of [`mcp`].

use std::time::Duration;

use levity_memory::{Conversations, InMemory};
use levity_sandbox::Workspace;

use crate::library::{CombinedLibrary, Library, WorkspaceLibrary};
use crate::mcp::{self, McpServer, McpServerBuilder};
use crate::quota::TokenShare;
use crate::runs::Runs;

mod files;
mod logs;
mod progress;
mod prompts;
mod query;
mod search;

pub use prompts::TextPrompts;
pub use query::ClientAgent;
use query::Query;

/// Serves an agent, a swarm or a team to MCP clients. Clients get a tool `query`, the readable logs
/// of its runs and, if configured, a workspace and other documents to search.
///
/// ```no_run
/// use levity_loop::Agent;
/// use levity_serve::{AgentServer, Runs};
/// # use levity_test::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let model = ScriptedModel::new();
/// let agent = Agent::builder(model).build()?;
/// let server = AgentServer::new("my-agent", "1.0", Runs::new(agent)).build()?;
/// server.stdio().await?;
/// # Ok(())
/// # }
/// ```
///
/// ```
/// use levity_loop::Agent;
/// use levity_serve::{AgentServer, Runs};
/// use levity_test::ScriptedModel;
/// use tokio::io::AsyncReadExt as _;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let agent = Agent::builder(ScriptedModel::new().reply("Paris.")).build()?;
/// let server = AgentServer::new("geographer", "1.0", Runs::new(agent))
///     .description("Answers questions about countries.")
///     .build()?;
/// let asked = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"query",
///     "arguments":{"prompt":"The capital of France?"}}}"#.replace('\n', "");
/// let (mut there, here) = tokio::io::duplex(1 << 16);
/// server.serve(std::io::Cursor::new(asked), here).await?;
/// let mut answered = String::new();
/// there.read_to_string(&mut answered).await?;
/// assert!(answered.contains("Paris."));
/// # Ok(())
/// # }
/// ```
#[must_use = "a server does nothing until it is built and served"]
pub struct AgentServer {
    server: McpServerBuilder,
    runs: Runs,
    query: Query,
    workspace: Option<Workspace>,
    libraries: CombinedLibrary,
    prompts: TextPrompts,
}

impl AgentServer {
    /// The maximum number of documents that a search returns: 10.
    pub const MAX_SEARCH_RESULTS: usize = 10;
    /// The time after which an unused session of [`temporary_sessions`](Self::temporary_sessions)
    /// expires: one hour.
    pub const SESSION_TIME: Duration = Duration::from_secs(3600);
    /// The maximum number of such sessions: 1,000.
    pub const SESSIONS: usize = 1_000;
    /// The maximum number of bytes of messages in such sessions: 64 MiB, and a sixteenth of that in
    /// one of them.
    pub const SESSION_BYTES: usize = 64 << 20;

    /// Returns conversations that end with this process, for an agent whose sessions need not be
    /// stored. Each query without a session starts one. Run
    /// [`Conversations::clean_up_periodically`] beside the server to remove expired ones.
    ///
    /// A tenant has at most a quarter of them, so that it cannot displace the sessions of others.
    /// Use [`temporary_sessions_with_share`](Self::temporary_sessions_with_share) to set another
    /// share.
    ///
    /// ```
    /// use levity_loop::Agent;
    /// use levity_serve::{AgentServer, Runs};
    /// use levity_test::ScriptedModel;
    ///
    /// let sessions = AgentServer::temporary_sessions();
    /// let agent = Agent::builder(ScriptedModel::new()).conversations(sessions).build()?;
    /// assert!(Runs::new(agent).supports_conversations());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn temporary_sessions() -> Conversations {
        Self::temporary_sessions_with_share(TokenShare::DEFAULT.as_percent())
    }

    /// Same as [`temporary_sessions`](Self::temporary_sessions), with this share for a tenant in
    /// percent; at least one session.
    pub fn temporary_sessions_with_share(token_share: u8) -> Conversations {
        let store = InMemory::bounded(Self::SESSIONS, Self::SESSION_BYTES);
        let store = store.with_share(token_share, |id| {
            crate::access::tenant_of(id.as_str()).map(Into::into)
        });
        Conversations::new(store).expire_after(Self::SESSION_TIME)
    }

    /// Creates a server with this name and version.
    pub fn new(name: impl Into<String>, version: impl Into<String>, runs: Runs) -> Self {
        Self {
            server: McpServer::builder(name, version),
            query: Query::new(runs.clone()),
            runs,
            workspace: None,
            libraries: CombinedLibrary::default(),
            prompts: prompts::default_prompts(),
        }
    }

    /// Sets the description of `query`, which the client's model reads to decide if it calls the
    /// tool. Describe what your agent is good at.
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.query.describe(text);
        self
    }

    /// Lets clients read and search the files of a workspace.
    ///
    /// Files that `.gitignore` names are not listed and not searched. The workspace decides which
    /// paths can be read at all.
    pub fn workspace(mut self, workspace: Workspace) -> Self {
        self.libraries
            .push(WorkspaceLibrary::new(workspace.clone()));
        self.workspace = Some(workspace);
        self
    }

    /// Lets clients search further documents.
    ///
    /// The results of several libraries are interleaved, and a search returns ten of them.
    pub fn library(mut self, library: impl Library + 'static) -> Self {
        self.libraries.push(library);
        self
    }

    /// Adds prompts for users to choose from.
    pub fn prompts(mut self, prompts: TextPrompts) -> Self {
        self.prompts = self.prompts.and(prompts);
        self
    }

    /// Answers each query with an agent that is created for it, using the model of the calling
    /// client.
    ///
    /// The runner of [`Runs`] then starts no runs for queries; it still reads those of its journal.
    /// The query of a client that offers no model fails.
    pub fn client_agent(mut self, agent: impl ClientAgent + 'static) -> Self {
        self.query.set_client_agent(agent);
        self
    }

    /// Configures the underlying server: its limits, further tools.
    ///
    /// ```
    /// use levity_loop::Agent;
    /// use levity_serve::{AgentServer, Runs, mcp::McpLimits};
    /// use levity_test::ScriptedModel;
    ///
    /// let agent = Agent::builder(ScriptedModel::new()).build()?;
    /// let server = AgentServer::new("my-agent", "1.0", Runs::new(agent))
    ///     .configure(|server| server.title("My agent").limits(McpLimits::default().calls(16)))
    ///     .build()?;
    /// # drop(server);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn configure(mut self, set: impl FnOnce(McpServerBuilder) -> McpServerBuilder) -> Self {
        self.server = set(self.server);
        self
    }

    /// Builds the MCP server.
    ///
    /// # Errors
    /// Fails if two tools have the same name, or if a limit is invalid.
    pub fn build(self) -> Result<McpServer, mcp::Error> {
        let Self {
            mut server,
            runs,
            query,
            workspace,
            libraries,
            prompts,
        } = self;
        server = server
            .handler(query)
            .resources(logs::RunLogs::new(runs))
            .prompts(prompts);
        if !libraries.is_empty() {
            server = server
                .tool(search::Search::new(libraries.clone()))
                .tool(search::Fetch::new(libraries));
        }
        if let Some(workspace) = workspace {
            server = server.resources(files::Files::new(workspace));
        }
        server.build()
    }
}

impl std::fmt::Debug for AgentServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentServer")
            .field("runs", &self.runs)
            .finish_non_exhaustive()
    }
}
