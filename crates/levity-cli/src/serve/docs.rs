//! `levity serve docs`: the documents of a folder as an MCP server over stdin and stdout.
//!
//! The index is that of `levity docs`. It is brought up to date before the server starts, and again
//! when a client calls the tool `update`.
//!
//! Over stdin and stdout, the parent process is trusted and no token exists. Nothing but the
//! protocol may appear on standard output, so all notes go to standard error. No model is called,
//! and no program is started.
//!
//! A client starts the server with a configuration like this:
//!
//! ```json
//! {"mcpServers": {"guide": {
//!     "command": "levity", "args": ["serve", "docs", "--dir", "/srv/guide"]
//! }}}
//! ```
//!
//! The server has no option for HTTP, because `DocumentServer` of the library serves it, and a
//! program then decides about tokens and limits.
//!
//! Exit codes: 0 after a shutdown or when the client disconnects, 1 for a failed connection, 2 for
//! a wrong call.

use std::process::ExitCode;

use clap::Args;
use levity::serve::DocumentServer;

use super::shutdown_signal;
use crate::docs::{Place, update};
use crate::terminal::{chain, note, report_error};

/// The maximum size of a file, in bytes. It is the default of `levity docs add`, so both index the
/// same files.
const MAX_FILE_BYTES: u64 = 8 << 20;

/// Offer the documents of a folder to MCP clients, over stdin and stdout.
#[derive(Args)]
pub(crate) struct ServeDocs {
    #[command(flatten)]
    place: Place,
    /// Name of the server.
    #[arg(long, default_value = "levity-docs")]
    name: String,
}

/// Serves until the client disconnects or a shutdown signal arrives: 0 then, 2 for an invalid call,
/// 1 if the connection fails.
pub(crate) async fn serve(args: ServeDocs) -> ExitCode {
    let opened = args
        .place
        .workspace()
        .and_then(|workspace| Ok((args.place.open_or_create()?, workspace)));
    let (index, workspace) = match opened {
        Ok(opened) => opened,
        Err(problem) => return report_error(&problem, 2),
    };
    match update(&index, &workspace, MAX_FILE_BYTES).await {
        Ok(report) => note(&format!(
            "{} documents are new, {} unchanged",
            report.added, report.unchanged
        )),
        // An earlier state of the index is still useful.
        Err(problem) => note(&format!("the index is not up to date: {problem}")),
    }
    let server = DocumentServer::new(index).workspace(workspace);
    let server = match server.build(&args.name, env!("CARGO_PKG_VERSION")) {
        Ok(server) => server,
        Err(error) => return report_error(&chain(&error), 2),
    };
    tokio::select! {
        ended = server.stdio() => match ended {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => report_error(&chain(&error), 1),
        },
        () = shutdown_signal() => ExitCode::SUCCESS,
    }
}
