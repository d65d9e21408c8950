//! The command that makes plans and carries them out from the terminal.
//!
//! `levity plan GOAL` makes a plan with a planner, carries it out with a team of agents, shows it
//! as a tree, and prints the answer. With `--sessions DIR`, the folder holds one session file for
//! each plan, for people and other tools, and a journal, from which a plan is resumed exactly.
//!
//! Three ways start a run: a goal (or a plan from a file), `--resume`, and `--fork` with the
//! completed steps of another session. Resuming prefers the journal; without one, or after an early
//! end, a new session starts from the completed steps of the old one, and a note says so.
//!
//! Modules: `team` builds the agents, `drive` asks questions, `display`, `screen`, `live`,
//! `inline`, `draw` and `streamed` show progress, `end` prints the result, `estimate` a plan's
//! expected cost, and `demo` is the model without a key. Exit codes are listed in `end`.

pub(crate) mod demo;
mod display;
mod draw;
mod drive;
mod end;
mod estimate;
mod inline;
mod live;
mod screen;
mod streamed;
mod team;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Once};

use clap::Args;
use levity::core::{Event, RunId, Status};
use levity::dag::{Plan, StepId, Team, TeamInput};
use levity::observe::{PlanView, Session, SessionError, SessionFolder};
use levity::prelude::*;
use levity::runtime::RunHandle;
use serde_json::Value;

use crate::agent::Common;
use crate::given::{Given, GivenArgs};
use crate::input::Input;
use crate::marks::{OwnJournal, Trust};
use crate::recall::AnswerStore;
use crate::store;
use crate::terminal::{advise, chain, note, report_error, shell_quote};

pub(crate) use display::PlanDisplay;
pub(crate) use drive::{PlanOutcome, drive};
pub(crate) use end::{AnswerForm, Drawing, export, print_answer};
use estimate::PlanDraft;
pub(crate) use screen::ViewKind;
pub(crate) use team::TeamShape;

/// The arguments of `levity plan`.
#[derive(Args)]
#[command(after_help = crate::EXIT_CODES)]
pub(crate) struct PlanArgs {
    /// Goal of the plan, in words.
    #[arg(
        required_unless_present_any = ["plan", "resume", "fork"],
        value_parser = crate::input::goal
    )]
    goal: Option<String>,
    #[command(flatten)]
    given: GivenArgs,
    /// JSON file with a plan to carry out instead of making one.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["resume", "fork"])]
    plan: Option<PathBuf>,
    /// Print an estimate of the plan's tokens and cost, step by step, instead of carrying it out.
    #[arg(
        long,
        conflicts_with_all = ["resume", "fork", "sessions", "park", "ask_plan", "export", "view"]
    )]
    estimate: bool,
    /// Display of the run: by default, a live tree on a terminal and lines elsewhere.
    #[arg(long, value_enum, default_value_t = ViewKind::Auto)]
    view: ViewKind,
    /// Store the session in this folder, so that you can inspect, resume and fork it.
    #[arg(long, value_name = "DIR")]
    sessions: Option<PathBuf>,
    #[command(flatten)]
    trust: Trust,
    /// Resume this session; completed steps are not repeated.
    #[arg(
        long,
        value_name = "ID",
        requires = "sessions",
        conflicts_with_all = ["goal", "files", "images", "fork"]
    )]
    resume: Option<String>,
    /// Start a new session from the completed steps of this session.
    #[arg(long, value_name = "ID", requires = "sessions", conflicts_with_all = ["files"])]
    fork: Option<String>,
    /// SQLite file (`*.db`) in which answers are stored, and found again for later goals.
    #[arg(long, value_name = "FILE")]
    recall: Option<PathBuf>,
    /// With `--fork`: repeat this step and all steps that depend on it. May be given more than
    /// once.
    #[arg(long, value_name = "STEP", requires = "fork")]
    redo: Vec<String>,
    #[command(flatten)]
    shape: TeamShape,
    /// Maximum number of steps that run at the same time [default: 16].
    #[arg(long, value_name = "N", help_heading = "Teams and swarms")]
    max_parallel: Option<usize>,
    #[command(flatten)]
    common: Common,
    /// Park the run in its journal when it only waits for a person or a time.
    #[arg(long, requires = "sessions")]
    park: bool,
    /// Print the result as one JSON object instead of the answer, with all variables and steps.
    #[arg(long, conflicts_with = "export")]
    json: bool,
    /// Also print the graph, after the answer.
    #[arg(long, value_enum, value_name = "FORM")]
    export: Option<Drawing>,
}

