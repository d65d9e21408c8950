//! Agents of other programs, and the folder and the agent that they work with.

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

use crate::agent::{Made, Voice};
use crate::logs::Logs;
use crate::marks::Trust;
use crate::mcp::Offered;
use crate::serve::{asked_to_end, own};
use crate::terminal::{chain, complain, note, shell};
use crate::token::{Source, source, token};
use crate::{state, store};

mod board;
mod program;

use board::Board;
use program::Program;

/// The variable that holds the token, and its file in the user's state folder.
const TOKEN: (&str, &str) = ("LEVITY_BRIDGE_TOKEN", "bridge/token");

/// How `levity bridge` is called.
#[derive(Args)]
pub(crate) struct Bridge {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Hold a folder and an agent ready for others, over a WebSocket.
    Host(Box<Host>),
    /// Be an MCP server on standard input and output that passes everything on to a host.
    Stdio(Stdio),
}

/// How `levity bridge host` is called. The folder is `--workspace`.
#[derive(Args)]
struct Host {
    /// Where to listen.
    #[arg(long, value_name = "ADDR", default_value = BridgeHost::DEFAULT_ADDRESS)]
    listen: String,
    /// The file with the token that clients must show; made if it is not there. By default
    /// `LEVITY_BRIDGE_TOKEN`, or `levity/bridge/token` in the user's state folder.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Take requests that name this host, or this address and port of a tunnel's other end; may be
    /// repeated. Loopback names are always taken.
    #[arg(long, value_name = "HOST")]
    allow_host: Vec<String>,
    /// Let other machines reach the host: nothing on the way is encrypted.
    #[arg(long)]
    allow_plaintext: bool,
    /// The longest file that clients read whole, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = HostLimits::new().read)]
    read_limit: u64,
    /// The longest file that clients write, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = HostLimits::new().write)]
    write_limit: usize,
    /// How many tasks are worked on at once.
    #[arg(long, value_name = "N", default_value_t = Runs::DEFAULT_MOST)]
    max_tasks: usize,
    /// Keep tasks in this folder or SQLite file (`*.db`); by default, in a file of the workspace's
    /// own below the user's state.
    #[arg(long, value_name = "PATH")]
    journal: Option<PathBuf>,
    #[command(flatten)]
    trust: Trust,
    /// Hand tasks to another program's agent: a shell command that reads the task on standard input
    /// and prints its answer, such as `claude -p`. It runs in the workspace, outside any sandbox,
    /// with the environment of the host.
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["model", "script"])]
    commander: Option<String>,
    #[command(flatten)]
    made: Made,
}

/// How `levity bridge stdio` is called.
#[derive(Args)]
struct Stdio {
    /// Where the host is.
    #[arg(long, value_name = "URL", default_value = "ws://127.0.0.1:8888")]
    url: String,
    /// The file with the host's token. By default `LEVITY_BRIDGE_TOKEN`, or the file where hosts of
    /// this user keep it.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The host may be on another machine, although nothing on the way is encrypted.
    #[arg(long)]
    allow_remote: bool,
}

/// Does what was asked for: 0 when it ended as it should, 1 when it failed, 2 for a wrong call.
pub(crate) async fn bridge(args: Bridge) -> ExitCode {
    let done = match args.what {
        What::Host(host) => serve(*host).await,
        What::Stdio(stdio) => pass_on(stdio).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err((problem, code)) => complain(&problem, code),
    }
}

type Problem = (String, u8);

fn wrong(problem: impl Into<String>) -> Problem {
    (problem.into(), 2)
}

