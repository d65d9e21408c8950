use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use levity::agent::AgentRun;
use levity::prelude::*;

use crate::agent::AgentArgs;
use crate::follow::{follow, go_on};
use crate::logs::Logs;
use crate::memory;
use crate::store;
use crate::terminal::{chain, complain, note};

/// How `levity run` is called.
#[derive(Args)]
#[command(after_help = crate::EXIT_CODES)]
pub(crate) struct Run {
    /// What to do, in words.
    #[arg(value_parser = crate::input::goal)]
    goal: String,
    /// Keep the run in this folder or SQLite file (`*.db`); if it has a run of this id already, go on with it.
    #[arg(long, value_name = "PATH")]
    journal: Option<PathBuf>,
    /// The run's id; a random one by default.
    #[arg(long, value_name = "ID", requires = "journal")]
    id: Option<String>,
    /// Go on with this conversation of `--memory`, or begin it.
    #[arg(long, value_name = "ID", requires = "memory", value_parser = memory::named)]
    conversation: Option<String>,
    #[command(flatten)]
    agent: AgentArgs,
}

/// Runs an agent and says how it went: 0 for an answer, 1 for none, 2 for a wrong call, 3 when it waits, 130 after Ctrl-C.
pub(crate) async fn run(args: Run) -> ExitCode {
    if args.agent.park && args.journal.is_none() {
        return complain("a run can only wait in a journal; name one with `--journal`", 2);
    }
    let logs = match args.agent.made.logs.open() {
        Ok(logs) => logs,
        Err(problem) => return complain(&problem, 2),
    };
    let built = match runtime(&args) {
        Ok(runtime) => args.agent.build(runtime).await,
        Err(problem) => Err(problem),
    };
    let (agent, offered) = match built {
        Ok(built) => built,
        Err(problem) => return complain(&problem, 2),
    };
    let run = begin(&agent, &args, &logs).await;
    offered.end(follow(run, &args.agent, args.journal.is_some()).await).await
}

fn runtime(args: &Run) -> Result<Runtime, String> {
    Ok(match &args.journal {
        Some(path) => Runtime::new().with_journal(store::open(path).map_err(|error| chain(&error))?),
        None => Runtime::new(),
    })
}

/// Begins the run, or goes on with it if the journal has it.
async fn begin(agent: &Agent, args: &Run, logs: &Logs) -> AgentRun {
    if let Some(id) = &args.id {
        let known = agent.runtime().journal().read(&RunId::new(id.as_str())).await;
        if let Some(records) = known.ok().filter(|records| !records.is_empty()) {
            let mut resume = agent.resume(id.as_str()).on_event(logs.watcher(args.conversation.as_deref()));
            if let Some(limits) = args.agent.made.options.given_limits() {
                resume = resume.limits(limits);
            }
            let run = if args.agent.park { resume.park() } else { resume }.start();
            go_on(&run, &records).await;
            return run;
        }
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
        run = run.on_event(logs.watcher(Some(id.as_str()))).conversation(id);
    } else {
        run = run.on_event(logs.watcher(None));
    }
    match &args.id {
        Some(id) => run.id(id.as_str()).start(),
        None => run.start(),
    }
}
