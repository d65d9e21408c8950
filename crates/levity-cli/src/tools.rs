//! The tools of an agent on the command line.
//!
//! The options of this module turn into tools in three ways, one for each kind of run: a builder of
//! one agent (`add_to`), the parts of a team (`add_to_parts`) and the preset workers of a swarm
//! (`add_to_workers`). All three collect the same `ToolSet` first, so an option means the same for
//! each kind.
//!
//! Defaults are safe. Without options an agent has only the clock. `--workspace` adds files and
//! commands of one folder; commands require a sandbox of the level `Guarded` without network. A
//! system that cannot provide this level loses the commands, with a note, and not the files.
//! `--weak` lowers the level, `--network` opens the network, and `--allow` removes the approval for
//! commands that begin with the given words.
//!
//! levity's own files below the workspace (journals, memories, keys) are denied to the tools, and
//! those below the folder of `--tools` to its executables; see `own_files`. A problem with an
//! option is an `Err` with one line, which the commands print with exit code 2.

use std::net::ToSocketAddrs as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;
use levity::agent::AgentBuilder;
use levity::agents::AgentParts;
use levity::agents::PresetWorkers;
use levity::context::ContextFiles;
use levity::core::{Tool, ToolSource};
#[cfg(feature = "python")]
use levity::core::{ToolSpec, Toolbox as _};
#[cfg(feature = "python")]
use levity::python::RunPython;
use levity::sandbox::{CommandPolicy, Level, NetGuard, Network, Sandbox, SandboxError, Workspace};
use levity::tools::{
    Brave, ExecutableLoader, FileTools, FolderTools, Now, RunCommand, SearXng, WebFetch, WebSearch,
    WriteArtifact,
};
use url::Url;

use crate::features;
use crate::own_files;
use crate::settings;
use crate::terminal::{chain, note, print_text, report_error};

/// The options for tools, files, commands and the web.
#[derive(Args)]
pub(crate) struct ToolArgs {
    /// Let the agent work on the files of this folder and run commands there. Commands that only
    /// read are allowed; other commands need approval.
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// Let the agent only read the files of the workspace.
    #[arg(long, requires = "workspace")]
    read_only: bool,
    /// Run commands that begin with these words without approval, such as `cargo test` or
    /// `git status`; may be given more than once.
    #[arg(long, value_name = "WORDS", requires = "workspace", value_parser = first_words)]
    allow: Vec<String>,
    /// Run commands even if the system cannot isolate them from other files and the network.
    #[arg(long, requires = "workspace")]
    weak: bool,
    /// Let commands use the network.
    #[arg(long, requires = "workspace")]
    network: bool,
    /// Ignore the context files of the workspace, `.context/*.md` and `AGENTS.md`.
    #[arg(long, requires = "workspace")]
    no_context: bool,
    /// Add the tools of this folder: Python files, and executables with a manifest.
    #[arg(long, value_name = "DIR")]
    tools: Option<PathBuf>,
    /// Let the agent fetch pages from the web, and search it if the environment has
    /// `BRAVE_API_KEY`, or if `--searxng` names a server.
    #[arg(long)]
    web: bool,
    /// Address of a SearXNG server with which agents search the web.
    #[arg(long, value_name = "URL", requires = "web")]
    searxng: Option<String>,
    /// Let the agent run its own Python code, in an interpreter that reaches only the files of the
    /// workspace, through the same tools as the agent.
    #[arg(long)]
    python: bool,
}

/// The requested tools, before they are added to agents.
///
/// Each part is taken out once, by the function that adds it. Parts stay separate because the three
/// kinds of runs add them by different methods: a source can change its tools while an agent runs,
/// while the parts of a team hold a fixed list.
struct ToolSet {
    now: Arc<dyn Tool>,
    /// The folder for the file tools; also the working folder of commands.
    workspace: Option<Workspace>,
    command: Option<RunCommand>,
    web: Option<WebFetch>,
    search: Option<WebSearch>,
    folder: Option<Arc<dyn ToolSource>>,
    context: Option<ContextFiles>,
    /// The tools that Python code may call.
    /// The index of the workspace's documents, if the user has created one.
    documents: Option<levity::docs::DocumentIndex>,
    #[cfg(feature = "python")]
    for_python: Vec<ToolSpec>,
}

