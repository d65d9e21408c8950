//! Swarms that work from the terminal.

mod demo;
mod end;
mod lines;
mod told;

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use levity::agents::ReadyWorkers;
use levity::core::{RunId, RunSummary};
use levity::prelude::*;
use levity::runtime::RunHandle;
use levity::swarm::{Delegation, Router, Swarm, SwarmBuilder, SwarmInput};

use crate::agent::Common;
use crate::drive::drive;
use crate::logs::Logs;
use crate::marks::Trust;
use crate::mcp::Offered;
use crate::plan::demo::PAUSE;
use crate::store;
use crate::terminal::{chain, complain, note, read_text};

pub(crate) use end::{Printed, Shown};
pub(crate) use told::{Lines, Told};

/// How `levity swarm` is called.
#[derive(Args)]
#[command(after_help = crate::EXIT_CODES)]
pub(crate) struct SwarmArgs {
    /// What to do, in words.
    #[arg(required_unless_present_any = ["plan", "resume"], value_parser = crate::input::goal)]
    goal: Option<String>,
    /// A plan (JSON) to carry out, in place of the router's.
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    plan: Option<PathBuf>,
    #[command(flatten)]
    shape: SwarmShape,
    /// The most workers that work at a time [default: 16].
    #[arg(long, value_name = "N", help_heading = "Teams and swarms")]
    max_parallel: Option<usize>,
    /// Keep the run in this folder or SQLite file (`*.db`).
    #[arg(long, value_name = "PATH")]
    journal: Option<PathBuf>,
    #[command(flatten)]
    trust: Trust,
    /// The run's id; a random one by default.
    #[arg(
        long,
        value_name = "ID",
        requires = "journal",
        conflicts_with = "resume"
    )]
    id: Option<String>,
    /// Go on with this run; what was done is not done again.
    #[arg(
        long,
        value_name = "RUN",
        requires = "journal",
        conflicts_with = "goal"
    )]
    resume: Option<String>,
    #[command(flatten)]
    common: Common,
    /// Leave the run in its journal when all it does is wait, for a person or a time.
    #[arg(long, requires = "journal")]
    park: bool,
    /// Write all that was said to this file, as JSON lines, when the run has ended.
    #[arg(long, value_name = "FILE")]
    bus: Option<PathBuf>,
    /// Print what came of it as one JSON object, in place of the answer.
    #[arg(long)]
    json: bool,
    /// Print the answer alone.
    #[arg(long, short)]
    quiet: bool,
}

/// The options of a swarm.
#[derive(Args)]
pub(crate) struct SwarmShape {
    /// Take only this worker of a swarm; may be given more than once.
    #[arg(
        long = "worker",
        value_enum,
        value_name = "NAME",
        help_heading = "Teams and swarms"
    )]
    workers: Vec<Name>,
    /// The most delegations in the plan of a swarm's router [default: 32].
    #[arg(long, value_name = "N", help_heading = "Teams and swarms")]
    max_delegations: Option<usize>,
    /// Let the workers of a swarm leave messages for each other.
    #[arg(long, help_heading = "Teams and swarms")]
    talk: bool,
}

/// The workers there are.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Name {
    /// Finds things out; changes nothing.
    Researcher,
    /// Writes code.
    Coder,
    /// Says what is wrong with the work of others; changes nothing.
    Reviewer,
}

impl Name {
    fn as_str(self) -> &'static str {
        match self {
            Self::Researcher => "researcher",
            Self::Coder => "coder",
            Self::Reviewer => "reviewer",
        }
    }
}

/// Has a goal worked on, and says how it went: 0 for an answer, 1 for none, 2 for a wrong call, 3
/// when it waits, 4 when not all was done, 130 when it was left by Ctrl-C.
pub(crate) async fn swarm(args: SwarmArgs) -> ExitCode {
    match begin(&args).await {
        Ok(code) => code,
        Err(problem) => complain(&problem, 2),
    }
}

async fn begin(args: &SwarmArgs) -> Result<ExitCode, String> {
    let runtime = match &args.journal {
        Some(path) => Runtime::new()
            .with_journal(store::open_own(path, args.trust).map_err(|error| chain(&error))?),
        None => Runtime::new(),
    };
    let plan = args.plan.as_deref().map(read_plan).transpose()?;
    let (swarm, offered) = args
        .shape
        .build(&args.common, args.max_parallel, runtime, args.quiet)
        .await?;
    offered.end(work(args, &swarm, plan).await).await
}

async fn work(
    args: &SwarmArgs,
    swarm: &Swarm,
    plan: Option<Vec<Delegation>>,
) -> Result<ExitCode, String> {
    let told = Told::new(
        if args.quiet {
            Lines::None
        } else {
            Lines::Plain
        },
        args.park,
    );
    let logs = args.common.logs.open()?;
    let run = start(args, swarm, plan, (&told, &logs)).await?;
    let answer = if args.json {
        Printed::Object
    } else {
        Printed::Text
    };
    let shown = Shown {
        answer,
        quiet: args.quiet,
        kept: args.journal.is_some(),
        bus: args.bus.as_deref(),
    };
    Ok(show(run, told, swarm.runtime(), &shown).await)
}

/// Shows a run until it ends, then what came of it.
pub(crate) async fn show(
    run: RunHandle<Swarm>,
    told: Arc<Told>,
    runtime: &Runtime,
    shown: &Shown<'_>,
) -> ExitCode {
    let (id, control) = (run.id().clone(), run.control().clone());
    let driven = drive(run, control, told, runtime).await;
    end::conclude(shown, &id, driven)
}

