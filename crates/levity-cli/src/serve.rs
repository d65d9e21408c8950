//! An agent offered to others.

use std::process::ExitCode;

use clap::{Args, Subcommand};

mod http;

/// How `levity serve` is called.
#[derive(Args)]
pub(crate) struct Serve {
    #[command(subcommand)]
    how: How,
}

#[derive(Subcommand)]
enum How {
    /// By HTTP: runs are started, followed and told what to do.
    Http(Box<http::Http>),
}

/// Serves until it is told to end: 0 then, 2 for a wrong call, 1 for what failed.
pub(crate) async fn serve(args: Serve) -> ExitCode {
    match args.how {
        How::Http(args) => http::serve(*args).await,
    }
}
