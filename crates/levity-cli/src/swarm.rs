//! The command that runs a swarm from the terminal.
//!
//! `levity swarm GOAL` builds a router with the preset workers researcher, coder and reviewer,
//! starts or resumes a run, follows it on the terminal, and prints the answer. `serve` and `runs
//! resume` build the same swarm through `SwarmShape::build`, so a stored run continues with equal
//! workers.
//!
//! Parts: `lines` formats events, `display` holds the state on the terminal, `end` prints the
//! result and chooses the exit code, and `demo` replaces the model if none is configured. The order
//! of the work is fixed: the journal opens first, then the plan file is read, then MCP servers
//! start, then the run. Problems of all these steps are wrong calls with exit code 2; MCP servers
//! that were started are stopped in each case.

mod demo;
mod display;
mod end;
mod lines;

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use levity::agents::PresetWorkers;
use levity::core::{RunId, RunSummary};
use levity::prelude::*;
use levity::runtime::RunHandle;
use levity::swarm::{Delegation, Router, Swarm, SwarmBuilder, SwarmInput};

use crate::agent::Common;
use crate::drive::drive;
use crate::given::{Given, GivenArgs};
use crate::input::Input;
use crate::logs::Logs;
use crate::marks::Trust;
use crate::mcp::McpServers;
use crate::plan::demo::PAUSE;
use crate::store;
use crate::terminal::{advise, chain, note, read_text, report_error};

pub(crate) use display::{Lines, SwarmDisplay};
use end::BusFile;
pub(crate) use end::{AnswerFormat, OutputOptions};

/// The arguments of `levity swarm`.
#[derive(Args)]
#[command(after_help = crate::EXIT_CODES)]
pub(crate) struct SwarmArgs {
    /// Goal of the swarm, in words.
    #[arg(required_unless_present_any = ["plan", "resume"], value_parser = crate::input::goal)]
    goal: Option<String>,
    /// JSON file with a plan to carry out instead of a plan of the router.
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    plan: Option<PathBuf>,
    #[command(flatten)]
    given: GivenArgs,
    #[command(flatten)]
    shape: SwarmShape,
    /// Maximum number of workers that run at the same time [default: 16].
    #[arg(long, value_name = "N", help_heading = "Teams and swarms")]
    max_parallel: Option<usize>,
    /// Store the run in this folder or SQLite file (`*.db`).
    #[arg(long, value_name = "PATH")]
    journal: Option<PathBuf>,
    #[command(flatten)]
    trust: Trust,
    /// Id of the run; random by default.
    #[arg(
        long,
        value_name = "ID",
        requires = "journal",
        conflicts_with = "resume"
    )]
    id: Option<String>,
    /// Resume this run; completed work is not repeated.
    #[arg(
        long,
        value_name = "RUN",
        requires = "journal",
        conflicts_with_all = ["goal", "images", "files"]
    )]
    resume: Option<String>,
    #[command(flatten)]
    common: Common,
    /// Park the run in its journal when it only waits for a person or a time.
    #[arg(long, requires = "journal")]
    park: bool,
    /// Write all messages of the workers to this file, as JSON Lines, when the run has ended.
    #[arg(long, value_name = "FILE")]
    bus: Option<PathBuf>,
    /// Print the result as one JSON object instead of the answer.
    #[arg(long)]
    json: bool,
    /// Print only the answer.
    #[arg(long, short)]
    quiet: bool,
}

/// The options that define a swarm.
#[derive(Args)]
pub(crate) struct SwarmShape {
    /// Use only this worker of a swarm; may be given more than once.
    #[arg(
        long = "worker",
        value_enum,
        value_name = "NAME",
        help_heading = "Teams and swarms"
    )]
    workers: Vec<WorkerName>,
    /// Maximum number of delegations in the plan of a swarm's router [default: 32].
    #[arg(long, value_name = "N", help_heading = "Teams and swarms")]
    max_delegations: Option<usize>,
    /// Let the workers of a swarm send messages to each other.
    #[arg(long, help_heading = "Teams and swarms")]
    talk: bool,
}

/// The names of the workers.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WorkerName {
    /// Finds information; changes nothing.
    Researcher,
    /// Writes code and tests for it.
    Coder,
    /// Reviews the work of others; changes nothing.
    Reviewer,
}

impl WorkerName {
    /// The names of the preset workers in levity-swarm, in the same order as its list of workers.
    fn as_str(self) -> &'static str {
        match self {
            Self::Researcher => "researcher",
            Self::Coder => "coder",
            Self::Reviewer => "reviewer",
        }
    }
}

/// Runs a swarm and returns the exit code: 0 for an answer, 1 for none, 2 for an invalid call, 3 if
/// the run is waiting, 4 if only part of the work is done, 130 after Ctrl-C.
pub(crate) async fn swarm(args: SwarmArgs) -> ExitCode {
    match prepare(&args).await {
        Ok(code) => code,
        Err(problem) => report_error(&problem, 2),
    }
}

