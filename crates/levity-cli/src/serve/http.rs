//! Runs by HTTP.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use levity::prelude::*;
use levity::serve::http::HttpApi;
use levity::serve::{Listener, Runs};
use levity::tools::Dispatcher;

use super::reach::{At, Reach};
use super::{own, resume, scheme, until_told};
use crate::agent::{Made, Voice};
use crate::kind::{Kind, Several};
use crate::logs::Logs;
use crate::marks::{Marks, Trust};
use crate::mcp::Offered;
use crate::memory;
use crate::store;
use crate::terminal::{chain, complain, note, say};

/// How `levity serve http` is called.
#[derive(Args)]
pub(crate) struct Http {
    /// Where to listen; port 0 is any that is free.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8787")]
    listen: String,
    /// The file with the token that clients must show; made if it is not there. By default
    /// `LEVITY_TOKEN`, or `levity/http.token` in the user's state folder.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// A name that clients may call this server by, besides those of the loopback; may be given
    /// more than once.
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// Where pages may come from that call this server, besides the loopback; may be given more
    /// than once.
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,
    /// Keep runs in this folder or SQLite file (`*.db`), and go on with those that were left there.
    #[arg(long, value_name = "PATH")]
    journal: Option<PathBuf>,
    #[command(flatten)]
    trust: Trust,
    /// Offer the plans that are kept in this folder, to be read.
    #[arg(long, value_name = "FOLDER")]
    sessions: Option<PathBuf>,
    /// How many runs may be under way at once.
    #[arg(long, value_name = "N", default_value_t = Runs::DEFAULT_MOST)]
    max_runs: usize,
    /// Let clients list the agent's tools and call them by themselves, under the agent's policy.
    #[arg(long)]
    tool_routes: bool,
    #[command(flatten)]
    reach: Reach,
    /// The kind of run that works on the goals of clients.
    #[arg(long, value_enum, value_name = "KIND", default_value_t = Kind::Agent)]
    offer: Kind,
    #[command(flatten)]
    agent: Made,
    #[command(flatten)]
    several: Several,
}

pub(super) async fn serve(args: Http) -> ExitCode {
    let begun = match args.agent.common.logs.open() {
        Ok(logs) => args.begin(&logs).await.map(|begun| (begun, logs)),
        Err(problem) => Err(problem),
    };
    // What is logged is written until the end.
    let ((listener, api, offered), _logs) = match begun {
        Ok(begun) => begun,
        Err(problem) => return complain(&problem, 2),
    };
    let tell = |listener: &Listener| {
        say(&format!(
            "listening on {}://{}/v1\n",
            scheme(listener),
            listener.address()
        ));
    };
    offered
        .end(until_told(listener, tell, |listener| api.serve(listener)).await)
        .await
}

impl Http {
    fn runtime(&self) -> Result<(Runtime, Option<Arc<Marks>>), String> {
        let Some(path) = &self.journal else {
            note("runs end with this process; name a journal with `--journal` to keep them");
            return Ok((Runtime::new(), None));
        };
        let journal = store::open_own(path, self.trust).map_err(|error| chain(&error))?;
        let marks = journal.marks();
        Ok((Runtime::new().with_journal(journal), Some(marks)))
    }

    /// The runs for clients, the tools that are offered by themselves, and the MCP servers beside
    /// them.
    async fn runs(&self, runtime: Runtime) -> Result<(Runs, Option<Dispatcher>, Offered), String> {
        match self.offer {
            Kind::Agent => {
                let (agent, offered) = self.agent.builder(runtime, Voice::Aside).await?;
                let agent = agent.build().map_err(|error| chain(&error))?;
                let tools = self.tool_routes.then(|| agent.dispatcher().clone());
                Ok((Runs::new(agent), tools, offered))
            }
            kind => {
                let (runs, offered) = self.several.runs(kind, &self.agent.common, runtime).await?;
                Ok((runs, None, offered))
            }
        }
    }

    /// The listener, what is offered on it, and the MCP servers that run beside the agent.
    async fn begin(&self, logs: &Logs) -> Result<(Listener, HttpApi, Offered), String> {
        self.several.check(self.offer, &self.agent)?;
        if self.tool_routes && self.offer != Kind::Agent {
            return Err(
                "`--tool-routes` offers the tools of one agent; leave it or `--offer` out"
                    .to_owned(),
            );
        }
        let (runtime, marks) = self.runtime()?;
        let at = At {
            address: &self.listen,
            token_file: self.token_file.as_deref(),
            token_name: "http.token",
            hosts: &self.allow_host,
            origins: &self.allow_origin,
        };
        let listener = self.reach.listen(at).await?;
        let (runs, tools, offered) = self.runs(runtime.clone()).await?;
        let mut runs = runs.most(self.max_runs).on_event(logs.watcher(None));
        if let Some(percent) = self.reach.token_share() {
            runs = runs.token_share(percent);
        }
        let runs = own(runs, marks);
        resume(&runs).await?;
        let mut api = HttpApi::new(runs);
        if let Some(tools) = tools {
            api = api.tools(tools);
        }
        if let Some(path) = &self.agent.memory {
            api = api.conversations(memory::conversations(memory::open(path)?, &runtime));
        }
        if let Some(folder) = &self.sessions {
            api = api.plans(levity::observe::SessionFolder::open(folder));
        }
        Ok((listener, api, offered))
    }
}