impl ToolSet {
    /// Returns the tools, except those of the folder and those for files of the workspace.
    ///
    /// Commands and web are moved out, so a second call returns only the clock.
    fn tools(&mut self) -> Vec<Arc<dyn Tool>> {
        let mut tools = vec![self.now.clone()];
        tools.extend(
            self.command
                .take()
                .map(|tool| Arc::new(tool) as Arc<dyn Tool>),
        );
        tools.extend(self.web.take().map(|tool| Arc::new(tool) as Arc<dyn Tool>));
        let search = self.search.take();
        tools.extend(search.map(|tool| Arc::new(tool) as Arc<dyn Tool>));
        tools
    }
}

impl ToolArgs {
    /// Adds these tools and the context files of the workspace to the agent; `report` receives
    /// notes about the tools.
    ///
    /// Tools of the folder (`--tools`) are added as a source, so files that change while the agent
    /// runs take effect. Python code may call the file tools only: it receives their specifications
    /// and every call passes the agent's own policy.
    pub(crate) fn add_to(
        &self,
        mut agent: AgentBuilder,
        quiet: bool,
        report: impl Fn(&str),
    ) -> Result<AgentBuilder, String> {
        let mut mcp_servers = self.collect_tools(quiet, report)?;
        if let Some(context) = mcp_servers.context.take() {
            agent = agent.context(context);
        }
        agent = agent.tools(mcp_servers.tools());
        if let Some(workspace) = mcp_servers.workspace.take() {
            agent = agent.tools(FileTools::new(workspace));
        }
        if let Some(documents) = mcp_servers.documents {
            agent = agent.tools(documents);
        }
        if let Some(folder) = mcp_servers.folder {
            agent = agent.source(folder);
        }
        #[cfg(feature = "python")]
        if self.python {
            agent = agent.program(RunPython::new().specs(mcp_servers.for_python));
        }
        Ok(agent)
    }

    /// Adds these tools to the parts of a team, for agents that name them.
    ///
    /// The agents of a team are described in a file that names tools, so these parts are an offer:
    /// an agent that does not name a tool does not have it. The folder's tools are read once, and
    /// later changes of its files have no effect.
    pub(crate) fn add_to_parts(
        &self,
        mut parts: AgentParts,
        quiet: bool,
        report: impl Fn(&str),
    ) -> Result<AgentParts, String> {
        let mut mcp_servers = self.collect_tools(quiet, report)?;
        if let Some(context) = mcp_servers.context.take() {
            parts = parts.context(context);
        }
        parts = parts.tools(mcp_servers.tools());
        if let Some(workspace) = mcp_servers.workspace.take() {
            parts = parts.tools(FileTools::new(workspace.clone()));
            if !workspace.is_read_only() {
                parts = parts.tool(WriteArtifact::new(workspace));
            }
        }
        if let Some(documents) = mcp_servers.documents {
            parts = parts.tools(documents);
        }
        if let Some(folder) = mcp_servers.folder {
            parts = parts.tools(folder.tools());
        }
        #[cfg(feature = "python")]
        if self.python {
            parts = parts.code_with(|tools| Arc::new(RunPython::new().specs(tools.to_vec())));
        }
        Ok(parts)
    }