/// Opens what the run needs and performs it. An `Err` is a wrong call, found before or at the start
/// of the run; a run that fails later is an `Ok` with its exit code.
async fn prepare(args: &SwarmArgs) -> Result<ExitCode, String> {
    let runtime = match &args.journal {
        Some(path) => Runtime::new()
            .with_journal(store::open_own(path, args.trust).map_err(|error| chain(&error))?),
        None => Runtime::new(),
    };
    let given = args.given.open()?;
    let plan = args.plan.as_deref().map(read_plan).transpose()?;
    let bus = args.bus.as_deref().map(BusFile::open).transpose()?;
    let (swarm, mcp_servers) = args
        .shape
        .build(&args.common, args.max_parallel, &given, runtime, args.quiet)
        .await?;
    let mut input = SwarmInput::from(args.goal.clone().unwrap_or_default())
        .files(given.files)
        .media(given.images);
    if let Some(plan) = plan {
        input = input.plan(plan);
    }
    mcp_servers
        .end(run_swarm(args, &swarm, input, bus).await)
        .await
}

/// Runs the swarm while its MCP servers live; the caller ends them. Logs are opened before the run
/// starts and stay open until its end.
async fn run_swarm(
    args: &SwarmArgs,
    swarm: &Swarm,
    input: SwarmInput,
    bus: Option<BusFile>,
) -> Result<ExitCode, String> {
    let display = SwarmDisplay::new(
        if args.quiet {
            Lines::None
        } else {
            Lines::Plain
        },
        args.park,
    );
    let logs = args.common.logs.open()?;
    let run = start(args, swarm, input, (&display, &logs)).await?;
    let answer = if args.json {
        AnswerFormat::Object
    } else {
        AnswerFormat::Text
    };
    let options = OutputOptions {
        answer,
        quiet: args.quiet,
        in_journal: args.journal.is_some(),
        bus,
    };
    Ok(show(run, display, swarm.runtime(), &options).await)
}

/// Shows a run until it ends, then prints its result.
///
/// Also used by `levity runs resume`, so a resumed swarm looks like a new one.
pub(crate) async fn show(
    run: RunHandle<Swarm>,
    display: Arc<SwarmDisplay>,
    runtime: &Runtime,
    options: &OutputOptions,
) -> ExitCode {
    let (id, control) = (run.id().clone(), run.control().clone());
    let driven = drive(run, control, display, runtime, &mut Input::new()).await;
    end::conclude(options, &id, driven)
}

impl SwarmShape {
    /// Returns the names of the given options.
    ///
    /// Commands that accept several kinds of runs use it to refuse an option that does not apply to
    /// the requested kind, such as `--talk` for a single agent.
    pub(crate) fn given(&self) -> impl Iterator<Item = &'static str> {
        let workers = (!self.workers.is_empty()).then_some("--worker");
        let max_delegations = self.max_delegations.map(|_| "--max-delegations");
        let talk = self.talk.then_some("--talk");
        [workers, max_delegations, talk].into_iter().flatten()
    }

    /// Returns the names of the workers of this swarm.
    ///
    /// All workers take part unless `--worker` selects some.
    fn names(&self) -> Vec<&'static str> {
        let all = if self.workers.is_empty() {
            WorkerName::value_variants()
        } else {
            &self.workers
        };
        all.iter().map(|name| name.as_str()).collect()
    }

    /// Builds the swarm with this runtime, and returns it with the MCP servers that run beside it.
    ///
    /// MCP servers start before the swarm is built, because their tools are part of its workers. If
    /// building fails, they are ended before the error returns, so no process is left behind.
    pub(crate) async fn build(
        &self,
        common: &Common,
        max_parallel: Option<usize>,
        given: &Given,
        runtime: Runtime,
        quiet: bool,
    ) -> Result<(Swarm, McpServers), String> {
        let mcp_servers = common.mcp.start(note).await?;
        let swarm = self.with_servers(common, max_parallel, given, runtime, (&mcp_servers, quiet));
        mcp_servers.beside(swarm).await
    }

    /// Builds the swarm while the MCP servers run. The router and all workers share one model with
    /// its layers, such as the cache. Guards apply to the whole swarm; approval rules and the tool
    /// `ask_user` are added to each worker. Defaults are 16 parallel workers and
    /// `Router::DEFAULT_DELEGATIONS` delegations.
    fn with_servers(
        &self,
        common: &Common,
        max_parallel: Option<usize>,
        given: &Given,
        runtime: Runtime,
        (mcp_servers, quiet): (&McpServers, bool),
    ) -> Result<Swarm, String> {
        let report = |text: &str| {
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
            .open_shared(&common.options, report, || demo::model(pause))?;
        given.check(model.card())?;
        let mut ready = PresetWorkers::new(model.clone())
            .runtime(runtime.clone())
            .customize(|_, agent| agent.ask_user());
        if let Some(turns) = common.max_turns {
            ready = ready.customize(move |_, agent| agent.max_turns(turns));
        }
        common
            .tools
            .unused_options(&self.names())
            .into_iter()
            .for_each(report);
        let ready = common.tools.add_to_workers(ready, quiet, report)?;
        let ready = ready.tools(given.tool(report).into_iter().collect::<Vec<_>>());
        let ready = common
            .approval_rules()
            .fold(mcp_servers.add_to_workers(ready), PresetWorkers::rule);
        for tool in ready.unused_tools(&self.names()) {
            report(&format!(
                "the tool `{tool}` reaches no worker, because it is not read-only; add `--worker \
                    coder`"
            ));
        }
        let guards = common.options.guards(&model);
        let max_delegations = self.max_delegations.unwrap_or(Router::DEFAULT_DELEGATIONS);
        let mut swarm = Swarm::builder(Router::new(model).max_delegations(max_delegations))
            .max_parallel(max_parallel.unwrap_or(16))
            .limits(common.options.limits())
            .runtime(runtime);
        swarm = guards.into_iter().fold(swarm, SwarmBuilder::guard);
        for (name, worker) in WorkerName::value_variants()
            .iter()
            .zip(ready.all().map_err(|error| chain(&error))?)
        {
            if self.workers.is_empty() || self.workers.contains(name) {
                swarm = swarm.worker(worker);
            }
        }
        let swarm = if self.talk {
            swarm.worker_messages()
        } else {
            swarm
        };
        swarm.build().map_err(|error| chain(&error))
    }
}

