//! `levity serve mcp`: the agent as an MCP server.

use std::convert::Infallible;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use levity::memory::{Conversations, Recall, Scope};
use levity::prelude::*;
use levity::serve::mcp::{ClientModel, McpLimits, McpServer};
use levity::serve::{AgentServer, Listener, RecallLibrary, Runs, TextPrompts};
use levity::test::FunctionModel;

use super::reach::{At, Reach};
use super::{asked_to_end, own, resume, scheme, until_told};
use crate::agent::{Made, Voice};
use crate::kind::{Kind, Several};
use crate::logs::Logs;
use crate::marks::Trust;
use crate::mcp::Offered;
use crate::store;
use crate::terminal::{chain, complain, note};

/// Offer the agent to MCP clients, by the tool `query`.
#[derive(Args)]
pub(crate) struct ServeMcp {
    /// Listen on this address, such as `127.0.0.1:8000`, at `/mcp`, in place of speaking over stdin
    /// and stdout.
    #[arg(long, value_name = "ADDR")]
    http: Option<String>,
    /// The file with the token that clients must show; made if it is not there. By default
    /// `LEVITY_TOKEN`, or `levity/mcp.token` in the user's state folder.
    #[arg(long, value_name = "FILE", requires = "http")]
    token_file: Option<PathBuf>,
    /// A name that clients may call this server by, besides those of the loopback; may be given
    /// more than once.
    #[arg(long, value_name = "NAME", requires = "http")]
    allow_host: Vec<String>,
    /// Where pages may come from that call this server, besides the loopback; may be given more
    /// than once.
    #[arg(long, value_name = "ORIGIN", requires = "http")]
    allow_origin: Vec<String>,
    /// What the server calls itself.
    #[arg(long, default_value = "levity")]
    name: String,
    /// What the agent is good for, told to the models of clients.
    #[arg(long, value_name = "TEXT")]
    about: Option<String>,
    /// Offer the prompts of this folder: each file `NAME.md` is one, with gaps like `{{path}}`.
    #[arg(long, value_name = "DIR")]
    prompts: Option<PathBuf>,
    /// Let clients search what is remembered in this SQLite file.
    #[arg(long, value_name = "FILE", requires = "scope")]
    facts: Option<PathBuf>,
    /// Whose facts: `user:ID`, `project:ID` or `session:ID`; may be given more than once.
    #[arg(long, value_name = "KIND:ID", requires = "facts", value_parser = scope)]
    scope: Vec<Scope>,
    /// Have the model of each client answer, in place of one of ours.
    #[arg(long, conflicts_with_all = ["model", "script", "cache", "thinking"])]
    client_model: bool,
    /// Keep the runs in this folder or SQLite file (`*.db`). Those that an earlier server left are
    /// ended.
    #[arg(long, value_name = "PATH")]
    journal: Option<PathBuf>,
    #[command(flatten)]
    trust: Trust,
    #[command(flatten)]
    reach: Reach,
    /// The kind of run that works on the queries of clients.
    #[arg(long, value_enum, value_name = "KIND", default_value_t = Kind::Agent)]
    offer: Kind,
    #[command(flatten)]
    made: Made,
    #[command(flatten)]
    several: Several,
}

fn scope(text: &str) -> Result<Scope, String> {
    match text.split_once(':') {
        Some(("user", id)) if !id.is_empty() => Ok(Scope::user(id)),
        Some(("project", id)) if !id.is_empty() => Ok(Scope::project(id)),
        Some(("session", id)) if !id.is_empty() => Ok(Scope::session(id)),
        _ => Err("a scope is written as `user:ID`, `project:ID` or `session:ID`".to_owned()),
    }
}

/// Serves until the client leaves, or until it is interrupted: 0 then, 2 for a wrong call, 1 when
/// the connection fails.
pub(crate) async fn serve(args: ServeMcp) -> ExitCode {
    let logs = match args.made.common.logs.open() {
        Ok(logs) => logs,
        Err(problem) => return complain(&problem, 2),
    };
    let built = match args.build(&logs).await {
        Ok(built) => built,
        Err(problem) => return complain(&problem, 2),
    };
    let code = tokio::select! {
        code = args.by(built.server) => code,
        never = cleaned(built.passing.as_ref()) => match never {},
    };
    built.offered.end(code).await
}

/// Removes conversations that have expired, for as long as it is polled: each query without a
/// session begins one.
async fn cleaned(passing: Option<&Conversations>) -> Infallible {
    match passing {
        Some(conversations) => conversations.keep_clean(Conversations::CLEAN_EVERY).await,
        None => std::future::pending().await,
    }
}

/// What is served.
struct Built {
    server: McpServer,
    offered: Offered,
    /// The conversations, some of which expire.
    passing: Option<Conversations>,
}

/// Ends what an earlier server left: whoever asked for it has left, too, and nobody is there to be
/// asked what it asks.
async fn end_left(runs: &Runs) -> Result<(), String> {
    resume(runs).await?;
    for run in runs.here() {
        if let Ok(control) = run.control() {
            // One that another server drives is not ours to end.
            let _ = control
                .cancel("the server was started anew, and whoever asked for it has left")
                .await;
        }
    }
    Ok(())
}

