//! The tools that an agent of the command line has.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;
use levity::agent::AgentBuilder;
use levity::agents::AgentParts;
use levity::agents::ReadyWorkers;
use levity::context::ContextFiles;
use levity::core::{Tool, ToolSource as _, ToolSpec, Toolbox as _};
use levity::python::RunPython;
use levity::sandbox::{CommandPolicy, Level, Network, Sandbox, SandboxError, Workspace};
use levity::tools::{FileTools, FolderTools, Now, RunCommand, WebFetch};

use crate::own_files;
use crate::terminal::{chain, complain, note, say};

/// What the agent may touch.
#[derive(Args)]
pub(crate) struct ToolArgs {
    /// Let the agent work on the files of this folder, and run commands there. What only reads is
    /// allowed, other commands are asked about.
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// The files of the workspace are only read.
    #[arg(long, requires = "workspace")]
    read_only: bool,
    /// Run commands that begin with these words without asking, such as `cargo test` or
    /// `git status`; may be given more than once.
    #[arg(long, value_name = "WORDS", requires = "workspace", value_parser = first_words)]
    allow: Vec<String>,
    /// Run commands also where the system cannot keep them from other files and the network.
    #[arg(long, requires = "workspace")]
    weak: bool,
    /// Let commands use the network.
    #[arg(long, requires = "workspace")]
    network: bool,
    /// Leave out what the workspace says about itself, in `.context/*.md` and `AGENTS.md`.
    #[arg(long, requires = "workspace")]
    no_context: bool,
    /// Add the tools of this folder: Python files, and executables with a manifest.
    #[arg(long, value_name = "DIR")]
    tools: Option<PathBuf>,
    /// Let the agent fetch pages from the web.
    #[arg(long)]
    web: bool,
    /// Let the agent run Python that it wrote, in an interpreter that can touch nothing but the
    /// files of the workspace, by the same tools as the agent.
    #[arg(long)]
    python: bool,
}

/// What was asked for, before anybody has it.
struct Gathered {
    now: Arc<dyn Tool>,
    workspace: Option<Workspace>,
    command: Option<RunCommand>,
    web: Option<WebFetch>,
    folder: Option<FolderTools>,
    context: Option<ContextFiles>,
    /// What code in Python may call.
    for_python: Vec<ToolSpec>,
}

impl Gathered {
    /// The tools but those of the folder and of the workspace's files.
    fn tools(&mut self) -> Vec<Arc<dyn Tool>> {
        let mut tools = vec![self.now.clone()];
        tools.extend(
            self.command
                .take()
                .map(|tool| Arc::new(tool) as Arc<dyn Tool>),
        );
        tools.extend(self.web.take().map(|tool| Arc::new(tool) as Arc<dyn Tool>));
        tools
    }
}

impl ToolArgs {
    /// The agent with these tools and what the workspace says about itself; `tell` says what is
    /// worth knowing about the tools.
    pub(crate) fn add_to(
        &self,
        mut agent: AgentBuilder,
        quiet: bool,
        tell: impl Fn(&str),
    ) -> Result<AgentBuilder, String> {
        let mut offered = self.gather(quiet, tell)?;
        if let Some(context) = offered.context.take() {
            agent = agent.context(context);
        }
        agent = agent.tools(offered.tools());
        if let Some(workspace) = offered.workspace.take() {
            agent = agent.tools(FileTools::new(workspace));
        }
        if let Some(folder) = offered.folder {
            agent = agent.source(folder);
        }
        if self.python {
            agent = agent.program(RunPython::new().specs(offered.for_python));
        }
        Ok(agent)
    }

    /// The parts of a team with these tools, which agents that name them have.
    pub(crate) fn add_to_parts(
        &self,
        mut parts: AgentParts,
        quiet: bool,
        tell: impl Fn(&str),
    ) -> Result<AgentParts, String> {
        let mut offered = self.gather(quiet, tell)?;
        if let Some(context) = offered.context.take() {
            parts = parts.context(context);
        }
        parts = parts.tools(offered.tools());
        if let Some(workspace) = offered.workspace.take() {
            parts = parts.tools(FileTools::new(workspace));
        }
        if let Some(folder) = offered.folder {
            parts = parts.tools(folder.tools());
        }
        if self.python {
            parts = parts.code_with(|tools| Arc::new(RunPython::new().specs(tools.to_vec())));
        }
        Ok(parts)
    }

    /// Workers with these tools, each with those of its role, and what the workspace says about
    /// itself.
    pub(crate) fn add_to_ready(
        &self,
        ready: ReadyWorkers,
        quiet: bool,
        tell: impl Fn(&str),
    ) -> Result<ReadyWorkers, String> {
        let Gathered {
            now,
            workspace,
            command,
            web,
            folder,
            context,
            for_python,
        } = self.gather(quiet, tell)?;
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
        if let Some(folder) = folder {
            ready = ready.source(folder);
        }
        if let Some(context) = context {
            ready = ready.finish(move |_, agent| agent.context(context.clone()));
        }
        if self.python {
            ready = ready.finish(move |name, agent| match name {
                "coder" => agent.program(RunPython::new().specs(for_python.clone())),
                _ => agent,
            });
        }
        Ok(ready)
    }

    /// The workspace, if one is named.
    pub(crate) fn space(&self) -> Result<Option<Workspace>, String> {
        self.workspace
            .as_deref()
            .map(|folder| self.open(folder))
            .transpose()
    }