    /// Adds to each worker the tools of its role and the context files of the workspace.
    ///
    /// The preset workers decide by their role which parts they use: each has the clock and the
    /// context files, only the researcher fetches pages, and only the coder runs commands and
    /// Python code.
    pub(crate) fn add_to_workers(
        &self,
        ready: PresetWorkers,
        quiet: bool,
        report: impl Fn(&str),
    ) -> Result<PresetWorkers, String> {
        let ToolSet {
            now,
            workspace,
            command,
            web,
            search,
            folder,
            context,
            documents,
            #[cfg(feature = "python")]
            for_python,
        } = self.collect_tools(quiet, report)?;
        let mut ready = ready.tools(vec![now]);
        if let Some(workspace) = workspace {
            ready = ready.workspace(workspace);
        }
        if let Some(command) = command {
            ready = ready.commands(command);
        }
        if let Some(web) = web {
            ready = ready.web(web);
        }
        if let Some(search) = search {
            ready = ready.web_search(search);
        }
        if let Some(documents) = documents {
            ready = ready.tools(documents);
        }
        if let Some(folder) = folder {
            ready = ready.source(folder);
        }
        if let Some(context) = context {
            ready = ready.customize(move |_, agent| agent.context(context.clone()));
        }
        #[cfg(feature = "python")]
        if self.python {
            ready = ready.customize(move |name, agent| match name {
                "coder" => agent.program(RunPython::new().specs(for_python.clone())),
                _ => agent,
            });
        }
        Ok(ready)
    }

    /// Opens the workspace, if one is named.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be opened, or conflicts with levity's own files.
    pub(crate) fn open_workspace(&self) -> Result<Option<Workspace>, String> {
        self.workspace
            .as_deref()
            .map(|folder| self.open(folder))
            .transpose()
    }

