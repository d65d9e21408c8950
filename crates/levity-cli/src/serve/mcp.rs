//! `levity serve mcp`: the agent as an MCP server.
//!
//! Clients are other programs with models of their own. They see the tool `query`, which runs the
//! agent (or the team or swarm of `--offer`). Options add the files of the workspace for reading
//! and search, prompts of a folder, and a search in stored facts.
//!
//! Transports: standard input and output by default, where the parent process is trusted and no
//! token exists, or HTTP at `/mcp` with a token. Over stdio, nothing but the protocol may appear on
//! standard output, so all notes go to standard error.
//!
//! Runs of a previous server are cancelled at the start, and no others. Unlike `serve http`, where
//! clients come back to their runs by id, an MCP client that has disconnected cannot answer a
//! question of its old run.
//!
//! Exit codes: 0 after a shutdown or when the client disconnects, 1 for a failed connection, 2 for
//! a wrong call.

use std::convert::Infallible;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use levity::core::RunId;
use levity::memory::{Conversations, Recall, Scope};
use levity::prelude::*;
use levity::serve::mcp::{ClientModel, McpLimits, McpServer};
use levity::serve::{AgentServer, RecallLibrary, Runs, TextPrompts};
use levity::test::FunctionModel;

use super::access::TransportArgs;
use super::resume_only_marked;
use crate::agent::{AgentShape, NoteOutput};
use crate::kind::{GroupOptions, Kind};
use crate::logs::Logs;
use crate::marks::Trust;
use crate::mcp::McpServers;
use crate::settings;
use crate::store;
use crate::terminal::{chain, note, report_error};

/// Offer the agent to MCP clients, as the tool `query`.
#[derive(Args)]
pub(crate) struct ServeMcp {
    #[command(flatten)]
    transport: TransportArgs,
    /// Name of the server.
    #[arg(long, default_value = "levity")]
    name: String,
    /// Description of the agent for the models of clients.
    #[arg(long, value_name = "TEXT")]
    about: Option<String>,
    /// Offer the prompts of this folder: each file `NAME.md` is one, with placeholders like
    /// `{{path}}`.
    #[arg(long, value_name = "DIR")]
    prompts: Option<PathBuf>,
    /// Let clients search the facts in this SQLite file.
    #[arg(long, value_name = "FILE", requires = "scope")]
    facts: Option<PathBuf>,
    /// Owner of the facts: `user:ID`, `project:ID` or `session:ID`; may be given more than once.
    #[arg(long, value_name = "KIND:ID", requires = "facts", value_parser = scope)]
    scope: Vec<Scope>,
    /// Use the model of each client instead of a model of this server.
    #[arg(long, conflicts_with_all = [
        "model", "script", "cache", "thinking", "debug_log", "text_tools",
    ])]
    client_model: bool,
    /// Store the runs in this folder or SQLite file (`*.db`). Runs that an earlier server left are
    /// cancelled.
    #[arg(long, value_name = "PATH")]
    journal: Option<PathBuf>,
    #[command(flatten)]
    trust: Trust,
    /// Kind of run that works on the queries of clients.
    #[arg(long, value_enum, value_name = "KIND", default_value_t = Kind::Agent)]
    offer: Kind,
    #[command(flatten)]
    shape: AgentShape,
    #[command(flatten)]
    group: GroupOptions,
}

/// Parses an owner of facts, such as `project:levity`. An empty id is refused, because it would
/// match facts that nobody owns.
fn scope(text: &str) -> Result<Scope, String> {
    match text.split_once(':') {
        Some(("user", id)) if !id.is_empty() => Ok(Scope::user(id)),
        Some(("project", id)) if !id.is_empty() => Ok(Scope::project(id)),
        Some(("session", id)) if !id.is_empty() => Ok(Scope::session(id)),
        _ => Err("use `user:ID`, `project:ID` or `session:ID`".to_owned()),
    }
}

/// Serves until the client disconnects or a shutdown signal arrives: 0 then, 2 for an invalid call,
/// 1 if the connection fails.
///
/// The removal of expired conversations runs in the same task and ends with the server: dropping
/// its future is enough, nothing is spawned.
pub(crate) async fn serve(args: ServeMcp) -> ExitCode {
    let logs = match args.shape.common.logs.open() {
        Ok(logs) => logs,
        Err(problem) => return report_error(&problem, 2),
    };
    let built = match args.build(&logs).await {
        Ok(built) => built,
        Err(problem) => return report_error(&problem, 2),
    };
    let code = tokio::select! {
        code = args.transport.serve(built.server) => code,
        never = remove_expired(built.expiring.as_ref()) => match never {},
    };
    built.mcp_servers.end(code).await
}

/// Removes expired conversations for as long as it is polled, because each query without a session
/// starts one.
///
/// Never returns; the type says so. Without conversations it waits for ever, so `select!` has the
/// same shape in both cases.
async fn remove_expired(expiring: Option<&Conversations>) -> Infallible {
    match expiring {
        Some(conversations) => {
            conversations
                .clean_up_periodically(Conversations::CLEAN_UP_INTERVAL)
                .await
        }
        None => std::future::pending().await,
    }
}

/// The server with its MCP servers and conversations.
///
/// The MCP servers are those whose tools the agent uses; they must outlive the server and are ended
/// after it.
struct BuiltServer {
    server: McpServer,
    mcp_servers: McpServers,
    /// The conversations, some of which expire.
    expiring: Option<Conversations>,
}

