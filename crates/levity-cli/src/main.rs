//! The `levity` command: its subcommands and their options.
//!
//! One module for each subcommand parses its options with clap, builds parts of the `levity` crate
//! from them, and prints results. The program has no logic of agents of its own; a behaviour that a
//! library user would miss belongs into the crates below.
//!
//! Conventions that hold for all subcommands:
//!
//! - Standard output has the result, standard error has notes, questions and errors, each on one
//!   line with the prefix `levity: `.
//! - Errors name the next step after a semicolon.
//! - Exit codes are those of `EXIT_CODES`; scripts rely on them.
//! - Text of models, tools and files is sanitized before it is printed (`terminal`).
//! - Files of levity itself are out of reach of the agent's tools (`own_files`), and only runs of
//!   this user are driven (`marks`).
//!
//! `features` reports the parts that a build leaves out.
//!
//! Shared parts: `agent`, `tools`, `mcp`, `options` and `limits` define agents; `store`, `memory`,
//! `state` and `token` hold files; `follow` and `drive` show runs; `input` reads answers.

// Some functions of shared modules serve only `levity serve`.
#![cfg_attr(not(feature = "serve"), allow(dead_code))]

mod agent;
#[cfg(feature = "serve")]
mod bridge;
mod chat;
mod complete;
mod conversations;
mod docs;
mod drive;
#[cfg(feature = "eval")]
mod eval;
mod features;
mod follow;
mod given;
mod given_files;
mod init;
mod input;
mod kind;
mod limits;
mod logs;
mod marks;
mod mcp;
mod memory;
mod models;
mod options;
mod own_files;
mod plan;
mod recall;
mod run;
mod runs;
mod seals;
#[cfg(feature = "serve")]
mod serve;
mod sessions;
mod settings;
mod state;
mod store;
mod swarm;
mod team;
mod terminal;
#[cfg(feature = "serve")]
mod token;
mod tools;
mod usage;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};

use crate::terminal::report_error;

/// The list of exit codes that the help shows.
pub(crate) const EXIT_CODES: &str = "Exit codes:
  0    success: there is an answer
  1    failure: there is no answer
  2    invalid call: an option or a file is invalid, or a model is not available
  3    the run is waiting in its journal and can be resumed (run, runs, plan, swarm)
  4    partial success: only part of the work is done (plan, runs, swarm)
  130  cancelled by Ctrl-C or by the system";

/// Run agents from the terminal. Without a command, levity opens a session.
#[derive(Parser)]
#[command(name = "levity", version, after_help = EXIT_CODES)]
struct Cli {
    /// Ignore `levity.toml` in the current folder.
    #[arg(long, global = true)]
    no_settings: bool,
    /// Session that opens without a command.
    #[arg(long, value_enum, value_name = "COMMAND", default_value_t = Start::Chat)]
    start: Start,
    #[command(subcommand)]
    command: Command,
}

/// The sessions that can open without a command.
#[derive(Clone, Copy, ValueEnum)]
enum Start {
    /// A conversation with one agent.
    Chat,
    /// A session with a team.
    Team,
}

#[derive(Subcommand)]
enum Command {
    /// Work on a goal and print the answer.
    Run(run::Run),
    /// Talk to an agent, line by line.
    Chat(chat::Chat),
    /// List, print or delete stored conversations.
    Conversations(conversations::Conversations),
    /// Let agents of other programs use a folder, and an agent that works in it.
    #[cfg(feature = "serve")]
    Bridge(bridge::Bridge),
    /// Not in this build: needs the feature `serve`.
    #[cfg(not(feature = "serve"))]
    Bridge(features::LeftOut),
    /// Show the settings of this folder and where they come from.
    Config(settings::ConfigArgs),
    /// Send one request to a model and print the reply.
    Complete(complete::Complete),
    /// Search the documents of a folder.
    Docs(docs::Docs),
    /// Evaluate a model or a program on test cases, score the trials, and compare two subjects.
    #[cfg(feature = "eval")]
    Eval(eval::Eval),
    /// Not in this build: needs the feature `eval`.
    #[cfg(not(feature = "eval"))]
    Eval(features::LeftOut),
    /// Create a folder with settings, tools and agents, or a Rust program with an agent.
    Init(init::InitArgs),
    /// Clean up logs of runs.
    Logs(logs::LogsArgs),
    /// Inspect MCP servers and call their tools.
    Mcp(mcp::Mcp),
    /// Inspect models and their servers.
    Models(models::ModelsArgs),
    /// Plan the steps to a goal and have a team of agents carry them out.
    Plan(Box<plan::PlanArgs>),
    /// Inspect stored runs and resume them.
    Runs(runs::Runs),
    /// Serve an agent to other programs.
    #[cfg(feature = "serve")]
    Serve(serve::Serve),
    /// Not in this build: needs the feature `serve`.
    #[cfg(not(feature = "serve"))]
    Serve(features::LeftOut),
    /// Inspect stored sessions of `levity plan`.
    Sessions(sessions::Sessions),
    /// Work on a goal with a researcher, a coder and a reviewer, led by a router.
    Swarm(Box<swarm::SwarmArgs>),
    /// Give goal after goal to a team of agents.
    Team(Box<team::TeamArgs>),
    /// Report how commands are confined to a folder on this system.
    Sandbox(tools::SandboxArgs),
    /// Serve a page that shows and controls runs, and print a link to it.
    #[cfg(feature = "serve")]
    Ui(Box<serve::Ui>),
    /// Not in this build: needs the feature `serve`.
    #[cfg(not(feature = "serve"))]
    Ui(features::LeftOut),
    /// Show and accept the settings of this folder that start programs, change files or addresses.
    Trust(settings::TrustArgs),
}

