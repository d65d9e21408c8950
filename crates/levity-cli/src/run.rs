use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use levity::core::{Journal as _, Record, RunId};
use levity::prelude::*;
use levity::runtime::RunHandle;

use crate::agent::AgentArgs;
use crate::follow::{follow, go_on};
use crate::logs::Logs;
use crate::marks::{OwnJournal, Trust};
use crate::memory;
use crate::runs::goal_of;
use crate::store;
use crate::terminal::{brief, chain, complain, note, shell};

/// How `levity run` is called.
#[derive(Args)]
#[command(after_help = crate::EXIT_CODES)]
pub(crate) struct Run {
    /// What to do, in words.
    #[arg(value_parser = crate::input::goal)]
    goal: String,
    /// Keep the run in this folder or SQLite file (`*.db`); if it has a run of this id already, go
    /// on with it.
    #[arg(long, value_name = "PATH")]
    journal: Option<PathBuf>,
    /// The run's id; a random one by default.
    #[arg(long, value_name = "ID", requires = "journal")]
    id: Option<String>,
    /// Go on with this conversation of `--memory`, or begin it.
    #[arg(long, value_name = "ID", requires = "memory", value_parser = memory::named)]
    conversation: Option<String>,
    #[command(flatten)]
    trust: Trust,
    #[command(flatten)]
    agent: AgentArgs,
}

/// Runs an agent and says how it went: 0 for an answer, 1 for none, 2 for a wrong call, 3 when it
/// waits, 130 after Ctrl-C.
pub(crate) async fn run(args: Run) -> ExitCode {
    if args.agent.park && args.journal.is_none() {
        return complain(
            "a run can only wait in a journal; name one with `--journal`",
            2,
        );
    }
    let logs = match args.agent.made.common.logs.open() {
        Ok(logs) => logs,
        Err(problem) => return complain(&problem, 2),
    };
    let built = match prepare(&args).await {
        Ok((runtime, known)) => args.agent.build(runtime).await.map(|built| (built, known)),
        Err(problem) => Err(problem),
    };
    let ((agent, offered), known) = match built {
        Ok(built) => built,
        Err(problem) => return complain(&problem, 2),
    };
    let run = begin(&agent, &args, &known, &logs).await;
    offered
        .end(follow(run, &args.agent, args.journal.is_some()).await)
        .await
}

/// The runtime, and the records of the run if the journal has it.
async fn prepare(args: &Run) -> Result<(Runtime, Vec<Record>), String> {
    let Some(path) = &args.journal else {
        return Ok((Runtime::new(), Vec::new()));
    };
    let journal = store::open_own(path, args.trust).map_err(|error| chain(&error))?;
    let known = match &args.id {
        Some(id) => known(&journal, &RunId::new(id.as_str()), &args.goal).await?,
        None => Vec::new(),
    };
    Ok((Runtime::new().with_journal(journal), known))
}

/// The records of a run that is to go on, which must be the user's own and have this goal.
async fn known(journal: &OwnJournal, id: &RunId, goal: &str) -> Result<Vec<Record>, String> {
    // A run that cannot be read says so itself when it is opened.
    let records = journal.read(id).await.unwrap_or_default();
    journal
        .admit(id, &records)
        .await
        .map_err(|error| chain(&error))?;
    match goal_of(&records) {
        Some(old) if old != goal => Err(format!(
            "run `{id}` exists already, and its goal is `{}`, not `{}`; resume it with `levity \
                runs resume {}`, or choose another id",
            brief(old),
            brief(goal.to_owned()),
            shell(id.as_str())
        )),
        _ => Ok(records),
    }
}

/// Begins the run, or goes on with it if the journal has it.
async fn begin(agent: &Agent, args: &Run, known: &[Record], logs: &Logs) -> RunHandle<Agent> {
    if let Some(id) = args.id.as_ref().filter(|_| !known.is_empty()) {
        let mut resume = agent
            .resume(id.as_str())
            .on_event(logs.watcher(args.conversation.as_deref()));
        if let Some(limits) = args.agent.made.common.options.given_limits() {
            resume = resume.limits(limits);
        }
        let run = if args.agent.park {
            resume.park()
        } else {
            resume
        }
        .start();
        go_on(&run, known).await;
        return run;
    }
    let mut run = agent.run(args.goal.as_str());
    if args.agent.park {
        run = run.park();
    }
    if let Some(memory) = args.agent.made.memory.as_deref() {
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
