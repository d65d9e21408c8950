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
use levity::core::text::one_line;
use levity::core::{Journal as _, Message, Record, RunId};
use levity::prelude::*;
use levity::runtime::RunHandle;

use crate::agent::AgentArgs;
use crate::follow::{follow, unpause};
use crate::given::{Given, GivenArgs};
use crate::logs::Logs;
use crate::marks::{OwnJournal, Trust};
use crate::memory;
use crate::runs::goal_of;
use crate::store;
use crate::terminal::{chain, note, report_error, shell_quote, shorten};

/// The maximum length of a goal in an error, in characters.
const MAX_SHOWN: usize = 500;

/// The arguments of `levity run`.
#[derive(Args)]
#[command(after_help = crate::EXIT_CODES)]
pub(crate) struct Run {
    /// Goal of the run, in words.
    #[arg(value_parser = crate::input::goal)]
    goal: String,
    #[command(flatten)]
    given: GivenArgs,
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
    let extras = args.given.open().and_then(|given| args.agent.extras(given));
    let extras = match extras {
        Ok(extras) => extras,
        Err(problem) => return report_error(&problem, 2),
    };
    let logs = match args.agent.shape.common.logs.open() {
        Ok(logs) => logs,
        Err(problem) => return report_error(&problem, 2),
    };
    let built = match prepare(&args, &extras.given).await {
        Ok((runtime, records)) => args
            .agent
            .build(runtime, &extras)
            .await
            .map(|built| (built, records)),
        Err(problem) => Err(problem),
    };
    let ((agent, mcp_servers), records) = match built {
        Ok(built) => built,
        Err(problem) => return report_error(&problem, 2),
    };
    let goal = extras.given.message(&args.goal);
    let run = start(&agent, &args, goal, &records, &logs).await;
    let recall = extras.recall.as_ref().map(|recall| (recall, &*args.goal));
    let code = follow(run, &args.agent, args.journal.is_some(), recall).await;
    mcp_servers.end(code).await
}

/// Returns the runtime, and the records of the run if the journal has it.
///
/// Without a journal, or for a new run without an id, there are no records.
async fn prepare(args: &Run, given: &Given) -> Result<(Runtime, Vec<Record>), String> {
    let Some(path) = &args.journal else {
        return Ok((Runtime::new(), Vec::new()));
    };
    let journal = store::open_own(path, args.trust).map_err(|error| chain(&error))?;
    let records = match &args.id {
        Some(id) => read_records(&journal, id, (&args.goal, given)).await?,
        None => Vec::new(),
    };
    Ok((Runtime::new().with_journal(journal), records))
}

/// Reads the records of a run to resume, which must belong to the user and have this goal.
///
/// The error quotes both goals, cut to 500 characters each.
async fn read_records(
    journal: &OwnJournal,
    id: &str,
    (goal, given): (&str, &Given),
) -> Result<Vec<Record>, String> {
    let id = &RunId::new(id);
    // A run that cannot be read reports its error when it is opened.
    let records = journal.read(id).await.unwrap_or_default();
    journal
        .admit(id, &records)
        .await
        .map_err(|error| chain(&error))?;
    match goal_of(&records) {
        Some(old) if !given.is_goal(&old, goal) => Err(format!(
            "run `{id}` already exists, and its goal is `{}`, not `{}`; resume it with `levity \
                runs resume {}`, or choose another id",
            one_line(&shorten(old), MAX_SHOWN),
            one_line(&shorten(goal.to_owned()), MAX_SHOWN),
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
async fn start(
    agent: &Agent,
    args: &Run,
    goal: Message,
    records: &[Record],
    logs: &Logs,
) -> RunHandle<Agent> {
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
    let mut run = agent.run(goal);
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