    /// Returns a note for each option that affects none of these workers. Only the researcher
    /// fetches pages, and only the coder writes files, runs commands and Python.
    ///
    /// For example, `--web` with the workers `coder` and `reviewer` returns one note. The notes are
    /// warnings and not errors, because a script may select workers and options independently.
    pub(crate) fn unused_options(&self, workers: &[&str]) -> Vec<&'static str> {
        let has = |name: &str| workers.contains(&name);
        let commands = !self.allow.is_empty() || self.weak || self.network;
        let unused = [
            (
                self.web && !has("researcher"),
                "`--web` has no effect on any worker; add `--worker researcher`",
            ),
            (
                self.python && !has("coder"),
                "`--python` has no effect on any worker; add `--worker coder`",
            ),
            (
                commands && !has("coder"),
                "`--allow`, `--weak` and `--network` have no effect on any worker, because only \
                    the coder runs commands; add `--worker coder`",
            ),
        ];
        unused
            .into_iter()
            .filter(|(unused, _)| *unused)
            .map(|(_, text)| text)
            .collect()
    }

    /// Opens all that the options name, and reports problems of single files in the folder of tools
    /// through `report`; a folder that cannot be read at all is an error. The sandbox is built here
    /// too, so that a wrong option fails before a model is called.
    fn collect_tools(&self, quiet: bool, report: impl Fn(&str)) -> Result<ToolSet, String> {
        if self.python && !cfg!(feature = "python") {
            return Err(features::missing("--python", "python"));
        }
        let mut set = ToolSet {
            now: Arc::new(Now::new()),
            workspace: None,
            command: None,
            web: self.web.then(WebFetch::new),
            search: self.search()?,
            folder: None,
            context: None,
            documents: None,
            #[cfg(feature = "python")]
            for_python: Vec::new(),
        };
        if let Some(folder) = &self.workspace {
            let workspace = self.open(folder)?;
            set.documents = crate::docs::index_of(folder, &report);
            set.context = (!self.no_context).then(|| context(&workspace, quiet));
            set.command = self.command(&workspace, &report)?;
            #[cfg(feature = "python")]
            {
                let files = FileTools::new(workspace.clone()).into_tools();
                set.for_python = files.iter().map(|tool| tool.spec().clone()).collect();
            }
            set.workspace = Some(workspace);
        }
        if let Some(folder) = &self.tools {
            let globs = own_files::globs_in_tools(folder)?;
            let loader = globs
                .into_iter()
                .fold(ExecutableLoader::default(), ExecutableLoader::deny);
            let tools = settings::tools(folder, |folder| {
                let tools = FolderTools::builder(folder).loader(loader).build();
                tools.map_err(|error| chain(&error))
            })?;
            tools.problems().iter().for_each(|problem| report(problem));
            set.folder = Some(tools);
        }
        Ok(set)
    }

    /// Returns the tool that searches the web, if a service is configured. The user names the
    /// server, so it may be a local one without encryption.
    fn search(&self) -> Result<Option<WebSearch>, String> {
        if !self.web {
            return Ok(None);
        }
        if let Some(address) = &self.searxng {
            let (address, guard) = guard_for(address)
                .map_err(|problem| format!("`--searxng {address}`: {problem}"))?;
            return Ok(Some(WebSearch::new(SearXng::new(address).guard(guard))));
        }
        let key = std::env::var("BRAVE_API_KEY").ok();
        let key = key.filter(|key| !key.trim().is_empty());
        Ok(key.map(|key| WebSearch::new(Brave::new(key))))
    }

    /// Returns the tool for commands, if the system can confine them to the workspace or `--weak`
    /// is set.
    ///
    /// A sandbox below the required level is a note and not an error: the agent then works without
    /// commands. The same holds if levity's own files are in the workspace and the sandbox cannot
    /// hide them: a command could approve its own calls there, or name programs for the next start.
    fn command(
        &self,
        workspace: &Workspace,
        report: impl Fn(&str),
    ) -> Result<Option<RunCommand>, String> {
        match self.sandbox(workspace) {
            Ok(sandbox) => {
                let hides = self.weak || sandbox.report().hidden_files.is_enforced;
                if let Some(source) = own_files::first_below(workspace.root()).filter(|_| !hides) {
                    report(&format!(
                        "the agent cannot run commands: this system cannot protect `{source}` \
                            from commands in the workspace; choose a path outside of it, or use \
                            `--weak` to run them anyway"
                    ));
                    return Ok(None);
                }
                Ok(Some(
                    RunCommand::new(sandbox).policy(self.policy(workspace)),
                ))
            }
            // Every system with handles on folders can isolate files, so only commands are left
            // out.
            Err(error @ SandboxError::InsufficientLevel { .. }) => {
                report(&format!(
                    "the agent cannot run commands: {}; use `--weak` to run them anyway",
                    chain(&error)
                ));
                Ok(None)
            }
            Err(error) => Err(chain(&error)),
        }
    }

    /// Opens the folder with levity's own files denied, and read-only if requested. The error names
    /// the folder once, also when the cause already begins with its name.
    fn open(&self, folder: &Path) -> Result<Workspace, String> {
        let builder = own_files::deny(folder, Workspace::builder(folder))?;
        let builder = if self.read_only {
            builder.read_only()
        } else {
            builder
        };
        builder.build().map_err(|error| {
            let (folder, problem) = (format!("`{}`", folder.display()), chain(&error));
            match problem.starts_with(&folder) {
                true => problem,
                false => format!("{folder}: {problem}"),
            }
        })
    }

    /// Builds the sandbox for commands. `--weak` asks for the level `Open`, which every system
    /// provides; otherwise `Guarded` is required and its absence is the error `InsufficientLevel`.
    fn sandbox(&self, workspace: &Workspace) -> Result<Sandbox, SandboxError> {
        let network = if self.network {
            Network::Any
        } else {
            Network::None
        };
        let level = if self.weak {
            Level::Open
        } else {
            Level::Guarded
        };
        Sandbox::builder(workspace)
            .network(network)
            .require_level(level)
            .build()
    }

    /// Returns the policy for commands: those that only read are allowed within the workspace,
    /// those that begin with the words of an `--allow` too, and all others need approval.
    fn policy(&self, workspace: &Workspace) -> CommandPolicy {
        let allow = |policy: CommandPolicy, words: &String| policy.allow(words);
        self.allow
            .iter()
            .fold(CommandPolicy::new().with_workspace(workspace), allow)
    }
}

