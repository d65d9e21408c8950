//! Tools of MCP servers for an agent of the command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use levity::agent::AgentBuilder;
use levity::agents::AgentParts;
use levity::agents::ReadyWorkers;
use levity::core::World as _;
use levity::mcp::{ServerState, Servers, WaitFor};
use levity::runtime::SystemWorld;

use super::read;
use crate::terminal::chain;

/// Which servers an agent has.
#[derive(Args)]
pub(crate) struct McpArgs {
    /// Offer the tools of the MCP servers that this file names; without it, of those that
    /// `LEVITY_MCP_SERVERS` names. The file says which programs are started and which variables
    /// they get: `levity mcp list --config FILE` shows both.
    #[arg(long, value_name = "FILE")]
    mcp: Option<PathBuf>,
    /// How many seconds the agent waits for servers before it begins; tools of later ones come when
    /// they are there.
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    mcp_wait: u32,
}

/// Servers that run beside an agent. Dropped, they end at once.
#[derive(Default)]
pub(crate) struct Offered(Option<Servers>);

impl McpArgs {
    /// Starts the servers; `tell` says what is worth knowing about them.
    pub(crate) async fn start(&self, tell: impl Fn(&str)) -> Result<Offered, String> {
        let config = read(self.mcp.as_deref());
        config
            .problems()
            .iter()
            .for_each(|problem| tell(&problem.to_string()));
        if config.servers().is_empty() {
            return match &self.mcp {
                Some(file) => Err(format!(
                    "`{}` names no server that could be started",
                    file.display()
                )),
                None => Ok(Offered::default()),
            };
        }
        let builder = Servers::builder().servers(config.into_servers());
        let servers = builder.start().map_err(|error| chain(&error))?;
        tokio::select! {
            _ = servers.wait(WaitFor::All) => {}
            () = SystemWorld.sleep(Duration::from_secs(self.mcp_wait.into())) => {}
        }
        for status in servers.status() {
            status
                .problems
                .iter()
                .for_each(|problem| tell(&format!("server `{}`: {problem}", status.name)));
            match &status.state {
                ServerState::Away { error, .. } => tell(&chain(error)),
                ServerState::Starting => {
                    tell(&format!("server `{}` is still being started", status.name));
                }
                _ => {}
            }
        }
        Ok(Offered(Some(servers)))
    }
}

impl Offered {
    /// The agent with the tools of the servers.
    pub(crate) fn add_to(&self, agent: AgentBuilder) -> AgentBuilder {
        match &self.0 {
            Some(servers) => agent.tools(servers.helper_tools()).source(servers.clone()),
            None => agent,
        }
    }

    /// Workers with the tools of the servers: who must change nothing has those that are hinted
    /// read-only.
    pub(crate) fn add_to_ready(&self, ready: ReadyWorkers) -> ReadyWorkers {
        match &self.0 {
            Some(servers) => ready.tools(servers.helper_tools()).source(servers.clone()),
            None => ready,
        }
    }

    /// The parts of a team with the servers, each by its name.
    pub(crate) fn add_to_parts(&self, mut parts: AgentParts) -> AgentParts {
        let Some(servers) = &self.0 else { return parts };
        for server in servers.all() {
            parts = parts.server(server.name(), servers.only([server.name()]));
        }
        parts
    }

    /// Ends the servers in order, and passes on what their work came to.
    pub(crate) async fn end<T>(self, done: T) -> T {
        if let Some(servers) = self.0 {
            servers.stop().await;
        }
        done
    }
}