/// Plans and carries out the goal, and returns the exit code: 0 if the goal was reached, 1 if
/// nothing was done, 2 for an invalid call, 3 if the run is waiting, 4 for part of the work, 130
/// after Ctrl-C.
pub(crate) async fn plan(args: PlanArgs) -> ExitCode {
    let result = match args.estimate {
        true => run_estimate(args).await,
        false => run_plan(&args).await,
    };
    match result {
        Ok(code) => code,
        Err(problem) => report_error(&problem, 2),
    }
}

/// Opens the sessions of a folder, with one warning if a session cannot be stored.
///
/// A session that cannot be written does not stop the plan, because the journal has the truth; the
/// file is for inspection.
pub(crate) fn sessions(folder: &Path) -> SessionFolder {
    let warned = Once::new();
    // The run continues and retries with the next write, so one warning is enough.
    SessionFolder::open(folder).on_error(move |error: &SessionError| {
        warned.call_once(|| {
            note(&format!(
                "cannot update the stored session: {}",
                chain(error)
            ));
        });
    })
}

/// The folder of the sessions, and the journal in it.
///
/// Both lie in one folder, so one option suffices and a copied folder is complete.
pub(crate) struct SessionStore {
    pub(crate) sessions: SessionFolder,
    pub(crate) journal: Arc<OwnJournal>,
}

impl SessionStore {
    /// Creates the journal if necessary. The error names the folder that the user gave, and not the
    /// journal within it.
    pub(crate) fn open(folder: &Path, trust: Trust) -> Result<Self, String> {
        let failed = |error| {
            format!(
                "cannot store sessions in `{}`: {}",
                folder.display(),
                chain(&error)
            )
        };
        Ok(Self {
            sessions: sessions(folder),
            journal: store::open_own(&folder.join("journal"), trust).map_err(failed)?,
        })
    }

    /// Rejects a session that neither belongs to the user nor is trusted: a new run would take the
    /// results in its file for work of the user's agents.
    async fn check(&self, session: &Session) -> Result<(), String> {
        if self.journal.admits_session(&session.id).await {
            return Ok(());
        }
        Err(format!(
            "session `{}` was not started by you on this machine (or an older version started it), \
                and may contain results that someone else wrote; inspect it with `levity sessions \
                show {} --sessions {}`, then use `--trust-journal` to continue it",
            session.id,
            shell_quote(session.id.as_str()),
            shell_quote(&self.sessions.dir().display().to_string())
        ))
    }
}

/// Files are checked first, before a model is called or a session is created. MCP servers are ended
/// in each case. The note about the stored session follows the answer, so it is the last line of a
/// successful call.
async fn run_plan(args: &PlanArgs) -> Result<ExitCode, String> {
    if args.json && args.view == ViewKind::Json {
        return Err(
            "`--json` prints one object at the end, and `--view json` every event; use \
             only one of them"
                .to_owned(),
        );
    }
    let given = args.given.open()?;
    let recall = AnswerStore::open(args.recall.as_deref())?;
    let session_store = match &args.sessions {
        Some(folder) => Some(SessionStore::open(folder, args.trust)?),
        None => None,
    };
    let runtime = match &session_store {
        Some(session_store) => Runtime::new().with_journal(session_store.journal.clone()),
        None => Runtime::new(),
    };
    let sessions = session_store
        .as_ref()
        .map(|session_store| &session_store.sessions);
    let (team, mcp_servers) = args
        .shape
        .build(&args.common, args.max_parallel, &given, runtime, sessions)
        .await?;
    let start = Start {
        args,
        given: &given,
        recalled: recalled(args, recall.as_ref()).await,
    };
    let outcome = match start.run(&team, session_store.as_ref()).await {
        Ok((run, display)) => Ok(drive(run, display, team.runtime(), &mut Input::new()).await),
        Err(problem) => Err(problem),
    };
    let outcome = mcp_servers.end(outcome).await?;
    if let (Some(recall), Some(Ok(answer))) = (&recall, &outcome.result) {
        let source = format!("plan {}", answer.run());
        let goal = outcome.view.goal();
        recall.add(goal, &answer.to_markdown(), &source).await;
    }
    let code = conclude(args, &outcome);
    if let (Some(session_store), Some(run)) = (&session_store, outcome.view.run()) {
        match session_store.sessions.find(run.as_str()).await {
            Ok(_) => note(&format!("stored as session {run}")),
            Err(error) => note(&format!("the session was not stored: {}", chain(&error))),
        }
    }
    Ok(code)
}

/// Returns the answers of earlier goals that match the goal of a new run.
async fn recalled(args: &PlanArgs, recall: Option<&AnswerStore>) -> Option<(&'static str, Value)> {
    recall?.variable(args.goal.as_deref()?).await
}

