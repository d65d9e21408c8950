//! `levity run GOAL`: one agent, one goal, one answer.
//!
//! The command builds an agent from its options, starts a run or resumes the one with the given id,
//! follows it on the terminal and prints the answer to standard output. Repeating the same call
//! with `--journal` and `--id` is safe: a run that has ended prints its answer again, an
//! interrupted one continues, and nothing is done twice. The goal must be the same, or the call is
//! refused.
//!
//! A conversation (`--memory`) is something else than a journal: it keeps the messages over several
//! runs, while a journal keeps the steps of one run.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use levity::core::{Journal as _, Record, RunId};
use levity::prelude::*;
use levity::runtime::RunHandle;

use crate::agent::AgentArgs;
use crate::follow::{follow, unpause};
use crate::logs::Logs;
use crate::marks::{OwnJournal, Trust};
use crate::memory;
use crate::runs::goal_of;
use crate::store;
use crate::terminal::{chain, note, report_error, shell_quote, shorten};

/// The arguments of `levity run`.
#[derive(Args)]
#[command(after_help = crate::EXIT_CODES)]
pub(crate) struct Run {
    /// Goal of the run, in words.
    #[arg(value_parser = crate::input::goal)]
    goal: String,
    /// Store the run in this folder or SQLite file (`*.db`); if it already has a run with this id,
    /// resume that run.
    #[arg(long, value_name = "PATH")]
    journal: Option<PathBuf>,
    /// Id of the run; random by default.
    #[arg(long, value_name = "ID", requires = "journal")]
    id: Option<String>,
    /// Continue this conversation of `--memory`, or start it.
    #[arg(long, value_name = "ID", requires = "memory", value_parser = memory::parse_name)]
    conversation: Option<String>,
    #[command(flatten)]
    trust: Trust,
    #[command(flatten)]
    agent: AgentArgs,
}

/// Runs an agent and returns the exit code: 0 for an answer, 1 for none, 2 for an invalid call, 3
/// if the run is waiting, 130 after Ctrl-C.
///
/// The files of logs are opened first and the agent is built last, so that wrong options fail
/// before an MCP server is started.
pub(crate) async fn run(args: Run) -> ExitCode {
    if args.agent.park && args.journal.is_none() {
        return report_error("`--park` requires a journal; name one with `--journal`", 2);
    }
    let logs = match args.agent.shape.common.logs.open() {
        Ok(logs) => logs,
        Err(problem) => return report_error(&problem, 2),
    };
    let built = match prepare(&args).await {
        Ok((runtime, records)) => args
            .agent
            .build(runtime)
            .await
            .map(|built| (built, records)),
        Err(problem) => Err(problem),
    };
    let ((agent, mcp_servers), records) = match built {
        Ok(built) => built,
        Err(problem) => return report_error(&problem, 2),
    };
    let run = start(&agent, &args, &records, &logs).await;
    mcp_servers
        .end(follow(run, &args.agent, args.journal.is_some()).await)
        .await
}

/// Returns the runtime, and the records of the run if the journal has it.
///
/// Without a journal, or for a new run without an id, there are no records.
async fn prepare(args: &Run) -> Result<(Runtime, Vec<Record>), String> {
    let Some(path) = &args.journal else {
        return Ok((Runtime::new(), Vec::new()));
    };
    let journal = store::open_own(path, args.trust).map_err(|error| chain(&error))?;
    let records = match &args.id {
        Some(id) => read_records(&journal, &RunId::new(id.as_str()), &args.goal).await?,
        None => Vec::new(),
    };
    Ok((Runtime::new().with_journal(journal), records))
}

/// Reads the records of a run to resume, which must belong to the user and have this goal.
///
/// The error quotes both goals, cut to 500 characters each.
async fn read_records(journal: &OwnJournal, id: &RunId, goal: &str) -> Result<Vec<Record>, String> {
    // A run that cannot be read reports its error when it is opened.
    let records = journal.read(id).await.unwrap_or_default();
    journal
        .admit(id, &records)
        .await
        .map_err(|error| chain(&error))?;
    match goal_of(&records) {
        Some(old) if old != goal => Err(format!(
            "run `{id}` already exists, and its goal is `{}`, not `{}`; resume it with `levity \
                runs resume {}`, or choose another id",
            shorten(old),
            shorten(goal.to_owned()),
            shell_quote(id.as_str())
        )),
        _ => Ok(records),
    }
}

/// Starts the run, or resumes it if the journal has it.
///
/// A resumed run already belongs to a conversation, so `--conversation` only labels its log. A new
/// run with a memory but without a named conversation gets a new one, whose id is printed as a
/// note.
async fn start(agent: &Agent, args: &Run, records: &[Record], logs: &Logs) -> RunHandle<Agent> {
    if let Some(id) = args.id.as_ref().filter(|_| !records.is_empty()) {
        let mut resume = agent
            .resume(id.as_str())
            .on_event(logs.watcher(args.conversation.as_deref()));
        if let Some(limits) = args.agent.shape.common.options.resumed_limits(records) {
            resume = resume.limits(limits);
        }
        let run = if args.agent.park {
            resume.park()
        } else {
            resume
        }
        .start();
        unpause(&run, records).await;
        return run;
    }
    let mut run = agent.run(args.goal.as_str());
    if args.agent.park {
        run = run.park();
    }
    if let Some(memory) = args.agent.shape.memory.as_deref() {
        let id = memory::conversation(Some(memory), args.conversation.as_deref(), agent);
        if args.conversation.is_none() && !args.agent.quiet {
            note(&format!("conversation {id}"));
        }
        run = run
            .on_event(logs.watcher(Some(id.as_str())))
            .conversation(id);
    } else {
        run = run.on_event(logs.watcher(None));
    }
    match &args.id {
        Some(id) => run.id(id.as_str()).start(),
        None => run.start(),
    }
}