    /// What was asked for and reaches none of these workers, each with its option: only the
    /// researcher fetches pages, and only the coder writes files, runs commands and Python.
    pub(crate) fn unreached(&self, workers: &[&str]) -> Vec<&'static str> {
        let has = |name: &str| workers.contains(&name);
        let commands = !self.allow.is_empty() || self.weak || self.network;
        let lost = [
            (
                self.web && !has("researcher"),
                "`--web` reaches no worker; add `--worker researcher`",
            ),
            (
                self.python && !has("coder"),
                "`--python` reaches no worker; add `--worker coder`",
            ),
            (
                commands && !has("coder"),
                "`--allow`, `--weak` and `--network` reach no worker, since only the coder runs \
                    commands; add `--worker coder`",
            ),
        ];
        lost.into_iter()
            .filter(|(lost, _)| *lost)
            .map(|(_, text)| text)
            .collect()
    }

    fn gather(&self, quiet: bool, tell: impl Fn(&str)) -> Result<Gathered, String> {
        let mut gathered = Gathered {
            now: Arc::new(Now::new()),
            workspace: None,
            command: None,
            web: self.web.then(WebFetch::new),
            folder: None,
            context: None,
            for_python: Vec::new(),
        };
        if let Some(folder) = &self.workspace {
            let workspace = self.open(folder)?;
            gathered.context = (!self.no_context).then(|| context(&workspace, quiet));
            gathered.command = self.command(&workspace, &tell)?;
            let files = FileTools::new(workspace.clone()).into_tools();
            gathered.for_python = files.iter().map(|tool| tool.spec().clone()).collect();
            gathered.workspace = Some(workspace);
        }
        if let Some(folder) = &self.tools {
            let tools = FolderTools::open(folder).map_err(|error| chain(&error))?;
            tools.problems().iter().for_each(|problem| tell(problem));
            gathered.folder = Some(tools);
        }
        Ok(gathered)
    }

    /// How commands are run, where the system can keep them in the workspace or need not.
    fn command(
        &self,
        workspace: &Workspace,
        tell: impl Fn(&str),
    ) -> Result<Option<RunCommand>, String> {
        match self.sandbox(workspace) {
            Ok(sandbox) => Ok(Some(
                RunCommand::new(sandbox).policy(self.policy(workspace)),
            )),
            // Files are kept apart on every system that has handles on folders.
            Err(error @ SandboxError::Weak { .. }) => {
                tell(&format!(
                    "commands are left out: {}; `--weak` runs them all the same",
                    chain(&error)
                ));
                Ok(None)
            }
            Err(error) => Err(chain(&error)),
        }
    }

    fn open(&self, folder: &Path) -> Result<Workspace, String> {
        let builder = own_files::deny(folder, Workspace::builder(folder))?;
        let builder = if self.read_only {
            builder.read_only()
        } else {
            builder
        };
        builder
            .build()
            .map_err(|error| format!("`{}`: {}", folder.display(), chain(&error)))
    }

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
            .at_least(level)
            .build()
    }

    fn policy(&self, workspace: &Workspace) -> CommandPolicy {
        let allow = |policy: CommandPolicy, words: &String| policy.allow(words);
        self.allow
            .iter()
            .fold(CommandPolicy::new().within(workspace), allow)
    }
}

/// The first words of commands that may run.
fn first_words(text: &str) -> Result<String, String> {
    match text.split_whitespace().next() {
        Some(_) => Ok(text.to_owned()),
        None => Err(
            "it has no words, and would allow no command; name one, such as `cargo test`"
                .to_owned(),
        ),
    }
}

/// What the workspace says about itself, down to the folder in which the command was called. What
/// was taken is said when it is, and again when it is something else: a run that goes on from its
/// journal takes nothing.
fn context(workspace: &Workspace, quiet: bool) -> ContextFiles {
    let here = std::env::current_dir().ok();
    let here = here
        .as_deref()
        .and_then(|here| here.strip_prefix(workspace.root()).ok()?.to_str());
    // It may be a folder that nobody may touch.
    let here = here
        .filter(|here| workspace.dir(here).is_ok())
        .unwrap_or(".");
    let told = Mutex::new(String::new());
    ContextFiles::new(workspace)
        .working_dir(here)
        .on_read(move |taken| {
            let taken: Vec<_> = taken.iter().map(ToString::to_string).collect();
            // A name may have several lines.
            let taken = taken.join(", ").replace('\n', "\u{fffd}");
            let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
            if !quiet && !taken.is_empty() && *told != taken {
                note(&format!("context: {taken}"));
            }
            *told = taken;
        })
}

/// How `levity sandbox` is called.
#[derive(Args)]
pub(crate) struct SandboxArgs {
    /// The folder.
    #[arg(default_value = ".")]
    folder: PathBuf,
}

/// Prints what holds commands here.
pub(crate) fn report(args: &SandboxArgs) -> ExitCode {
    let sandbox = Workspace::open(&args.folder)
        .map_err(|error| chain(&error))
        .and_then(|workspace| {
            Sandbox::builder(workspace)
                .at_least(Level::Open)
                .build()
                .map_err(|error| chain(&error))
        });
    match sandbox {
        Ok(sandbox) => {
            say(&format!("{}\n", sandbox.report()));
            ExitCode::SUCCESS
        }
        Err(problem) => complain(&problem, 1),
    }
}