/// Estimates a plan: one from a file, or one that the planner makes for the goal.
///
/// Nothing is stored.
async fn run_estimate(mut args: PlanArgs) -> Result<ExitCode, String> {
    let given = args.given.open()?;
    args.shape.draft = Some(PlanDraft::default());
    // The tree of a run that ends before its first step would only confuse.
    args.view = ViewKind::None;
    let (team, mcp_servers) = args
        .shape
        .build(
            &args.common,
            args.max_parallel,
            &given,
            Runtime::new(),
            None,
        )
        .await?;
    let code = estimate_with(&args, &given, &team).await;
    mcp_servers.end(code).await
}

/// Estimates the plan of the arguments, or that of a planner, and prints the result.
async fn estimate_with(args: &PlanArgs, given: &Given, team: &Team) -> Result<ExitCode, String> {
    let (plan, planning) = match &args.plan {
        Some(file) => {
            let mut plan = Plan::load(file).map_err(|error| chain(&error))?;
            if !given.files.is_empty() {
                // The run sets these variables; only their names matter here.
                let names: Vec<_> = given
                    .files
                    .iter()
                    .map(|file| file.display().to_string())
                    .collect();
                plan = plan.given("file_manifest", names.clone());
                plan = plan.given("file_profiles", names);
            }
            (plan, None)
        }
        None => {
            let start = Start {
                args,
                given,
                recalled: None,
            };
            let (run, display) = start.start_new(team)?;
            let outcome = drive(run, display, team.runtime(), &mut Input::new()).await;
            let draft = args.shape.draft.as_ref().and_then(PlanDraft::take);
            let Some(plan) = draft else {
                return Ok(conclude(args, &outcome));
            };
            (plan, Some(outcome.view.totals().usage))
        }
    };
    let goal = args.goal.as_deref().unwrap_or_default();
    let estimate = team.estimate(plan.clone(), goal).await;
    let estimate = estimate.map_err(|error| advise(chain(&error), "correct the plan"))?;
    let price = args.common.options.limits().assumed_price;
    let estimate = estimate::with_assumed_price(estimate, price);
    args.shape.print_missing();
    Ok(estimate::print(&plan, &estimate, planning, args.json))
}

impl PlanArgs {
    /// Opens the logs too, which fails for a path that cannot be written.
    fn display(&self, view: PlanView) -> Result<Arc<PlanDisplay>, String> {
        Ok(PlanDisplay::new(
            view,
            self.view,
            self.common.logs.open()?,
            self.park,
        ))
    }
}

/// Shows a run until it ends, then prints its result.
///
/// `levity runs resume` follows a team with it, without the export of a graph.
pub(crate) async fn show(
    run: RunHandle<Team>,
    display: Arc<PlanDisplay>,
    runtime: &Runtime,
    kind: ViewKind,
) -> ExitCode {
    let outcome = drive(run, display, runtime, &mut Input::new()).await;
    let form = answer_form(kind, false);
    print_answer(&outcome, form, kind == ViewKind::None)
}

/// The graph follows the answer on standard output, also after a failure, because it shows the
/// failed step.
fn conclude(args: &PlanArgs, outcome: &PlanOutcome) -> ExitCode {
    let form = answer_form(args.view, args.json);
    let code = print_answer(outcome, form, args.view == ViewKind::None);
    if let Some(drawing) = args.export {
        export(&outcome.view, drawing);
    }
    code
}

/// The events of the JSON view contain the answer, so it is not printed again.
fn answer_form(view: ViewKind, json: bool) -> AnswerForm {
    match (view, json) {
        (ViewKind::Json, _) => AnswerForm::InEvents,
        (_, true) => AnswerForm::Object,
        (_, false) => AnswerForm::Text,
    }
}

/// A run in progress, and its display.
type StartedRun = (RunHandle<Team>, Arc<PlanDisplay>);

/// The start of a run: the options, and what comes with the goal.
struct Start<'a> {
    args: &'a PlanArgs,
    given: &'a Given,
    /// The variable with answers of earlier goals.
    recalled: Option<(&'static str, Value)>,
}