/// Returns the address of a server and a guard that allows it, which may be a local one, and
/// otherwise only public addresses.
///
/// The guard refuses names of local networks such as `localhost`, so the returned address has the
/// number in place of such a name.
fn guard_for(address: &str) -> Result<(String, NetGuard), String> {
    const EXAMPLE: &str = "use an address such as `http://127.0.0.1:8888`";
    let mut url = Url::parse(address).map_err(|error| format!("{error}; {EXAMPLE}"))?;
    let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
        return Err(format!("it names no server; {EXAMPLE}"));
    };
    // A name of a local server is resolved once, so that it cannot lead elsewhere later.
    let bare = host.trim_matches(['[', ']']);
    let addresses = (bare, port)
        .to_socket_addrs()
        .map_err(|error| format!("`{host}` was not found: {error}; check the address"))?;
    let addresses: Vec<_> = addresses.map(|address| address.ip()).collect();
    let mut guard = NetGuard::builder().allow_port(port);
    for address in &addresses {
        guard = guard.allow_address(address.to_string());
    }
    if url.scheme() == "http" {
        guard = guard.allow_http();
        // IPv4 first, because a server that listens on `127.0.0.1` does not answer at `::1`.
        let local = addresses.iter().filter(|address| address.is_loopback());
        if let Some(address) = local.min_by_key(|address| address.is_ipv6()) {
            let _ = url.set_ip_host(*address);
        }
    }
    let guard = guard.build().map_err(|error| chain(&error))?;
    Ok((url.as_str().trim_end_matches('/').to_owned(), guard))
}

/// Parses the first words of commands that may run.
///
/// A value of blanks would match every command, so it is refused here instead of being passed to
/// the policy.
fn first_words(text: &str) -> Result<String, String> {
    match text.split_whitespace().next() {
        Some(_) => Ok(text.to_owned()),
        None => Err("the value has no words; name a command, such as `cargo test`".to_owned()),
    }
}

/// Returns the context files of the workspace, down to the folder in which the command was called.
/// Prints their names when they are read, and again when they change. A run that is resumed from
/// its journal reads none.
///
/// Names of files are untrusted: a name with a line break could forge a note of levity, so breaks
/// are replaced before the note is printed. Nothing is printed when `quiet` is set, or when the
/// same names are read again at the next turn.
fn context(workspace: &Workspace, quiet: bool) -> ContextFiles {
    let here = std::env::current_dir().ok();
    let here = here
        .as_deref()
        .and_then(|here| here.strip_prefix(workspace.root()).ok()?.to_str());
    // The tools may have no access to this folder.
    let here = here
        .filter(|here| workspace.dir(here).is_ok())
        .unwrap_or(".");
    let reported = Mutex::new(String::new());
    ContextFiles::new(workspace)
        .working_dir(here)
        .on_read(move |names| {
            let names: Vec<_> = names.iter().map(ToString::to_string).collect();
            // A name may have several lines.
            let names = names.join(", ").replace('\n', "\u{fffd}");
            let mut reported = reported.lock().unwrap_or_else(PoisonError::into_inner);
            if !quiet && !names.is_empty() && *reported != names {
                note(&format!("context: {names}"));
            }
            *reported = names;
        })
}

/// The arguments of `levity sandbox`.
#[derive(Args)]
pub(crate) struct SandboxArgs {
    /// Folder in which the commands would run.
    #[arg(default_value = ".")]
    folder: PathBuf,
}

/// Prints how commands are confined in a folder.
///
/// The sandbox is built at the level `Open`, so that a weak system is described instead of refused.
/// Exit codes: 0, or 1 if the folder cannot be opened.
pub(crate) fn print_sandbox(args: &SandboxArgs) -> ExitCode {
    let sandbox = Workspace::open(&args.folder)
        .map_err(|error| chain(&error))
        .and_then(|workspace| {
            Sandbox::builder(workspace)
                .require_level(Level::Open)
                .build()
                .map_err(|error| chain(&error))
        });
    match sandbox {
        Ok(sandbox) => {
            print_text(&format!("{}\n", sandbox.report()));
            ExitCode::SUCCESS
        }
        Err(problem) => report_error(&problem, 1),
    }
}
