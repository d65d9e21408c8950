//! The command that lets agents of other programs use a folder and an agent.
//!
//! A host lends a folder and an agent (its commander) to agents on other machines or in other
//! programs: they read and write files and dispatch tasks, which the commander works on alone.
//! `levity bridge host` is that host, over a WebSocket with a token; `levity bridge stdio` is the
//! client side, an MCP server for the other agent.
//!
//! Tasks survive a restart of the host: they are runs in a journal, by default one per workspace in
//! the user's state folder. Questions of tasks are for the operator of the host, never for the
//! client; a notice prints the command that answers them.
//!
//! The connection is not encrypted, so addresses beyond the loopback need `--allow-plaintext`, and
//! a tunnel is recommended. Exit codes: 0 after a shutdown, 1 for a failure, 2 for a wrong call.

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use levity::core::CancelToken;
use levity::prelude::*;
use levity::sandbox::Workspace;
use levity::serve::bridge::{BridgeClient, BridgeHost, BridgeTools, HostLimits, Notice};
use levity::serve::mcp::McpServer;
use levity::serve::{AccessControl, Listener, Runs, Token, check_exposure};

use crate::agent::{AgentShape, NoteOutput};
use crate::logs::Logs;
use crate::marks::Trust;
use crate::mcp::McpServers;
use crate::serve::{resume_only_marked, shutdown_signal};
use crate::terminal::{chain, note, report_error, shell_quote};
use crate::token::{Source, source, token};
use crate::{state, store};

mod line_printer;
mod program;

use line_printer::LinePrinter;
use program::Program;

/// The variable that holds the token, and its file in the user's state folder.
const TOKEN: (&str, &str) = ("LEVITY_BRIDGE_TOKEN", "bridge/token");

/// The arguments of `levity bridge`.
#[derive(Args)]
pub(crate) struct Bridge {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Offer a folder and an agent to other programs, over a WebSocket.
    Host(Box<Host>),
    /// Run an MCP server on standard input and output that forwards all calls to a host.
    Stdio(Stdio),
}

/// The arguments of `levity bridge host`. The folder is `--workspace`.
#[derive(Args)]
struct Host {
    /// Address to listen on.
    #[arg(long, value_name = "ADDR", default_value = BridgeHost::DEFAULT_ADDRESS)]
    listen: String,
    /// File with the token that clients must send; created if it does not exist. By default
    /// `LEVITY_BRIDGE_TOKEN`, or `levity/bridge/token` in the user's state folder.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Accept requests that name this host, or the address and port of a tunnel's other end; may be
    /// repeated. Loopback names are always accepted.
    #[arg(long, value_name = "HOST")]
    allow_host: Vec<String>,
    /// Let other machines reach the host without encryption.
    #[arg(long)]
    allow_plaintext: bool,
    /// Maximum size of a file that clients read in full, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = HostLimits::new().read)]
    read_limit: u64,
    /// Maximum size of a file that clients write, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = HostLimits::new().write)]
    write_limit: usize,
    /// Maximum number of tasks that run at the same time.
    #[arg(long, value_name = "N", default_value_t = Runs::DEFAULT_MAX_RUNS)]
    max_tasks: usize,
    /// Store tasks in this folder or SQLite file (`*.db`); by default, in a separate file for the
    /// workspace in the user's state folder.
    #[arg(long, value_name = "PATH")]
    journal: Option<PathBuf>,
    #[command(flatten)]
    trust: Trust,
    /// Pass tasks to the agent of another program: a shell command that reads the task on standard
    /// input and prints its answer, such as `claude -p`. It runs in the workspace, outside any
    /// sandbox, with the environment of the host.
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["model", "script"])]
    commander: Option<String>,
    #[command(flatten)]
    shape: AgentShape,
}

/// The arguments of `levity bridge stdio`.
#[derive(Args)]
struct Stdio {
    /// Address of the host.
    #[arg(long, value_name = "URL", default_value = "ws://127.0.0.1:8888")]
    url: String,
    /// File with the token of the host. By default `LEVITY_BRIDGE_TOKEN`, or the file where hosts
    /// of this user store it.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Allow a host on another machine, although the connection is not encrypted.
    #[arg(long)]
    allow_remote: bool,
}

/// Runs the subcommand: 0 if it ends normally, 1 if it fails, 2 for an invalid call.
pub(crate) async fn bridge(args: Bridge) -> ExitCode {
    let result = match args.action {
        Action::Host(host) => serve(*host).await,
        Action::Stdio(stdio) => forward(stdio).await,
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err((problem, code)) => report_error(&problem, code),
    }
}

