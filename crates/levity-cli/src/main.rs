//! The `levity` command.

mod run;

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
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Run(run) => run::run(run).await,
    }
}
