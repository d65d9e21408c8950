//! `levity serve http`: runs over HTTP.
//!
//! Clients start runs with a goal, follow their events, answer their questions and cancel them,
//! under `/v1`. One process serves one agent, team or swarm, which the options define; clients
//! choose the goal and never the tools.
//!
//! With `--journal`, runs survive a crash or a restart: those that an earlier server of this user
//! left are resumed. Runs of other users are reported, and runs of other commands stay untouched.
//! Without it, runs end with the process, and a note says so.
//!
//! `levity ui` is the same server on a free port; it prints a link to the page.
//!
//! The address is printed to standard output as the first line, `listening on
//! http://127.0.0.1:8787/v1`, after the signal handlers are installed; scripts wait for it and read
//! the port from it. Exit codes: 0 after a shutdown, 1 if serving fails, 2 for a wrong call.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use levity::prelude::*;
use levity::serve::http::HttpApi;
use levity::serve::{Listener, Runs, Token};
use levity::tools::Dispatcher;

use super::access::{AccessArgs, ListenerConfig};
use super::{resume, resume_only_marked, scheme, serve_until_shutdown};
use crate::agent::{AgentShape, NoteOutput};
use crate::kind::{GroupOptions, Kind};
use crate::logs::Logs;
use crate::marks::{Marks, Trust};
use crate::mcp::McpServers;
use crate::memory;
use crate::store;
use crate::terminal::{chain, note, print_text, report_error};

/// The arguments of `levity serve http`.
#[derive(Args)]
pub(crate) struct Http {
    /// Address to listen on; port 0 selects a free port. `127.0.0.1:8787` by default, and a free
    /// port of the loopback for `levity ui`.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// File with the token that clients must send; created if it does not exist. By default
    /// `LEVITY_TOKEN`, or `levity/http.token` in the user's state folder.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Host name that clients may use for this server, besides loopback names; may be given more
    /// than once.
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// Origin of web pages that may call this server, besides the loopback; may be given more than
    /// once.
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,
    /// Store runs in this folder or SQLite file (`*.db`), and resume those that an earlier server
    /// left.
    #[arg(long, value_name = "PATH")]
    journal: Option<PathBuf>,
    #[command(flatten)]
    trust: Trust,
    /// Let clients read the plans in this folder.
    #[arg(long, value_name = "FOLDER")]
    sessions: Option<PathBuf>,
    /// Maximum number of runs that are in progress at the same time.
    #[arg(long, value_name = "N", default_value_t = Runs::DEFAULT_MAX_RUNS)]
    max_runs: usize,
    /// Let clients choose this model for a run, in place of that of `--model`; a name as for
    /// `--model`. May be given more than once.
    #[arg(long, value_name = "NAME")]
    offer_model: Vec<String>,
    /// Let clients list the agent's tools and call them directly, under the agent's policy.
    #[arg(long)]
    tool_routes: bool,
    /// Do not serve the web page at `/`.
    #[arg(long)]
    no_page: bool,
    #[command(flatten)]
    access: AccessArgs,
    /// Kind of run that works on the goals of clients.
    #[arg(long, value_enum, value_name = "KIND", default_value_t = Kind::Agent)]
    offer: Kind,
    #[command(flatten)]
    agent: AgentShape,
    #[command(flatten)]
    group: GroupOptions,
}

/// The address that is announced to the user.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Announce {
    /// The address of the API, for programs.
    Api,
    /// A link to the page with a login code, for the user's browser.
    Page,
}

/// Serves runs to programs, until a shutdown signal.
pub(super) async fn serve(args: Http) -> ExitCode {
    serve_as(args, Announce::Api).await
}

/// Serves the page on a free loopback port, and prints a link with a login code.
pub(crate) async fn ui(args: Http) -> ExitCode {
    serve_as(args, Announce::Page).await
}

/// Serves until a shutdown signal, then ends the MCP servers of the agent. All preparation,
/// including the token and the port, happens before the address is printed.
async fn serve_as(args: Http, announce: Announce) -> ExitCode {
    let started = match args.agent.common.logs.open() {
        Ok(logs) => args
            .start(&logs, announce)
            .await
            .map(|started| (started, logs)),
        Err(problem) => Err(problem),
    };
    // The logs stay open until the server has ended.
    let ((listener, (api, code), mcp_servers), _logs) = match started {
        Ok(started) => started,
        Err(problem) => return report_error(&problem, 2),
    };
    let report = |listener: &Listener| {
        let server = format!("{}://{}", scheme(listener), listener.address());
        print_text(&match code {
            Some(code) => format!("{server}/#code={code}\n"),
            None => format!("listening on {server}/v1\n"),
        });
    };
    mcp_servers
        .end(serve_until_shutdown(listener, report, |listener| api.serve(listener)).await)
        .await
}

/// A model that clients may choose, with its name as the operator wrote it.
type OfferedModel<'a> = (&'a str, Arc<dyn Model>);

/// Returns the runs of an agent, with the models that clients may choose.
///
/// Clients send the names as the operator wrote them. They cannot name an address, so no key goes
/// to a server that a client chose.
fn offer_models(agent: &Agent, offered: Vec<OfferedModel<'_>>) -> Result<Runs, String> {
    let card = agent.card();
    let default = format!("{}:{}", card.provider, card.id);
    let runs = Runs::new(agent.clone()).default_model(default);
    offered.into_iter().try_fold(runs, |runs, (name, model)| {
        let other = agent.to_builder().model(model).build();
        let other = other.map_err(|error| format!("`--offer-model {name}`: {error}"))?;
        Ok(runs.offer_model(name, other))
    })
}