/// An error message and its exit code.
type Problem = (String, u8);

/// Makes a problem with the exit code 2.
fn invalid_call(problem: impl Into<String>) -> Problem {
    (problem.into(), 2)
}

/// The token file is read at each connection and not once, because the host may start later than
/// this client and create the file then.
async fn forward(args: Stdio) -> Result<(), Problem> {
    let failed = |error: &dyn std::error::Error| invalid_call(chain(error));
    let (token, file) =
        match source(TOKEN.0, args.token_file.as_deref(), TOKEN.1).map_err(invalid_call)? {
            Source::Env(token) => (token, None),
            // The client reads the file when it connects to a host; this placeholder is never sent.
            Source::File(file) => (
                Token::generate().map_err(|error| failed(&error))?,
                Some(file),
            ),
        };
    let client = match args.allow_remote {
        true => BridgeClient::remote(&args.url, token),
        false => BridgeClient::new(&args.url, token),
    };
    let mut client = client.map_err(|error| failed(&error))?;
    if let Some(file) = file {
        client = client.token_file(file);
    }
    let server = McpServer::builder("levity-bridge", env!("CARGO_PKG_VERSION"))
        .title("levity bridge")
        .instructions(
            "Work on the files of the host's workspace by `read_file`, `write_file` and \
                `list_files`. Hand whole tasks, such as \
             a plan or a review, to the commander by `dispatch_agent_task`: it answers only by \
             files. Wait for its signal file \
             by `wait_for_file`.",
        )
        .tools(BridgeTools::new(client));
    let server = server.build().map_err(|error| failed(&error))?;
    server.stdio().await.map_err(|error| (chain(&error), 1))
}

/// The order matters: the workspace, the token and the storage are checked first, then the address
/// is bound, and the agent is built last while clients can already use files. Tasks that are in
/// progress at the end are counted, since they continue at the next start.
async fn serve(args: Host) -> Result<(), Problem> {
    let workspace = args
        .shape
        .common
        .tools
        .open_workspace()
        .map_err(invalid_call)?;
    let workspace = workspace.ok_or_else(|| {
        invalid_call(
            "a host requires a folder; name it with `--workspace \
            DIR`",
        )
    })?;
    let token = token(TOKEN.0, args.token_file.as_deref(), TOKEN.1).map_err(invalid_call)?;
    let logs = args.shape.common.logs.open().map_err(invalid_call)?;
    let (journal, tasks) = task_storage(&args, &workspace).map_err(invalid_call)?;
    let limits = HostLimits::new()
        .read(args.read_limit)
        .write(args.write_limit);
    let printer = LinePrinter::new().map_err(|error| {
        (
            format!(
                "cannot start the thread that prints \
        notices: {error}"
            ),
            1,
        )
    })?;
    let (runs_at, notices) = (journal.clone(), printer.clone());
    let host = BridgeHost::builder(workspace)
        .limits(limits)
        .tasks(tasks)
        .on_notice(move |notice| print_notice(&notices, notice, &runs_at))
        .build()
        .map_err(|error| (chain(&error), 1))?;
    let stop = CancelToken::new();
    let listener = Listener::bind(
        &args.listen,
        AccessControl::new(token).hosts(&args.allow_host),
    )
    .await;
    let listener = listener
        .map_err(|error| (chain(&error), 1))?
        .stop_on(stop.clone());
    check_reachable(&listener, args.allow_plaintext).map_err(invalid_call)?;
    let notices = printer.clone();
    let listener = listener.on_notice(move |notice| notices.line(&notice.to_string()));
    printer.line(&format!("listening on ws://{}", listener.address()));
    let result = run(&host, listener, &args, (&journal, &logs, &printer), &stop).await;
    if let Some(pending) = host
        .runs()
        .map(Runs::running)
        .filter(|pending| *pending > 0)
    {
        printer.line(&format!(
            "{pending} tasks are in progress; they resume when the host is started again"
        ));
    }
    printer.end();
    result
}

