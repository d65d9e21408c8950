//! `levity serve docs`: the documents of a folder as an MCP server.
//!
//! The index is that of `levity docs`. It is brought up to date before the server starts, when a
//! client calls the tool `update`, and with `--watch` whenever files change.
//!
//! Over stdin and stdout, the parent process is trusted and no token exists. Nothing but the
//! protocol may appear on standard output, so all notes go to standard error. Over HTTP, clients
//! need a token, as for `levity serve mcp`. No model is called. Processes of this program read PDF,
//! Office and other files in a sandbox.
//!
//! A client starts the server with a configuration like this:
//!
//! ```json
//! {"mcpServers": {"guide": {
//!     "command": "levity", "args": ["serve", "docs", "--dir", "/srv/guide"]
//! }}}
//! ```
//!
//! Exit codes: 0 after a shutdown or when the client disconnects, 1 for a failed connection, 2 for
//! a wrong call.

use std::process::ExitCode;

use clap::Args;
use levity::docs::{DocumentIndex, FolderWatch};
use levity::sandbox::Workspace;
use levity::serve::DocumentServer;

use super::access::TransportArgs;
use crate::docs::{Place, Readers, update};
use crate::terminal::{chain, note, report_error};

/// The maximum size of a text file, in bytes. It is the default of `levity docs add`, so both index
/// the same files.
const MAX_FILE_BYTES: u64 = 8 << 20;

/// Offer the documents of a folder to MCP clients.
#[derive(Args)]
pub(crate) struct ServeDocs {
    #[command(flatten)]
    place: Place,
    /// Name of the server.
    #[arg(long, default_value = "levity-docs")]
    name: String,
    /// Follow changes of the files while the server runs.
    #[arg(long)]
    watch: bool,
    /// Let clients add and remove documents that are not files of the folder. Over HTTP, their
    /// tokens need the scope `run`.
    #[arg(long)]
    allow_changes: bool,
    #[command(flatten)]
    transport: TransportArgs,
}

/// Serves until the client disconnects or a shutdown signal arrives: 0 then, 2 for an invalid call,
/// 1 if the connection fails.
pub(crate) async fn serve(args: ServeDocs) -> ExitCode {
    let opened = args.place.workspace().and_then(|workspace| {
        let readers = Readers::new()?;
        Ok((args.place.open_or_create()?, workspace, readers))
    });
    let (index, workspace, readers) = match opened {
        Ok(opened) => opened,
        Err(problem) => return report_error(&problem, 2),
    };
    match update(&index, &workspace, MAX_FILE_BYTES, &readers).await {
        Ok(report) => note(&format!(
            "{} documents are new, {} unchanged",
            report.added, report.unchanged
        )),
        // An earlier state of the index is still useful.
        Err(problem) => note(&format!("the index is not up to date: {problem}")),
    }
    let mut server = readers.for_server(DocumentServer::new(index.clone()));
    server = server.workspace(workspace.clone());
    if args.allow_changes {
        server = server.allow_changes();
    }
    let server = match server.build(&args.name, env!("CARGO_PKG_VERSION")) {
        Ok(server) => server,
        Err(error) => return report_error(&chain(&error), 2),
    };
    let serving = args.transport.serve(server);
    if !args.watch {
        return serving.await;
    }
    let mut serving = std::pin::pin!(serving);
    tokio::select! {
        code = &mut serving => return code,
        problem = watch(&index, &workspace, &readers) => {
            note(&format!("the files are no longer watched: {problem}"));
        }
    }
    serving.await
}

/// Follows changes of the files until an update fails.
async fn watch(index: &DocumentIndex, workspace: &Workspace, readers: &Readers) -> String {
    let watch = FolderWatch::new(index, workspace).max_file_bytes(MAX_FILE_BYTES);
    match readers.for_watch(watch).run().await {
        Ok(()) => "the watch has ended".into(),
        Err(error) => chain(&error),
    }
}