async fn pass_on(args: Stdio) -> Result<(), Problem> {
    let failed = |error: &dyn std::error::Error| wrong(chain(error));
    let (token, file) = match source(TOKEN.0, args.token_file.as_deref(), TOKEN.1).map_err(wrong)? {
        Source::Given(token) => (token, None),
        // It is read when there is a host to show it to; this one is never shown to anybody.
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

async fn serve(args: Host) -> Result<(), Problem> {
    let space = args.made.common.tools.space().map_err(wrong)?;
    let space =
        space.ok_or_else(|| wrong("a host needs a folder; name it with `--workspace DIR`"))?;
    let token = token(TOKEN.0, args.token_file.as_deref(), TOKEN.1).map_err(wrong)?;
    let logs = args.made.common.logs.open().map_err(wrong)?;
    let (journal, tasks) = kept(&args, &space).map_err(wrong)?;
    let limits = HostLimits::new()
        .read(args.read_limit)
        .write(args.write_limit);
    let board = Board::new().map_err(|error| (format!("nothing can be printed: {error}"), 1))?;
    let (runs_at, notices) = (journal.clone(), board.clone());
    let host = BridgeHost::builder(space)
        .limits(limits)
        .tasks(tasks)
        .on_notice(move |notice| tell(&notices, notice, &runs_at))
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
        .until(stop.clone());
    exposed(&listener, args.allow_plaintext).map_err(wrong)?;
    let notices = board.clone();
    let listener = listener.on_notice(move |notice| notices.line(&notice.to_string()));
    board.line(&format!("listening on ws://{}", listener.address()));
    let done = run(&host, listener, &args, (&journal, &logs, &board), &stop).await;
    if let Some(left) = host.runs().map(Runs::under_way).filter(|left| *left > 0) {
        board.line(&format!(
            "{left} tasks are under way, and go on when the host is started again"
        ));
    }
    board.end();
    done
}

/// Refuses to be reached by other machines unless that was said, and warns where it was.
fn exposed(listener: &Listener, allowed: bool) -> Result<(), String> {
    let address = listener.address();
    match check_exposure(address, false, allowed) {
        Ok(None) => Ok(()),
        Ok(Some(warning)) => {
            note(&format!("warning: {warning}"));
            Ok(())
        }
        Err(_) => Err(format!(
            "{address} is reachable from other machines, and nothing on the way is encrypted; \
                listen on 127.0.0.1 and use a tunnel, such as `ssh -L`, or say `--allow-plaintext`"
        )),
    }
}

/// Serves clients while the agent is made, and on.
async fn run(
    host: &BridgeHost,
    listener: Listener,
    args: &Host,
    (journal, logs, board): (&Path, &Logs, &Board),
    stop: &CancelToken,
) -> Result<(), Problem> {
    let mut served = pin!(host.serve(listener));
    let mut told = pin!(asked_to_end());
    let offered = tokio::select! {
        // First, so that whoever wants the process to end is heard before it says that it is ready.
        biased;
        () = &mut told => None,
        served = &mut served => return served.map_err(|error| (chain(&error), 1)),
        prepared = prepare(host, args, (journal, logs)) => Some(prepared.map_err(wrong)?),
    };
    if offered.is_some() {
        board.line("ready");
        tokio::select! {
            served = &mut served => return served.map_err(|error| (chain(&error), 1)),
            () = &mut told => {}
        }
    }
    stop.cancel();
    let done = served.await.map_err(|error| (chain(&error), 1));
    offered.unwrap_or_default().end(done).await
}

/// Makes the agent, and has it go on with what an earlier process left.
async fn prepare(
    host: &BridgeHost,
    args: &Host,
    (journal, logs): (&Path, &Logs),
) -> Result<Offered, String> {
    let journal = store::open_own(journal, args.trust).map_err(|error| chain(&error))?;
    let marks = journal.marks();
    let runtime = Runtime::new().with_journal(journal);
    let (agent, offered) = match &args.commander {
        Some(command) => {
            let program = Program::new(command, host.workspace().root().to_owned());
            // What the program does is its own: it has no tools of ours, and its first answer is
            // the last.
            (
                Agent::builder(program).max_turns(1).runtime(runtime),
                Offered::default(),
            )
        }
        None => args.made.builder(runtime, Voice::Aside).await?,
    };
    let agent = agent.build().map_err(|error| chain(&error))?;
    let runs = Runs::new(agent)
        .most(args.max_tasks)
        .on_event(logs.watcher(None));
    host.commander(own(runs, Some(marks)))
        .await
        .map_err(|error| chain(&error))?;
    Ok(offered)
}

/// The journal, and the notes of tasks beside it.
fn kept(args: &Host, space: &Workspace) -> Result<(PathBuf, PathBuf), String> {
    let journal = match &args.journal {
        Some(path) => path.clone(),
        None => {
            let nowhere = |problem| format!("{problem}; name a journal with `--journal`");
            let folder = state::folder().map_err(nowhere)?;
            let folder = folder.join("bridge").join(state::name_of(space.root()));
            state::make(&folder)?;
            folder.join("runs.db")
        }
    };
    let mut tasks = journal.clone().into_os_string();
    tasks.push(".tasks");
    Ok((journal, tasks.into()))
}

/// Tells whoever sits at the host what happens. What clients sent is in it, so each is one harmless
/// line.
fn tell(board: &Board, notice: &Notice, journal: &Path) {
    board.line(&notice.to_string());
    if let Notice::Asks { task, .. } = notice {
        let (task, journal) = (task.to_string(), journal.display().to_string());
        let (task, journal) = (shell(&task), shell(&journal));
        board.line(&format!(
            "  levity runs approve {task} --journal {journal}  (or `deny`, `answer`)"
        ));
    }
}