/// Rejects an address that other machines can reach unless that is allowed, and warns if it is.
///
/// # Errors
/// Returns an error for an address beyond the loopback, unless `--allow-plaintext` is given; the
/// advice is a tunnel.
fn check_reachable(listener: &Listener, allowed: bool) -> Result<(), String> {
    let address = listener.address();
    match check_exposure(address, false, allowed) {
        Ok(None) => Ok(()),
        Ok(Some(warning)) => {
            note(&format!("warning: {warning}"));
            Ok(())
        }
        Err(_) => Err(format!(
            "{address} is reachable from other machines, and the connection is not encrypted; \
                listen on 127.0.0.1 and use a tunnel, such as `ssh -L`, or use `--allow-plaintext`"
        )),
    }
}

/// Serves clients while the agent is being built, and afterwards.
///
/// Building an agent may take long, as MCP servers start; a shutdown signal during that time ends
/// the host as well. "ready" is printed once tasks are accepted.
async fn run(
    host: &BridgeHost,
    listener: Listener,
    args: &Host,
    (journal, logs, printer): (&Path, &Logs, &LinePrinter),
    stop: &CancelToken,
) -> Result<(), Problem> {
    let mut served = pin!(host.serve(listener));
    let mut shutdown = pin!(shutdown_signal());
    let mcp_servers = tokio::select! {
        // This branch is first, so that a shutdown signal wins over the message that the host is
        // ready.
        biased;
        () = &mut shutdown => None,
        served = &mut served => return served.map_err(|error| (chain(&error), 1)),
        prepared = prepare(host, args, (journal, logs)) => Some(prepared.map_err(invalid_call)?),
    };
    if mcp_servers.is_some() {
        printer.line("ready");
        tokio::select! {
            served = &mut served => return served.map_err(|error| (chain(&error), 1)),
            () = &mut shutdown => {}
        }
    }
    stop.cancel();
    let result = served.await.map_err(|error| (chain(&error), 1));
    mcp_servers.unwrap_or_default().end(result).await
}

/// Builds the agent, and resumes the tasks that an earlier process left.
///
/// Only tasks that this user's host started are resumed, see `marks`. A program as the commander
/// gets no tools of levity.
async fn prepare(
    host: &BridgeHost,
    args: &Host,
    (journal, logs): (&Path, &Logs),
) -> Result<McpServers, String> {
    let journal = store::open_own(journal, args.trust).map_err(|error| chain(&error))?;
    let marks = journal.marks();
    let runtime = Runtime::new().with_journal(journal);
    let (agent, mcp_servers) = match &args.commander {
        Some(command) => {
            let program = Program::new(command, host.workspace().root().to_owned());
            // The program has its own tools, so it gets none from levity, and its first answer is
            // final.
            (
                Agent::builder(program).max_turns(1).runtime(runtime),
                McpServers::default(),
            )
        }
        None => args.shape.builder(runtime, NoteOutput::Stderr).await?,
    };
    let agent = agent.build().map_err(|error| chain(&error))?;
    let runs = Runs::new(agent)
        .max_runs(args.max_tasks)
        .on_event(logs.watcher(None));
    host.commander(resume_only_marked(runs, Some(marks)))
        .await
        .map_err(|error| chain(&error))?;
    Ok(mcp_servers)
}

/// Returns the journal, and the folder for tasks next to it.
///
/// A separate folder for each workspace keeps hosts of several projects apart. The files of tasks
/// lie beside the journal with the suffix `.tasks`, which `own_files` denies to tools.
fn task_storage(args: &Host, workspace: &Workspace) -> Result<(PathBuf, PathBuf), String> {
    let journal = match &args.journal {
        Some(path) => path.clone(),
        None => {
            let add_hint = |problem| format!("{problem}; or name a journal with `--journal`");
            let folder = state::folder().map_err(add_hint)?;
            let folder = folder.join("bridge").join(state::name_of(workspace.root()));
            state::create(&folder)?;
            folder.join("runs.db")
        }
    };
    let mut tasks = journal.clone().into_os_string();
    tasks.push(".tasks");
    Ok((journal, tasks.into()))
}

/// Prints a notice for the operator of the host. It contains text of clients, so it is printed as
/// one sanitized line.
///
/// The suggested command is quoted for a shell, as the id of a task comes from a client.
fn print_notice(printer: &LinePrinter, notice: &Notice, journal: &Path) {
    printer.line(&notice.to_string());
    if let Notice::Asks { task, .. } = notice {
        let (task, journal) = (task.to_string(), journal.display().to_string());
        let (task, journal) = (shell_quote(&task), shell_quote(&journal));
        printer.line(&format!(
            "  levity runs approve {task} --journal {journal}  (or `deny`, `answer`)"
        ));
    }
}