/// Cancels the runs that an earlier server left: their clients have disconnected, so no one can
/// answer their questions.
///
/// Runs beyond the limit are cancelled as well, and end when other runs have ended. A single run
/// that cannot be cancelled is a note; only a journal that cannot be listed is an error.
async fn cancel_abandoned(runs: &Runs) -> Result<(), String> {
    let reason = "the server was restarted, and the client of this run has disconnected";
    let failed = runs.cancel_all(reason).await;
    for (run, error) in failed.map_err(|error| chain(&error))? {
        note(&format!(
            "run {run} was not resumed to be cancelled: {}",
            chain(&error)
        ));
    }
    Ok(())
}

impl ServeMcp {
    /// Checks options that contradict each other, opens the journal, and builds the runs and the
    /// server. The order matters: options are checked before
    /// the agent's MCP servers are started, and abandoned runs are cancelled before the first
    /// client can connect.
    async fn build(&self, logs: &Logs) -> Result<BuiltServer, String> {
        self.group.check(self.offer, &self.shape)?;
        if self.client_model && self.offer != Kind::Agent {
            return Err(
                "`--client-model` applies only to a single agent; remove it or \
                    `--offer`"
                    .to_owned(),
            );
        }
        let (runtime, marks) = match &self.journal {
            Some(path) => {
                let journal = store::open_own(path, self.trust).map_err(|error| chain(&error))?;
                let marks = journal.marks();
                marks.serve_as("mcp");
                (Runtime::new().with_journal(journal), Some(marks))
            }
            // Runs that ended recently are retained in any case, and nothing else, because a server
            // may run for months.
            None => (Runtime::new(), None),
        };
        let (runs, agent, mcp_servers) = match self.offer {
            Kind::Agent => {
                let (agent, mcp_servers) = self.agent(runtime).await?;
                (Runs::new(agent.clone()), Some(agent), mcp_servers)
            }
            kind => {
                let (runs, mcp_servers) =
                    self.group.runs(kind, &self.shape.common, runtime).await?;
                (runs, None, mcp_servers)
            }
        };
        let expiring = agent
            .as_ref()
            .and_then(|agent| agent.conversations().cloned());
        let mut runs = resume_only_marked(runs.on_event(logs.watcher(None)), marks.clone());
        if let Some(marks) = marks {
            // Not even `--trust-journal` cancels runs that nobody started with such a server; those
            // of other users are reported.
            let is_skipped =
                move |run: &RunId| !marks.is_of_server(run) && marks.check(run).is_ok();
            runs = runs.skip_at_start(is_skipped);
        }
        let server = self.server(runs, agent).await;
        let (server, mcp_servers) = mcp_servers.beside(server).await?;
        Ok(BuiltServer {
            server,
            mcp_servers,
            expiring,
        })
    }

    /// Cancels abandoned runs, and adds what clients may see.
    async fn server(&self, mut runs: Runs, agent: Option<Agent>) -> Result<McpServer, String> {
        if let Some(percent) = self.transport.token_share() {
            runs = runs.token_share(percent);
        }
        cancel_abandoned(&runs).await?;
        let mut server = AgentServer::new(&self.name, env!("CARGO_PKG_VERSION"), runs);
        if let Some(percent) = self.transport.token_share() {
            server =
                server.configure(|server| server.limits(McpLimits::default().token_share(percent)));
        }
        if let Some(about) = &self.about {
            server = server.description(about);
        }
        if let Some(workspace) = self.shape.common.tools.open_workspace()? {
            server = server.workspace(workspace);
        }
        if let Some(folder) = &self.prompts {
            let prompts = settings::with_folder("prompts", folder, |folder| {
                let prompts = TextPrompts::new().folder(folder);
                prompts.map_err(|error| chain(&error))
            });
            server = server.prompts(prompts?);
        }
        if let Some(file) = &self.facts {
            let recall = Recall::open(file).map_err(|error| chain(&error))?;
            recall.warnings().iter().for_each(|problem| note(problem));
            server = server.library(RecallLibrary::new(recall, self.scope.clone()));
        }
        if let Some(agent) = agent.filter(|_| self.client_model) {
            server = server
                .client_agent(move |model: ClientModel| agent.to_builder().model(model).build());
        }
        server.build().map_err(|error| chain(&error))
    }

    /// Builds the agent. Without `--memory`, conversations last as long as this server, and expire.
    ///
    /// With `--client-model` the agent is built around a model that always fails; each client
    /// replaces it by its own. A guard that judges topics needs a model of the server and is
    /// refused then.
    async fn agent(&self, runtime: Runtime) -> Result<(Agent, McpServers), String> {
        let (mut agent, mcp_servers) = match self.client_model {
            true if self.shape.common.options.needs_judge() => {
                return Err(
                    "`--guard topic:..` requires a model that judges; remove it or \
                    `--client-model`"
                        .to_owned(),
                );
            }
            true => {
                self.shape
                    .with_model(
                        Arc::new(disconnected_model()),
                        runtime.clone(),
                        NoteOutput::Stderr,
                    )
                    .await?
            }
            false => {
                self.shape
                    .builder(runtime.clone(), NoteOutput::Stderr)
                    .await?
            }
        };
        if self.shape.memory.is_none() {
            let world = runtime.world().clone();
            agent = agent.conversations(match self.transport.token_share() {
                Some(percent) => AgentServer::temporary_sessions_with_share(percent).world(world),
                None => AgentServer::temporary_sessions().world(world),
            });
        }
        let agent = agent.build().map_err(|error| chain(&error));
        mcp_servers.beside(agent).await
    }
}

/// Makes a fallback for the models of clients in runs that an earlier server left, which have no
/// client.
///
/// Its error is a bad request, which no layer retries.
fn disconnected_model() -> FunctionModel {
    use levity::core::{ModelError, ModelErrorKind};
    FunctionModel::new(|_| {
        Err(ModelError::new(
            ModelErrorKind::BadRequest,
            "the client that provides the model has disconnected; send the query again",
        ))
    })
}