impl Http {
    /// Returns the runtime, and the marks of the journal by which resumed runs are restricted;
    /// without a journal there is nothing to resume and hence no marks.
    fn runtime(&self) -> Result<(Runtime, Option<Arc<Marks>>), String> {
        let Some(path) = &self.journal else {
            note("runs end with this process; name a journal with `--journal` to store them");
            return Ok((Runtime::new(), None));
        };
        let journal = store::open_own(path, self.trust).map_err(|error| chain(&error))?;
        let marks = journal.marks();
        marks.serve_as("http");
        Ok((Runtime::new().with_journal(journal), Some(marks)))
    }

    /// Returns the runs for clients, the tools that clients may call directly, and the MCP servers
    /// that run beside them.
    ///
    /// Only a single agent has tools for direct calls; they share the agent's dispatcher, so its
    /// policy applies to them too.
    async fn runs(
        &self,
        runtime: Runtime,
        offered: Vec<OfferedModel<'_>>,
    ) -> Result<(Runs, Option<Dispatcher>, McpServers), String> {
        match self.offer {
            Kind::Agent => {
                let (agent, mcp_servers) = self.agent.builder(runtime, NoteOutput::Stderr).await?;
                let agent = agent.build().map_err(|error| chain(&error));
                let (agent, mcp_servers) = mcp_servers.beside(agent).await?;
                let tools = self.tool_routes.then(|| agent.dispatcher().clone());
                let runs = offer_models(&agent, offered);
                let (runs, mcp_servers) = mcp_servers.beside(runs).await?;
                Ok((runs, tools, mcp_servers))
            }
            kind => {
                let (runs, mcp_servers) =
                    self.group.runs(kind, &self.agent.common, runtime).await?;
                Ok((runs, None, mcp_servers))
            }
        }
    }

    /// Opens the models that clients may choose. A wrong name is reported before anything else is
    /// prepared.
    fn open_offered(&self) -> Result<Vec<OfferedModel<'_>>, String> {
        let common = &self.agent.common;
        let open = |name: &str| {
            let model = common.model.open_other(name, &common.options, note);
            model.map_err(|problem| format!("`--offer-model {name}`: {problem}"))
        };
        let names = self.offer_model.iter();
        names.map(|name| Ok((name.as_str(), open(name)?))).collect()
    }

    /// Returns the listener, its API, and the MCP servers that run beside the agent.
    ///
    /// The listener is bound before MCP servers are started: a port that is in use then fails fast
    /// and leaves no process behind. Requests wait in the listener's queue until the API is served,
    /// so no client sees a half-built server.
    async fn start(
        &self,
        logs: &Logs,
        announce: Announce,
    ) -> Result<(Listener, (HttpApi, Option<String>), McpServers), String> {
        self.group.check(self.offer, &self.agent)?;
        if self.tool_routes && self.offer != Kind::Agent {
            return Err(
                "`--tool-routes` applies only to a single agent; remove it or `--offer`".to_owned(),
            );
        }
        if !self.offer_model.is_empty() && self.offer != Kind::Agent {
            return Err(
                "`--offer-model` applies only to a single agent; remove it or `--offer`".to_owned(),
            );
        }
        let offered = self.open_offered()?;
        let (runtime, marks) = self.runtime()?;
        let address = match announce {
            Announce::Api => "127.0.0.1:8787",
            Announce::Page => "127.0.0.1:0",
        };
        let config = ListenerConfig {
            address: self.listen.as_deref().unwrap_or(address),
            token_file: self.token_file.as_deref(),
            token_name: "http.token",
            hosts: &self.allow_host,
            origins: &self.allow_origin,
        };
        // The listener creates the token if there is none.
        let listener = self.access.listen(&config).await?;
        let token = match announce {
            Announce::Api => None,
            Announce::Page => Some(self.access.own_token(&config)?),
        };
        let (runs, tools, mcp_servers) = self.runs(runtime.clone(), offered).await?;
        let runs = resume_only_marked(runs.on_event(logs.watcher(None)), marks);
        let api = self.api(runs, tools, &runtime, token).await;
        let (api, mcp_servers) = mcp_servers.beside(api).await?;
        Ok((listener, api, mcp_servers))
    }

    /// Resumes runs that an earlier server left, and returns the API, with a login code for the
    /// token.
    async fn api(
        &self,
        runs: Runs,
        tools: Option<Dispatcher>,
        runtime: &Runtime,
        token: Option<Token>,
    ) -> Result<(HttpApi, Option<String>), String> {
        let mut runs = runs.max_runs(self.max_runs);
        if let Some(percent) = self.access.token_share() {
            runs = runs.token_share(percent);
        }
        resume(&runs).await?;
        let mut api = HttpApi::new(runs);
        if !self.no_page || token.is_some() {
            api = api.page();
        }
        if let Some(tools) = tools {
            api = api.tools(tools);
        }
        if let Some(workspace) = self.agent.common.tools.open_workspace()? {
            api = api.workspace(workspace);
        }
        if let Some(path) = &self.agent.memory {
            api = api.conversations(memory::conversations(memory::open(path)?, runtime));
        }
        if let Some(folder) = &self.sessions {
            api = api.plans(levity::observe::SessionFolder::open(folder));
        }
        let Some(token) = token else {
            return Ok((api, None));
        };
        let (api, code) = api.login_code(token).map_err(|error| chain(&error))?;
        Ok((api, Some(code)))
    }
}