impl SwarmShape {
    /// An option that was given, if one was.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let workers = (!self.workers.is_empty()).then_some("--worker");
        let most = self.max_delegations.map(|_| "--max-delegations");
        workers.or(most).or(self.talk.then_some("--talk"))
    }

    /// The workers that take part.
    fn names(&self) -> Vec<&'static str> {
        let all = if self.workers.is_empty() {
            Name::value_variants()
        } else {
            &self.workers
        };
        all.iter().map(|name| name.as_str()).collect()
    }

    /// The swarm, driven by this runtime, and the servers that run beside it.
    pub(crate) async fn build(
        &self,
        common: &Common,
        max_parallel: Option<usize>,
        runtime: Runtime,
        quiet: bool,
    ) -> Result<(Swarm, Offered), String> {
        let offered = common.mcp.start(note).await?;
        match self.with_servers(common, max_parallel, runtime, &offered, quiet) {
            Ok(swarm) => Ok((swarm, offered)),
            Err(problem) => offered.end(Err(problem)).await,
        }
    }

    fn with_servers(
        &self,
        common: &Common,
        max_parallel: Option<usize>,
        runtime: Runtime,
        offered: &Offered,
        quiet: bool,
    ) -> Result<Swarm, String> {
        let tell = |text: &str| {
            if !quiet {
                note(text.trim_end());
            }
        };
        let pause = if io::stderr().is_terminal() {
            PAUSE
        } else {
            Duration::ZERO
        };
        let model = common
            .model
            .open_shared(&common.options, tell, || demo::model(pause))?;
        let mut ready = ReadyWorkers::new(model.clone())
            .runtime(runtime.clone())
            .finish(|_, agent| agent.ask_user());
        if let Some(turns) = common.max_turns {
            ready = ready.finish(move |_, agent| agent.max_turns(turns));
        }
        common
            .tools
            .unreached(&self.names())
            .into_iter()
            .for_each(tell);
        let ready = common.tools.add_to_ready(ready, quiet, tell)?;
        let ready = common
            .asked()
            .fold(offered.add_to_ready(ready), ReadyWorkers::rule);
        let guards = common.options.guards(&model);
        let most = self.max_delegations.unwrap_or(Router::DEFAULT_DELEGATIONS);
        let mut swarm = Swarm::builder(Router::new(model).max_delegations(most))
            .max_parallel(max_parallel.unwrap_or(16))
            .limits(common.options.limits())
            .runtime(runtime);
        swarm = guards.into_iter().fold(swarm, SwarmBuilder::guard);
        for (name, worker) in Name::value_variants()
            .iter()
            .zip(ready.all().map_err(|error| chain(&error))?)
        {
            if self.workers.is_empty() || self.workers.contains(name) {
                swarm = swarm.worker(worker);
            }
        }
        let swarm = if self.talk { swarm.talk() } else { swarm };
        swarm.build().map_err(|error| chain(&error))
    }
}

/// Begins a run, or goes on with one.
async fn start(
    args: &SwarmArgs,
    swarm: &Swarm,
    plan: Option<Vec<Delegation>>,
    (told, logs): (&Arc<Told>, &Logs),
) -> Result<RunHandle<Swarm>, String> {
    let Some(id) = &args.resume else {
        let mut input = SwarmInput::from(args.goal.clone().unwrap_or_default());
        if let Some(plan) = plan {
            input = input.plan(plan);
        }
        let mut run = swarm.run(input);
        if let Some(id) = &args.id {
            run = run.id(free(id, swarm).await?);
        }
        return set(args, run, told, logs);
    };
    let id = RunId::new(id.as_str());
    let records = swarm
        .runtime()
        .journal()
        .read(&id)
        .await
        .map_err(|error| chain(&error))?;
    let Some(known) = RunSummary::of(&id, &records) else {
        return Err(format!(
            "there is no run `{id}`; `levity runs list` shows those there are"
        ));
    };
    told.catch_up(&swarm.history(&id).await.map_err(|error| chain(&error))?);
    let mut run = swarm.resume(id);
    if let Some(limits) = args.common.options.given_limits() {
        run = run.limits(limits);
    }
    let run = set(args, run, told, logs)?;
    if known.paused {
        // A run that could not be opened says so itself.
        let _ = run.control().resume().await;
    }
    Ok(run)
}

/// An id that a run can have, and none has.
async fn free(id: &str, swarm: &Swarm) -> Result<RunId, String> {
    let id = RunId::new(id);
    match swarm.runtime().journal().read(&id).await {
        Ok(records) if records.is_empty() => Ok(id),
        Ok(_) => Err(format!(
            "run `{id}` exists already; go on with it by `--resume`, or choose another id"
        )),
        Err(error) => Err(chain(&error)),
    }
}

fn set(
    args: &SwarmArgs,
    run: levity::runtime::Run<Swarm>,
    told: &Arc<Told>,
    logs: &Logs,
) -> Result<RunHandle<Swarm>, String> {
    let run = run.on_event(logs.beside(told.watcher()));
    let run = if args.park { run.park() } else { run };
    run.try_start().map_err(|error| chain(&error))
}

/// A plan from a file: a list of delegations, or an object with one, as a router writes it.
fn read_plan(path: &std::path::Path) -> Result<Vec<Delegation>, String> {
    #[derive(serde::Deserialize)]
    #[serde(untagged)]
    enum Plan {
        List(Vec<Delegation>),
        Object { delegations: Vec<Delegation> },
    }
    let text = read_text(path)?;
    let form = r#"[{"id": "..", "worker": "..", "task": "..", "depends_on": []}]"#;
    match serde_json::from_str(&text) {
        Ok(Plan::List(plan) | Plan::Object { delegations: plan }) => Ok(plan),
        Err(_) => Err(format!(
            "`{}` is no plan; one looks like this: {form}",
            path.display()
        )),
    }
}
