//! The `levity` command.

mod agent;
mod complete;
mod follow;
mod run;
mod runs;
mod store;
mod terminal;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Run agents from the terminal.
#[derive(Parser)]
#[command(name = "levity", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Work on a goal and print the answer.
    Run(run::Run),
    /// Send one request to a model and print the reply.
    Complete(complete::Complete),
    /// Look at runs that were kept, and go on with them.
    Runs(runs::Runs),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Run(run) => run::run(run).await,
        Command::Complete(complete) => complete::complete(complete).await,
        Command::Runs(runs) => runs::runs(runs).await,
    }
}
