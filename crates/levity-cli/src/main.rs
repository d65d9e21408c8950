//! The `levity` command.

mod agent;
mod bridge;
mod chat;
mod complete;
mod conversations;
mod drive;
mod eval;
mod follow;
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
mod run;
mod runs;
mod serve;
mod sessions;
mod state;
mod store;
mod swarm;
mod terminal;
mod token;
mod tools;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

/// The exit codes, as the help shows them.
pub(crate) const EXIT_CODES: &str = "Exit codes:
  0    done: there is an answer
  1    it failed: there is no answer
  2    the call is wrong: an option, a file, a model that cannot be had
  3    the run waits in its journal, and can be resumed (run, runs, plan, swarm)
  4    some of it is done, but not all (plan, runs, swarm)
  130  cancelled by Ctrl-C or by the system";

/// Run agents from the terminal.
#[derive(Parser)]
#[command(name = "levity", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Work on a goal and print the answer.
    Run(run::Run),
    /// Talk with an agent, line by line.
    Chat(chat::Chat),
    /// Look at conversations that were kept.
    Conversations(conversations::Conversations),
    /// Let agents of other programs work with a folder, and with an agent in it.
    Bridge(bridge::Bridge),
    /// Send one request to a model and print the reply.
    Complete(complete::Complete),
    /// Evaluate a model or a program on cases, score the trials, and compare two subjects.
    Eval(eval::Eval),
    /// Clean up logs of runs.
    Logs(logs::LogsArgs),
    /// Look at MCP servers and call their tools.
    Mcp(mcp::Mcp),
    /// Look at models and their servers.
    Models(models::ModelsArgs),
    /// Have a plan made for a goal and carried out by a team of agents.
    Plan(Box<plan::PlanArgs>),
    /// Look at runs that were kept, and go on with them.
    Runs(runs::Runs),
    /// Offer an agent to others.
    Serve(serve::Serve),
    /// Look at plans that were carried out and kept.
    Sessions(sessions::Sessions),
    /// Have a goal worked on by a researcher, a coder and a reviewer, led by a router.
    Swarm(Box<swarm::SwarmArgs>),
    /// Say what really keeps commands in a folder on this system.
    Sandbox(tools::SandboxArgs),
}

fn main() -> ExitCode {
    // This program is also the one that runs Python, in a process of its own.
    levity::python::worker_main();
    start()
}

#[tokio::main(flavor = "current_thread")]
async fn start() -> ExitCode {
    let matches = Cli::command().get_matches();
    own_files::take_in(&matches);
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match cli.command {
        Command::Run(run) => run::run(run).await,
        Command::Chat(chat) => chat::chat(chat).await,
        Command::Conversations(args) => conversations::conversations(args).await,
        Command::Bridge(args) => bridge::bridge(args).await,
        Command::Complete(complete) => complete::complete(complete).await,
        Command::Eval(args) => eval::eval(args).await,
        Command::Logs(args) => logs::logs(&args),
        Command::Mcp(args) => mcp::mcp(args).await,
        Command::Models(args) => models::models(args).await,
        Command::Plan(args) => plan::plan(*args).await,
        Command::Runs(runs) => runs::runs(runs).await,
        Command::Serve(args) => serve::serve(args).await,
        Command::Sessions(args) => sessions::sessions(args).await,
        Command::Swarm(args) => swarm::swarm(*args).await,
        Command::Sandbox(report) => tools::report(&report),
    }
}
