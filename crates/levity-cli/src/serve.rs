//! The commands that serve an agent to other programs.
//!
//! `http` serves runs to programs, `mcp` serves a tool to models of other programs, `docs` serves
//! documents to them, `tokens` manages the tokens of the first two, and `health` checks the first;
//! `access` holds what the two servers share. This module has the life cycle: it installs signal
//! handlers, announces the address, serves, and stops in order.
//!
//! Ctrl-C or a termination signal stops a server gracefully: the listener accepts no more
//! connections and requests in progress may end. Runs in a journal stay there and are resumed by
//! the next server. Only runs that this user marked, or trusts by option, are resumed, because a
//! journal may come from somewhere else. Runs of other commands in the same journal stay untouched:
//! they may wait for an answer, and their user resumes them.

use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};
use levity::core::CancelToken;
use levity::serve::{Listener, Runs};

use crate::drive::termination_signal;
use crate::marks::Marks;
use crate::terminal::{chain, note, report_error};

mod access;
mod docs;
mod health;
mod http;
mod mcp;
mod tokens;

/// The arguments of `levity serve`.
#[derive(Args)]
pub(crate) struct Serve {
    #[command(subcommand)]
    command: ServeCommand,
}

#[derive(Subcommand)]
enum ServeCommand {
    /// Serve runs over HTTP: clients start, follow and control them.
    Http(Box<http::Http>),
    /// Serve the documents of a folder to MCP clients.
    Docs(Box<docs::ServeDocs>),
    /// Check that `levity serve http` answers, without a token.
    Health(health::Health),
    /// Serve the tool `query` to MCP clients, over stdin and stdout or over HTTP.
    Mcp(Box<mcp::ServeMcp>),
    /// Manage tokens with names and scopes, whose runs and conversations are separate.
    Token(tokens::TokenCommand),
}

/// The arguments of `levity ui`: those of `levity serve http`.
#[derive(Args)]
pub(crate) struct Ui {
    #[command(flatten)]
    http: http::Http,
}

/// Serves the page until shutdown, and prints a link to it.
pub(crate) async fn ui(args: Ui) -> ExitCode {
    http::ui(args.http).await
}

/// Serves until shutdown, or manages and checks servers: 0 then, 2 for an invalid call, 1 for a
/// failure.
pub(crate) async fn serve(args: Serve) -> ExitCode {
    match args.command {
        ServeCommand::Http(args) => http::serve(*args).await,
        ServeCommand::Docs(args) => docs::serve(*args).await,
        ServeCommand::Health(args) => health::health(&args),
        ServeCommand::Mcp(args) => mcp::serve(*args).await,
        ServeCommand::Token(args) => tokens::tokens(&args),
    }
}

/// Serves on a listener until this process receives a shutdown signal, and returns the exit code.
/// `report` prints the address.
///
/// The first `select!` polls the signal once before the address is printed. A script that waits for
/// the address may then send a signal at once, and it is not lost. A signal during the work cancels
/// the listener's token, and the function waits until `serve` returns.
async fn serve_until_shutdown<F>(
    listener: Listener,
    report: impl FnOnce(&Listener),
    serve: impl FnOnce(Listener) -> F,
) -> ExitCode
where
    F: Future<Output = levity::serve::Result<()>>,
{
    let mut ended = pin!(shutdown_signal());
    // The signal handlers are installed before a client can learn that the server is running.
    tokio::select! {
        biased;
        () = &mut ended => return ExitCode::SUCCESS,
        () = std::future::ready(()) => report(&listener),
    }
    let stop = CancelToken::new();
    let mut serving = pin!(serve(listener.stop_on(stop.clone())));
    let served = tokio::select! {
        served = &mut serving => served,
        () = &mut ended => {
            stop.cancel();
            serving.await
        }
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report_error(&chain(&error), 1),
    }
}

/// Returns the URL scheme of a listener.
fn scheme(listener: &Listener) -> &'static str {
    if listener.is_encrypted() {
        "https"
    } else {
        "http"
    }
}

/// Waits for Ctrl-C, or until the system asks this process to end.
pub(crate) async fn shutdown_signal() {
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        () = termination_signal() => {}
    }
}

/// Restricts the runs of a server to those that are marked or trusted.
///
/// Runs without a journal have no marks and need no restriction, since all of them were started by
/// this process.
pub(crate) fn resume_only_marked(runs: Runs, marks: Option<Arc<Marks>>) -> Runs {
    match marks {
        Some(marks) => {
            let others = marks.clone();
            runs.resume_if(move |run| marks.check(run))
                .skip_at_start(move |run| others.is_of_other_command(run))
        }
        None => runs,
    }
}

/// Resumes the runs that an earlier server left, and reports those that cannot be resumed.
///
/// Runs beyond the limit of runs in progress are queued and not lost. Only a journal that cannot be
/// listed is an error; a single run that cannot be resumed is a note.
async fn resume(runs: &Runs) -> Result<(), String> {
    for (run, error) in runs.resume_all().await.map_err(|error| chain(&error))? {
        note(&format!("run {run} was not resumed: {}", chain(&error)));
    }
    if runs.queued() > 0 {
        note(&format!(
            "{} runs of an earlier server are queued; they resume when other runs have ended",
            runs.queued()
        ));
    }
    Ok(())
}