impl Start<'_> {
    /// clap guarantees that `--resume` and `--fork` come with `--sessions` and exclude each other.
    async fn run(
        &self,
        team: &Team,
        session_store: Option<&SessionStore>,
    ) -> Result<StartedRun, String> {
        let args = self.args;
        match (&args.resume, &args.fork, session_store) {
            (Some(id), _, Some(session_store)) => self.resume(team, session_store, id).await,
            (_, Some(id), Some(session_store)) => {
                let session = session_store
                    .sessions
                    .load(id)
                    .await
                    .map_err(|error| chain(&error))?;
                session_store.check(&session).await?;
                self.start_from_session(team, &session)
            }
            _ => self.start_new(team),
        }
    }

    /// Starts a new run, of a goal or of a plan from a file.
    ///
    /// A plan from a file may have a goal in addition, which its agents see.
    fn start_new(&self, team: &Team) -> Result<StartedRun, String> {
        let args = self.args;
        let goal = args.goal.clone().unwrap_or_default();
        let input = match &args.plan {
            Some(file) => {
                TeamInput::from(Plan::load(file).map_err(|error| chain(&error))?).goal(goal)
            }
            None => TeamInput::from(goal),
        };
        self.start_run(team, input.files(self.given.files.iter()))
    }

    /// Resumes a run from its journal, or from its session file if there is no journal.
    ///
    /// The id may be a unique beginning of a session's id, or the full id of a run without a
    /// session file. A run that was cancelled or that ended with part of its work cannot be
    /// continued in its journal, where the end is final.
    async fn resume(
        &self,
        team: &Team,
        session_store: &SessionStore,
        id: &str,
    ) -> Result<StartedRun, String> {
        let args = self.args;
        let session = session_store.sessions.load(id).await;
        let run = session
            .as_ref()
            .map_or_else(|_| RunId::new(id), |session| session.id.clone());
        let records = team
            .runtime()
            .journal()
            .read(&run)
            .await
            .map_err(|error| chain(&error))?;
        if records.is_empty() {
            let session = session.map_err(|error| chain(&error))?;
            session_store.check(&session).await?;
            note(&format!(
                "session {run} has no journal; levity continues it as a new session"
            ));
            return self.start_from_session(team, &session);
        }
        session_store
            .journal
            .admit(&run, &records)
            .await
            .map_err(|error| chain(&error))?;
        let mut view = PlanView::of_run(run.clone());
        let events = team.history(&run).await.map_err(|error| chain(&error))?;
        events.iter().for_each(|event| view.apply(event));
        if let Some(ending) = view.ending().filter(|ending| ended_early(&ending.status)) {
            if view.plan().is_none() {
                return Err(format!(
                    "session {run} ended before it had a plan ({}); start a new session",
                    ending.status
                ));
            }
            note(&format!(
                "session {run} has already ended ({}); levity continues it as a new session",
                ending.status
            ));
            let session = current_session(session_store, &run, &events).await?;
            return self.start_from_session(team, &session);
        }
        let display = args.display(view)?;
        args.shape.print_missing();
        let mut resumed = team.resume(run).on_event(display.watcher());
        if let Some(limits) = args.common.options.resumed_limits(&records) {
            resumed = resumed.limits(limits);
        }
        let resumed = if args.park { resumed.park() } else { resumed };
        Ok((resumed.start(), display))
    }

    /// Starts a new run from the completed steps of a session.
    ///
    /// Steps of `--redo`, and all that depend on them, are repeated. A given goal replaces the one
    /// of the session.
    fn start_from_session(&self, team: &Team, session: &Session) -> Result<StartedRun, String> {
        let args = self.args;
        let redo: Vec<StepId> = args
            .redo
            .iter()
            .map(|step| StepId::from(step.as_str()))
            .collect();
        let seed = session
            .starting_plan_repeating(&redo)
            .map_err(|error| chain(&error))?;
        let goal = args.goal.clone().unwrap_or_else(|| session.query.clone());
        self.start_run(team, TeamInput::from(seed).goal(goal))
    }

    /// An error here is an invalid plan, found before the first model call; a plan from a file gets
    /// the advice to correct it.
    fn start_run(&self, team: &Team, input: TeamInput) -> Result<StartedRun, String> {
        let args = self.args;
        let input = input.media(self.given.images.iter().cloned());
        let input = self
            .recalled
            .clone()
            .into_iter()
            .fold(input, |input, (name, value)| input.given(name, value));
        let display = args.display(PlanView::new())?;
        let run = team.run(input).on_event(display.watcher());
        let run = if args.park { run.park() } else { run }
            .try_start()
            .map_err(|error| match args.plan {
                Some(_) => advise(chain(&error), "correct the plan"),
                None => chain(&error),
            })?;
        // The run does nothing before this task waits, so the notes precede its events.
        args.shape.print_missing();
        Ok((run, display))
    }
}

/// Returns the session of a run with all its events, because its file may be a step behind.
///
/// The file is written while the run goes on and after the fact, so a crash may leave it behind the
/// journal; the events of the journal bring it up to date.
async fn current_session(
    session_store: &SessionStore,
    run: &RunId,
    events: &[Event],
) -> Result<Session, String> {
    let writer = session_store.sessions.writer(run);
    events.iter().for_each(|event| writer.apply(event));
    writer.flush().await.map_err(|error| chain(&*error))?;
    session_store
        .sessions
        .load(run.as_str())
        .await
        .map_err(|error| chain(&error))
}

/// Returns `true` if a run ended before all steps were attempted, so that it can be resumed.
///
/// Completed and failed runs are not among them.
fn ended_early(status: &Status) -> bool {
    matches!(status, Status::Cancelled { .. } | Status::Partial(_))
}