async fn by_stdio(server: McpServer) -> ExitCode {
    tokio::select! {
        ended = server.stdio() => match ended {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => complain(&chain(&error), 1),
        },
        () = asked_to_end() => ExitCode::SUCCESS,
    }
}

impl ServeMcp {
    async fn by(&self, server: McpServer) -> ExitCode {
        match self.listener().await {
            Ok(Some(listener)) => {
                let tell = |listener: &Listener| {
                    note(&format!(
                        "MCP at {}://{}/mcp",
                        scheme(listener),
                        listener.address()
                    ));
                };
                until_told(listener, tell, |listener| async move {
                    server.listen(listener).await
                })
                .await
            }
            Ok(None) => by_stdio(server).await,
            Err(problem) => complain(&problem, 2),
        }
    }

    async fn build(&self, logs: &Logs) -> Result<Built, String> {
        self.several.check(self.offer, &self.made)?;
        if self.client_model && self.offer != Kind::Agent {
            return Err(
                "`--client-model` is the model of one agent; leave it or `--offer` out".to_owned(),
            );
        }
        let (runtime, marks) = match &self.journal {
            Some(path) => {
                let journal = store::open_own(path, self.trust).map_err(|error| chain(&error))?;
                let marks = journal.marks();
                (Runtime::new().with_journal(journal), Some(marks))
            }
            // What has ended of late is kept in any case, and nothing else: a server may live for
            // months.
            None => (Runtime::new(), None),
        };
        let (runs, agent, offered) = match self.offer {
            Kind::Agent => {
                let (agent, offered) = self.agent(runtime).await?;
                (Runs::new(agent.clone()), Some(agent), offered)
            }
            kind => {
                let (runs, offered) = self.several.runs(kind, &self.made.common, runtime).await?;
                (runs, None, offered)
            }
        };
        let passing = agent
            .as_ref()
            .and_then(|agent| agent.conversations().cloned());
        let mut runs = runs.on_event(logs.watcher(None));
        if let Some(percent) = self.reach.token_share() {
            runs = runs.token_share(percent);
        }
        let runs = own(runs, marks);
        end_left(&runs).await?;
        let mut server = AgentServer::new(&self.name, env!("CARGO_PKG_VERSION"), runs);
        if let Some(percent) = self.reach.token_share() {
            server =
                server.configure(|server| server.limits(McpLimits::default().token_share(percent)));
        }
        if let Some(about) = &self.about {
            server = server.description(about);
        }
        if let Some(workspace) = self.made.common.tools.space()? {
            server = server.workspace(workspace);
        }
        if let Some(folder) = &self.prompts {
            server = server.prompts(
                TextPrompts::new()
                    .folder(folder)
                    .map_err(|error| chain(&error))?,
            );
        }
        if let Some(file) = &self.facts {
            let recall = Recall::open(file).map_err(|error| chain(&error))?;
            recall.problems().iter().for_each(|problem| note(problem));
            server = server.library(RecallLibrary::new(recall, self.scope.clone()));
        }
        if let Some(agent) = agent.filter(|_| self.client_model) {
            server = server
                .client_agent(move |model: ClientModel| agent.to_builder().model(model).build());
        }
        Ok(Built {
            server: server.build().map_err(|error| chain(&error))?,
            offered,
            passing,
        })
    }

    /// The agent; without a memory of its own, conversations last as long as this server does, and
    /// expire.
    async fn agent(&self, runtime: Runtime) -> Result<(Agent, Offered), String> {
        let (mut agent, offered) = match self.client_model {
            true if self.made.common.options.needs_judge() => {
                return Err("`--guard topic:..` needs a model that judges; leave it or \
                    `--client-model` out"
                    .to_owned());
            }
            true => {
                self.made
                    .with_model(Arc::new(nobody()), runtime.clone(), Voice::Aside)
                    .await?
            }
            false => self.made.builder(runtime.clone(), Voice::Aside).await?,
        };
        if self.made.memory.is_none() {
            let world = runtime.world().clone();
            agent = agent.conversations(match self.reach.token_share() {
                Some(percent) => AgentServer::passing_sessions_by(percent).world(world),
                None => AgentServer::passing_sessions().world(world),
            });
        }
        Ok((agent.build().map_err(|error| chain(&error))?, offered))
    }

    async fn listener(&self) -> Result<Option<Listener>, String> {
        let Some(address) = &self.http else {
            return Ok(None);
        };
        let at = At {
            address,
            token_file: self.token_file.as_deref(),
            token_name: "mcp.token",
            hosts: &self.allow_host,
            origins: &self.allow_origin,
        };
        self.reach.listen(at).await.map(Some)
    }
}

/// Stands in for the models of clients where there is no client: in runs that an earlier server
/// left.
fn nobody() -> FunctionModel {
    use levity::core::{ModelError, ModelErrorKind};
    FunctionModel::new(|_| {
        Err(ModelError::new(
            ModelErrorKind::BadRequest,
            "the client whose model was asked has left; ask again",
        ))
    })
}
