//! What an agent offers to MCP clients: `query`, `search`, `fetch`, files and logs to read,
//! prompts.

use std::time::Duration;

use levity_memory::{Conversations, InMemory};
use levity_sandbox::Workspace;

use crate::library::{Library, Shelf, WorkspaceLibrary};
use crate::mcp::{self, McpServer, McpServerBuilder};
use crate::quota::TokenShare;
use crate::runs::Runs;

mod books;
mod files;
mod logs;
mod prompts;
mod query;
mod words;

pub use prompts::TextPrompts;
pub use query::ClientAgent;
use query::Query;

/// An agent, a swarm or a team for MCP clients: by a tool `query`, with the logs of its runs to
/// read and, where they are given, a workspace and other documents to search.
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
#[must_use = "a server does nothing until it is built and served"]
pub struct AgentServer {
    server: McpServerBuilder,
    runs: Runs,
    query: Query,
    workspace: Option<Workspace>,
    shelf: Shelf,
    prompts: TextPrompts,
}

impl AgentServer {
    /// How many documents a search finds at most: 10.
    pub const SEARCH: usize = 10;
    /// How long a session of [`passing_sessions`](Self::passing_sessions) lasts that nobody uses:
    /// one hour.
    pub const SESSION_TIME: Duration = Duration::from_secs(3600);
    /// How many such sessions there are at most: 1,000.
    pub const SESSIONS: usize = 1_000;
    /// How many bytes of messages they have at most: 64 MiB, and a sixteenth of that for one of
    /// them.
    pub const SESSION_BYTES: usize = 64 << 20;

    /// Conversations that end with this process, for an agent whose sessions need not be kept: each
    /// query without a session begins one. Run [`Conversations::keep_clean`] beside the server, so
    /// that those go that have expired.
    ///
    /// A tenant has at most a quarter of them, so that it cannot displace the sessions of others;
    /// [`passing_sessions_by`](Self::passing_sessions_by) sets another share.
    pub fn passing_sessions() -> Conversations {
        Self::passing_sessions_by(TokenShare::DEFAULT.as_percent())
    }

    /// As [`passing_sessions`](Self::passing_sessions), with this share for a tenant, in percent;
    /// one session at least.
    pub fn passing_sessions_by(token_share: u8) -> Conversations {
        let store = InMemory::bounded(Self::SESSIONS, Self::SESSION_BYTES);
        let store = store.with_share(token_share, |id| {
            crate::access::tenant_of(id.as_str()).map(Into::into)
        });
        Conversations::new(store).expire_after(Self::SESSION_TIME)
    }

    /// A server of this name and version.
    pub fn new(name: impl Into<String>, version: impl Into<String>, runs: Runs) -> Self {
        Self {
            server: McpServer::builder(name, version),
            query: Query::new(runs.clone()),
            runs,
            workspace: None,
            shelf: Shelf::default(),
            prompts: prompts::ready(),
        }
    }

    /// What `query` is for, for the model that decides whether to call it. Say what your agent is
    /// good at.
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.query.describe(text);
        self
    }

    /// Lets clients read the files of a workspace, and search them.
    pub fn workspace(mut self, workspace: Workspace) -> Self {
        self.shelf.push(WorkspaceLibrary::new(workspace.clone()));
        self.workspace = Some(workspace);
        self
    }

    /// Lets clients search other documents, too.
    pub fn library(mut self, library: impl Library + 'static) -> Self {
        self.shelf.push(library);
        self
    }

    /// Adds prompts that people choose from.
    pub fn prompts(mut self, prompts: TextPrompts) -> Self {
        self.prompts = self.prompts.and(prompts);
        self
    }

    /// Has each query answered by an agent that is made for it, with the model of the client that
    /// asks.
    pub fn client_agent(mut self, agent: impl ClientAgent + 'static) -> Self {
        self.query.made_by(agent);
        self
    }

    /// Sets what else is to be set on the server: its limits, further tools.
    pub fn configure(mut self, set: impl FnOnce(McpServerBuilder) -> McpServerBuilder) -> Self {
        self.server = set(self.server);
        self
    }

    /// Puts it together.
    ///
    /// # Errors
    /// When two tools have one name, or a limit makes no sense.
    pub fn build(self) -> Result<McpServer, mcp::Error> {
        let Self {
            mut server,
            runs,
            query,
            workspace,
            shelf,
            prompts,
        } = self;
        server = server
            .offer(query)
            .resources(logs::RunLogs::new(runs))
            .prompts(prompts);
        if !shelf.is_empty() {
            server = server
                .tool(books::Search::new(shelf.clone()))
                .tool(books::Fetch::new(shelf));
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