/// Starts a run, or resumes one.
///
/// A resumed run keeps its stored goal and plan; only limits that the user gives now replace the
/// stored ones. A run that was paused continues, because resuming it is the user's wish.
///
/// # Errors
/// The run to resume does not exist, the id of a new run is taken, the journal cannot be read, or
/// the plan cannot be carried out.
async fn start(
    args: &SwarmArgs,
    swarm: &Swarm,
    input: SwarmInput,
    (display, logs): (&Arc<SwarmDisplay>, &Logs),
) -> Result<RunHandle<Swarm>, String> {
    let Some(id) = &args.resume else {
        let mut run = swarm.run(input);
        if let Some(id) = &args.id {
            run = run.id(check_unused(id, swarm).await?);
        }
        return start_run(args, run, display, logs);
    };
    let id = RunId::new(id.as_str());
    let records = swarm
        .runtime()
        .journal()
        .read(&id)
        .await
        .map_err(|error| chain(&error))?;
    let Some(summary) = RunSummary::of(&id, &records) else {
        return Err(format!(
            "there is no run `{id}`; `levity runs list` shows all runs"
        ));
    };
    display.catch_up(&swarm.history(&id).await.map_err(|error| chain(&error))?);
    let mut run = swarm.resume(id);
    if let Some(limits) = args.common.options.resumed_limits(&records) {
        run = run.limits(limits);
    }
    let run = start_run(args, run, display, logs)?;
    if summary.paused {
        // A run that could not be opened reports its error.
        let _ = run.control().resume().await;
    }
    Ok(run)
}

/// Returns the id if no run in the journal has it.
///
/// Without this check, a second run with the same id would resume the first one with another goal.
/// It also reads the run, so an unreadable journal fails here.
async fn check_unused(id: &str, swarm: &Swarm) -> Result<RunId, String> {
    let id = RunId::new(id);
    match swarm.runtime().journal().read(&id).await {
        Ok(records) if records.is_empty() => Ok(id),
        Ok(_) => Err(format!(
            "run `{id}` already exists; resume it with `--resume`, or choose another id"
        )),
        Err(error) => Err(chain(&error)),
    }
}

/// Attaches the display and the logs, and starts the run. An error of a run with `--plan` ends with
/// the advice to correct the plan.
fn start_run(
    args: &SwarmArgs,
    run: levity::runtime::Run<Swarm>,
    display: &Arc<SwarmDisplay>,
    logs: &Logs,
) -> Result<RunHandle<Swarm>, String> {
    let run = run.on_event(logs.watcher_with(display.watcher()));
    let run = if args.park { run.park() } else { run };
    run.try_start().map_err(|error| match args.plan {
        Some(_) => advise(chain(&error), "correct the plan"),
        None => chain(&error),
    })
}

/// Reads a plan from a file: a list of delegations, or an object with one, as a router writes it.
///
/// serde's message for an untagged enum does not name the wrong field, so the error shows the
/// expected form instead.
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
            "`{}` is not a valid plan; use this form: {form}",
            path.display()
        )),
    }
}
