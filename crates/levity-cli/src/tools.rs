//! The tools that an agent of the command line has.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use clap::Args;
use levity::agent::AgentBuilder;
use levity::context::ContextFiles;
use levity::core::{ToolSource as _, Toolbox as _};
use levity::python::RunPython;
use levity::sandbox::{CommandPolicy, Level, Network, Sandbox, SandboxError, Workspace};
use levity::tools::{FileTools, FolderTools, Now, RunCommand, WebFetch};

use crate::terminal::{chain, complain, note, say};

/// What the agent may touch.
#[derive(Args)]
pub(crate) struct ToolArgs {
    /// Let the agent work on the files of this folder, and run commands there. What only reads is allowed, other
    /// commands are asked about.
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// The files of the workspace are only read.
    #[arg(long, requires = "workspace")]
    read_only: bool,
    /// Run commands that begin with these words without asking; may be given more than once.
    #[arg(long, value_name = "WORDS", requires = "workspace")]
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
    /// Let the agent run Python that it wrote, in an interpreter that can touch nothing but the files of the workspace,
    /// by the same tools as the agent.
    #[arg(long)]
    python: bool,
}

impl ToolArgs {
    /// The agent with these tools and what the workspace says about itself; `tell` says what is worth knowing about the
    /// tools.
    pub(crate) fn add_to(
        &self,
        mut agent: AgentBuilder,
        quiet: bool,
        tell: impl Fn(&str),
    ) -> Result<AgentBuilder, String> {
        agent = agent.tool(Now::new());
        let mut python = RunPython::new();
        if let Some(folder) = &self.workspace {
            let workspace = self.open(folder)?;
            if !self.no_context {
                agent = agent.context(context(&workspace, quiet));
            }
            agent = match self.sandbox(&workspace) {
                Ok(sandbox) => agent.tool(RunCommand::new(sandbox).policy(self.policy(&workspace))),
                // Files are kept apart on every system that has handles on folders.
                Err(error @ SandboxError::Weak { .. }) => {
                    tell(&format!(
                        "commands are left out: {}; `--weak` runs them all the same",
                        chain(&error)
                    ));
                    agent
                }
                Err(error) => return Err(chain(&error)),
            };
            let files = FileTools::new(workspace).into_tools();
            python = python.specs(files.iter().map(|tool| tool.spec().clone()));
            agent = agent.tools(files);
        }
        if let Some(folder) = &self.tools {
            let tools = FolderTools::open(folder).map_err(|error| chain(&error))?;
            tools.problems().iter().for_each(|problem| tell(problem));
            agent = agent.source(tools);
        }
        if self.web {
            agent = agent.tool(WebFetch::new());
        }
        if self.python {
            agent = agent.program(python);
        }
        Ok(agent)
    }

    fn open(&self, folder: &Path) -> Result<Workspace, String> {
        let builder = Workspace::builder(folder);
        let builder = if self.read_only { builder.read_only() } else { builder };
        builder.build().map_err(|error| format!("`{}`: {}", folder.display(), chain(&error)))
    }

    fn sandbox(&self, workspace: &Workspace) -> Result<Sandbox, SandboxError> {
        let network = if self.network { Network::Any } else { Network::None };
        let level = if self.weak { Level::Open } else { Level::Guarded };
        Sandbox::builder(workspace).network(network).at_least(level).build()
    }

    fn policy(&self, workspace: &Workspace) -> CommandPolicy {
        let allow = |policy: CommandPolicy, words: &String| policy.allow(words);
        self.allow.iter().fold(CommandPolicy::new().within(workspace), allow)
    }
}

/// What the workspace says about itself, down to the folder in which the command was called. What was taken is said
/// when it is, and again when it is something else: a run that goes on from its journal takes nothing.
fn context(workspace: &Workspace, quiet: bool) -> ContextFiles {
    let here = std::env::current_dir().ok();
    let here = here.as_deref().and_then(|here| here.strip_prefix(workspace.root()).ok()?.to_str());
    // It may be a folder that nobody may touch.
    let here = here.filter(|here| workspace.dir(here).is_ok()).unwrap_or(".");
    let told = Mutex::new(String::new());
    ContextFiles::new(workspace).working_dir(here).on_read(move |taken| {
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
pub(crate) struct SandboxReport {
    /// The folder.
    #[arg(default_value = ".")]
    folder: PathBuf,
}

/// Prints what holds commands here.
pub(crate) fn report(args: &SandboxReport) -> ExitCode {
    let sandbox = Workspace::open(&args.folder).map_err(|error| chain(&error)).and_then(|workspace| {
        Sandbox::builder(workspace).at_least(Level::Open).build().map_err(|error| chain(&error))
    });
    match sandbox {
        Ok(sandbox) => {
            say(&format!("{}\n", sandbox.report()));
            ExitCode::SUCCESS
        }
        Err(problem) => complain(&problem, 1),
    }
}
