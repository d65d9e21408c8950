//! An agent offered to others.

use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};
use levity::core::CancelToken;
use levity::serve::{Listener, Runs};

use crate::drive::told_to_end;
use crate::marks::Marks;
use crate::terminal::{chain, complain, note};

mod http;
mod mcp;
mod reach;
mod tokens;

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
    /// To MCP clients, by the tool `query`: over stdin and stdout, or by HTTP.
    Mcp(Box<mcp::ServeMcp>),
    /// Tokens with names and scopes, whose runs and conversations are separate.
    Token(tokens::TokenCommand),
}

/// Serves until it is told to end: 0 then, 2 for a wrong call, 1 for what failed.
pub(crate) async fn serve(args: Serve) -> ExitCode {
    match args.how {
        How::Http(args) => http::serve(*args).await,
        How::Mcp(args) => mcp::serve(*args).await,
        How::Token(args) => tokens::tokens(&args),
    }
}

/// Serves on a listener until this process is asked to end, and says how that went. `tell` says
/// where it is.
async fn until_told<F>(
    listener: Listener,
    tell: impl FnOnce(&Listener),
    serve: impl FnOnce(Listener) -> F,
) -> ExitCode
where
    F: Future<Output = levity::serve::Result<()>>,
{
    let mut ended = pin!(asked_to_end());
    // Signals are listened for before anybody can know that the server is there.
    tokio::select! {
        biased;
        () = &mut ended => return ExitCode::SUCCESS,
        () = std::future::ready(()) => tell(&listener),
    }
    let stop = CancelToken::new();
    let mut serving = pin!(serve(listener.until(stop.clone())));
    let served = tokio::select! {
        served = &mut serving => served,
        () = &mut ended => {
            stop.cancel();
            serving.await
        }
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&chain(&error), 1),
    }
}

/// How the addresses of a listener begin.
fn scheme(listener: &Listener) -> &'static str {
    if listener.is_encrypted() {
        "https"
    } else {
        "http"
    }
}

/// Until Ctrl-C, or until the system wants this process to end.
pub(crate) async fn asked_to_end() {
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        () = told_to_end() => {}
    }
}

/// The runs of a server that resumes only those that are marked, or trusted.
pub(crate) fn own(runs: Runs, marks: Option<Arc<Marks>>) -> Runs {
    match marks {
        Some(marks) => runs.resume_if(move |run| marks.check(run)),
        None => runs,
    }
}

/// Goes on with what an earlier server left, and says what cannot be gone on with.
async fn resume(runs: &Runs) -> Result<(), String> {
    for (run, error) in runs.resume_all().await.map_err(|error| chain(&error))? {
        note(&format!(
            "run {run} was not gone on with: {}",
            chain(&error)
        ));
    }
    if runs.queued() > 0 {
        note(&format!(
            "{} runs of an earlier server wait, and go on when others have ended",
            runs.queued()
        ));
    }
    Ok(())
}
