//! Tools of MCP servers for an agent on the command line.
//!
//! Servers start with a command and end with it. The command waits for them up to `--mcp-wait`
//! seconds, then starts the agent anyway; tools of slower servers join at a later turn. A server
//! that fails is reported and left out, because an agent without one tool is often still useful.
//!
//! The config decides about the programs that run with the rights of the user, so levity reads it
//! only from the option or the environment, and never from the current folder or the workspace.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use levity::agent::AgentBuilder;
use levity::agents::AgentParts;
use levity::agents::PresetWorkers;
use levity::core::World as _;
use levity::mcp::{ServerState, Servers, WaitFor};
use levity::runtime::SystemWorld;

use super::{problems_in, read_or_from_env};
use crate::settings;
use crate::terminal::chain;

/// The options for the MCP servers of an agent.
#[derive(Args)]
pub(crate) struct McpArgs {
    /// Offer the tools of the MCP servers in this file; by default, of those in
    /// `LEVITY_MCP_SERVERS`. The file states which programs are started and which variables they
    /// get: `levity mcp list --config FILE` shows both.
    #[arg(long, value_name = "FILE")]
    mcp: Option<PathBuf>,
    /// Seconds to wait for servers before the agent starts; the tools of slower servers are added
    /// when they are ready.
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    mcp_wait: u32,
}

/// Servers that run beside an agent. Dropping them stops them at once.
///
/// Empty if no server is configured, so callers need no case distinction.
#[derive(Default)]
pub(crate) struct McpServers(Option<Servers>);

impl McpArgs {
    /// Starts the servers; `report` receives warnings about them.
    ///
    /// # Errors
    /// A file was named and has no usable server, or a name or setting of the servers is invalid. A
    /// problem of a single server is only reported.
    pub(crate) async fn start(&self, report: impl Fn(&str)) -> Result<McpServers, String> {
        let config = read_or_from_env(self.mcp.as_deref());
        problems_in(&config, self.mcp.as_deref()).for_each(|problem| report(&problem));
        if config.servers().is_empty() {
            // A folder of `levity init` has a file without servers.
            let may_be_empty = settings::is_supplied("mcp") && config.problems().is_empty();
            return match &self.mcp {
                Some(file) if !may_be_empty => Err(format!(
                    "`{}` names no server that levity can start; check it with `levity mcp list`",
                    file.display()
                )),
                _ => Ok(McpServers::default()),
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
                .for_each(|problem| report(&format!("server `{}`: {problem}", status.name)));
            match &status.state {
                ServerState::Unavailable { error, .. } => report(&chain(error)),
                ServerState::Starting => {
                    report(&format!("server `{}` is still starting", status.name));
                }
                _ => {}
            }
        }
        Ok(McpServers(Some(servers)))
    }
}

impl McpServers {
    /// Adds the tools of the servers to the agent.
    ///
    /// The servers are a source, so tools that appear or vanish later take effect; helper tools let
    /// the agent list the servers, their tools and their health.
    pub(crate) fn add_to(&self, agent: AgentBuilder) -> AgentBuilder {
        match &self.0 {
            Some(servers) => agent.tools(servers.helper_tools()).source(servers.clone()),
            None => agent,
        }
    }

    /// Adds the tools of the servers to workers. Workers that must not change anything get only the
    /// tools with a read-only hint.
    pub(crate) fn add_to_workers(&self, ready: PresetWorkers) -> PresetWorkers {
        match &self.0 {
            Some(servers) => ready.tools(servers.helper_tools()).source(servers.clone()),
            None => ready,
        }
    }

    /// Adds the servers to the parts of a team, each by its name.
    ///
    /// Agents of a team name servers in their config, so each is offered separately.
    pub(crate) fn add_to_parts(&self, mut parts: AgentParts) -> AgentParts {
        let Some(servers) = &self.0 else { return parts };
        for server in servers.all() {
            parts = parts.server(server.name(), servers.only([server.name()]));
        }
        parts
    }

    /// Returns what was built beside the servers, or stops the servers if it could not be built.
    pub(crate) async fn beside<T>(self, built: Result<T, String>) -> Result<(T, Self), String> {
        match built {
            Ok(built) => Ok((built, self)),
            Err(problem) => self.end(Err(problem)).await,
        }
    }

    /// Stops the servers in order, and returns `result`.
    ///
    /// An orderly stop lets a server close its files; dropping would kill it. Passing the result
    /// through keeps callers to one expression, so none forgets the stop on an early return.
    pub(crate) async fn end<T>(self, result: T) -> T {
        if let Some(servers) = self.0 {
            servers.stop().await;
        }
        result
    }
}