/// The checks for worker processes come first, before clap and the async runtime: a worker has
/// other arguments and must stay small.
fn main() -> ExitCode {
    // This program also serves as the worker that runs Python in a separate process.
    #[cfg(feature = "python")]
    levity::python::worker_main();
    // It also reads one PDF, Office or other file in a separate process.
    #[cfg(feature = "formats")]
    levity::docs::FormatReader::serve_if_child();
    start()
}

/// Runs on a single thread, which suffices since runs mostly wait for the network; blocking work
/// uses tokio's pool. The paths of options are registered before a subcommand starts, and thereby
/// before any workspace is opened.
#[tokio::main(flavor = "current_thread")]
async fn start() -> ExitCode {
    let mut root = Cli::command();
    root.build();
    let matches = match matches(&root) {
        Ok(matches) => matches,
        Err(code) => return code,
    };
    own_files::register(&matches);
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => return usage::report(&error),
    };
    let code = match cli.command {
        Command::Run(run) => run::run(run).await,
        Command::Chat(chat) => chat::chat(chat).await,
        Command::Conversations(args) => conversations::conversations(args).await,
        #[cfg(feature = "serve")]
        Command::Bridge(args) => bridge::bridge(args).await,
        #[cfg(not(feature = "serve"))]
        Command::Bridge(args) => args.report("bridge", "serve"),
        Command::Config(args) => settings::config(&args, &root),
        Command::Docs(args) => docs::docs(args).await,
        Command::Complete(complete) => complete::complete(complete).await,
        #[cfg(feature = "eval")]
        Command::Eval(args) => eval::eval(args).await,
        #[cfg(not(feature = "eval"))]
        Command::Eval(args) => args.report("eval", "eval"),
        Command::Init(args) => init::init(&args, &root),
        Command::Logs(args) => logs::logs(&args),
        Command::Mcp(args) => mcp::mcp(args).await,
        Command::Models(args) => models::models(args).await,
        Command::Plan(args) => plan::plan(*args).await,
        Command::Runs(runs) => runs::runs(runs).await,
        #[cfg(feature = "serve")]
        Command::Serve(args) => serve::serve(args).await,
        #[cfg(not(feature = "serve"))]
        Command::Serve(args) => args.report("serve", "serve"),
        Command::Sessions(args) => sessions::sessions(args).await,
        Command::Swarm(args) => swarm::swarm(*args).await,
        Command::Team(args) => team::team(*args).await,
        Command::Sandbox(args) => tools::print_sandbox(&args),
        #[cfg(feature = "serve")]
        Command::Ui(args) => serve::ui(*args).await,
        #[cfg(not(feature = "serve"))]
        Command::Ui(args) => args.report("ui", "serve"),
        Command::Trust(args) => settings::trust(&args, &root),
    };
    settings::remove_copies();
    code
}

/// Parses the arguments of this call, together with the settings that apply to it.
///
/// A call without a command opens the session that `--start` or a setting names. An error that only
/// the settings cause names their file, because the user did not type the option that it is about.
fn matches(root: &clap::Command) -> Result<ArgMatches, ExitCode> {
    let mut given: Vec<_> = std::env::args_os().collect();
    if opens_session(&given) {
        let start = settings::start(root, &given).map_err(|problem| report_error(&problem, 2))?;
        given.push(start.into());
    }
    let all = settings::add(root, given.clone()).map_err(|problem| report_error(&problem, 2))?;
    let parse = |words| root.clone().try_get_matches_from(words);
    // The usage that follows a problem differs with the options that are given.
    let problem = |error: &clap::Error| {
        let text = error.to_string();
        text.split("\n\n").next().map(str::to_owned)
    };
    parse(all).map_err(|error| match parse(given) {
        Err(own) if problem(&own) == problem(&error) => usage::report(&own),
        _ if error.use_stderr() => {
            let text = usage::one_line(&error.render().to_string());
            report_error(&format!("`{}`: {text}", settings::FILE), 2)
        }
        _ => usage::report(&error),
    })
}

/// Returns `true` if a call has no command, and only options that do not exclude a session.
fn opens_session(words: &[OsString]) -> bool {
    let mut words = words.iter().skip(1).map(|word| word.to_string_lossy());
    while let Some(word) = words.next() {
        match &*word {
            "--no-settings" => {}
            "--start" => drop(words.next()),
            word if word.starts_with("--start=") => {}
            _ => return false,
        }
    }
    true
}
