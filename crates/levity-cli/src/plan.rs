//! Plans that are made and carried out from the terminal.

pub(crate) mod demo;
mod draw;
mod drive;
mod end;
mod given;
mod inline;
mod live;
mod screen;
mod team;
mod told;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Once};

use clap::Args;
use levity::core::{Event, RunId, Status};
use levity::dag::{Plan, StepId, Team, TeamInput};
use levity::observe::{PlanView, Session, SessionError, SessionFolder};
use levity::prelude::*;
use levity::runtime::RunHandle;
use levity::tools::profile::{FileKind, FileProfile};

use crate::agent::Common;
use crate::marks::{OwnJournal, Trust};
use crate::store;
use crate::terminal::{chain, complain, note};

use drive::Driven;
pub(crate) use end::{Drawing, export};
pub(crate) use screen::ViewKind;
pub(crate) use team::TeamShape;
pub(crate) use told::Told;

/// How `levity plan` is called.
#[derive(Args)]
#[command(after_help = crate::EXIT_CODES)]
pub(crate) struct PlanArgs {
    /// What to do, in words.
    #[arg(required_unless_present_any = ["plan", "resume", "fork"], value_parser = crate::input::goal)]
    goal: Option<String>,
    /// A file to work with; it is looked at before the plan is made, and agents can read it. May be
    /// given more than once.
    #[arg(long = "file", value_name = "PATH")]
    files: Vec<PathBuf>,
    /// A plan (JSON) to carry out, in place of making one.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["resume", "fork"])]
    plan: Option<PathBuf>,
    /// How it is shown: a live tree on a terminal and lines elsewhere, unless said.
    #[arg(long, value_enum, default_value_t = ViewKind::Auto)]
    view: ViewKind,
    /// Keep the session in this folder, so that it can be looked at, gone on with and forked.
    #[arg(long, value_name = "DIR")]
    sessions: Option<PathBuf>,
    #[command(flatten)]
    trust: Trust,
    /// Go on with this session; what was done is not done again.
    #[arg(long, value_name = "ID", requires = "sessions", conflicts_with_all = ["goal", "files", "fork"])]
    resume: Option<String>,
    /// Begin a new session with what this one has done.
    #[arg(long, value_name = "ID", requires = "sessions", conflicts_with_all = ["files"])]
    fork: Option<String>,
    /// With `--fork`: do this step again, and all that depends on it. May be given more than once.
    #[arg(long, value_name = "STEP", requires = "fork")]
    redo: Vec<String>,
    #[command(flatten)]
    shape: TeamShape,
    /// The most steps that run at a time [default: 16].
    #[arg(long, value_name = "N", help_heading = "Teams and swarms")]
    max_parallel: Option<usize>,
    #[command(flatten)]
    common: Common,
    /// Leave the run in its journal when all it does is wait, for a person or a time.
    #[arg(long, requires = "sessions")]
    park: bool,
    /// Print the graph as well, after the answer.
    #[arg(long, value_enum, value_name = "FORM")]
    export: Option<Drawing>,
}

/// Has a plan made and carried out, and says how it went: 0 when the goal was reached, 1 when
/// nothing was, 2 for a wrong call, 4 when some of it was, 130 when it was left by Ctrl-C.
pub(crate) async fn plan(args: PlanArgs) -> ExitCode {
    match begin(&args).await {
        Ok(code) => code,
        Err(problem) => complain(&problem, 2),
    }
}

/// The sessions of a folder; the user is told once when one cannot be kept.
pub(crate) fn sessions(folder: &Path) -> SessionFolder {
    let told = Once::new();
    // The run goes on, and the next write is tried: one warning is enough.
    SessionFolder::open(folder).on_error(move |error: &SessionError| {
        told.call_once(|| {
            note(&format!(
                "the session cannot be kept up to date: {}",
                chain(error)
            ));
        });
    })
}

/// The folder of the sessions, and the journal beside them.
struct Kept {
    sessions: SessionFolder,
    journal: PathBuf,
}

impl Kept {
    fn new(folder: &Path) -> Self {
        Self {
            sessions: sessions(folder),
            journal: folder.join("journal"),
        }
    }

    fn open_journal(&self, trust: Trust) -> Result<Arc<OwnJournal>, String> {
        let failed = |error| {
            format!(
                "nothing can be kept in `{}`: {}",
                self.sessions.dir().display(),
                chain(&error)
            )
        };
        store::open_own(&self.journal, trust).map_err(failed)
    }
}

async fn begin(args: &PlanArgs) -> Result<ExitCode, String> {
    let no_file = args
        .files
        .iter()
        .map(FileProfile::of)
        .find(|file| file.kind == FileKind::Unknown);
    if let Some(problem) = no_file.and_then(|file| file.error) {
        return Err(problem);
    }
    let kept = args.sessions.as_deref().map(Kept::new);
    let runtime = match &kept {
        Some(kept) => Runtime::new().with_journal(kept.open_journal(args.trust)?),
        None => Runtime::new(),
    };
    let sessions = kept.as_ref().map(|kept| &kept.sessions);
    let (team, offered) = args
        .shape
        .build(
            &args.common,
            args.max_parallel,
            &args.files,
            runtime,
            sessions,
        )
        .await?;
    let driven = match start(args, &team, kept.as_ref()).await {
        Ok((run, told)) => Ok(drive::drive(run, told, team.runtime()).await),
        Err(problem) => Err(problem),
    };
    let driven = offered.end(driven).await?;
    let code = conclude(args, &driven);
    if let (Some(kept), Some(run)) = (&kept, driven.view.run()) {
        match kept.sessions.find(run.as_str()).await {
            Ok(_) => note(&format!("kept as session {run}")),
            Err(error) => note(&format!("the session was not kept: {}", chain(&error))),
        }
    }
    Ok(code)
}

impl PlanArgs {
    fn told(&self, view: PlanView) -> Result<Arc<Told>, String> {
        Ok(Told::new(
            view,
            self.view,
            self.common.logs.open()?,
            self.park,
        ))
    }
}

/// Shows a run until it ends, then what came of it.
pub(crate) async fn show(
    run: RunHandle<Team>,
    told: Arc<Told>,
    runtime: &Runtime,
    kind: ViewKind,
) -> ExitCode {
    let driven = drive::drive(run, told, runtime).await;
    end::say_answer(&driven, kind == ViewKind::Json, kind == ViewKind::None)
}

fn conclude(args: &PlanArgs, driven: &Driven) -> ExitCode {
    let code = end::say_answer(
        driven,
        args.view == ViewKind::Json,
        args.view == ViewKind::None,
    );
    if let Some(drawing) = args.export {
        export(&driven.view, drawing);
    }
    code
}

/// A run that has begun, and what is known of it.
type Started = (RunHandle<Team>, Arc<Told>);

async fn start(args: &PlanArgs, team: &Team, kept: Option<&Kept>) -> Result<Started, String> {
    match (&args.resume, &args.fork, kept) {
        (Some(id), _, Some(kept)) => resume(args, team, kept, id).await,
        (_, Some(id), Some(kept)) => {
            let session = kept
                .sessions
                .load(id)
                .await
                .map_err(|error| chain(&error))?;
            seeded(args, team, &session)
        }
        _ => fresh(args, team),
    }
}

/// A new run, of a goal or of a plan from a file.
fn fresh(args: &PlanArgs, team: &Team) -> Result<Started, String> {
    let goal = args.goal.clone().unwrap_or_default();
    let input = match &args.plan {
        Some(file) => TeamInput::from(Plan::load(file).map_err(|error| chain(&error))?).goal(goal),
        None => TeamInput::from(goal),
    };
    begun(args, team, input.files(args.files.iter()))
}

/// Goes on with a run from its journal; or from its session file, where there is no journal.
async fn resume(args: &PlanArgs, team: &Team, kept: &Kept, id: &str) -> Result<Started, String> {
    let known = kept.sessions.load(id).await;
    let run = known
        .as_ref()
        .map_or_else(|_| RunId::new(id), |session| session.id.clone());
    let records = team
        .runtime()
        .journal()
        .read(&run)
        .await
        .map_err(|error| chain(&error))?;
    if records.is_empty() {
        let known = known.map_err(|error| chain(&error))?;
        note(&format!(
            "there is no journal of session {run}; it goes on as a new session"
        ));
        return seeded(args, team, &known);
    }
    let mut view = PlanView::of_run(run.clone());
    let told = team.history(&run).await.map_err(|error| chain(&error))?;
    told.iter().for_each(|event| view.apply(event));
    if let Some(ending) = view.ending().filter(|ending| left_off(&ending.status)) {
        if view.plan().is_none() {
            return Err(format!(
                "session {run} ended before it had a plan ({}); begin anew",
                ending.status
            ));
        }
        note(&format!(
            "session {run} had ended ({}); it goes on as a new session",
            ending.status
        ));
        return seeded(args, team, &up_to_date(kept, &run, &told).await?);
    }
    let told = args.told(view)?;
    let mut going_on = team.resume(run).on_event(told.watcher());
    if let Some(limits) = args.common.options.given_limits() {
        going_on = going_on.limits(limits);
    }
    let going_on = if args.park { going_on.park() } else { going_on };
    Ok((going_on.start(), told))
}

/// The session of a run, with all that happened in it: its file may be a step behind.
async fn up_to_date(kept: &Kept, run: &RunId, told: &[Event]) -> Result<Session, String> {
    let writer = kept.sessions.writer(run);
    told.iter().for_each(|event| writer.apply(event));
    writer.flush().await.map_err(|error| chain(&*error))?;
    kept.sessions
        .load(run.as_str())
        .await
        .map_err(|error| chain(&error))
}

/// Whether a run ended before it had tried everything, so that there is something to go on with.
fn left_off(status: &Status) -> bool {
    matches!(status, Status::Cancelled { .. } | Status::Partial(_))
}

/// A new run that begins with what a session has done.
fn seeded(args: &PlanArgs, team: &Team, session: &Session) -> Result<Started, String> {
    let redo: Vec<StepId> = args
        .redo
        .iter()
        .map(|step| StepId::from(step.as_str()))
        .collect();
    let seed = session.seed_without(&redo).map_err(|error| chain(&error))?;
    let goal = args.goal.clone().unwrap_or_else(|| session.query.clone());
    begun(args, team, TeamInput::from(seed).goal(goal))
}

fn begun(args: &PlanArgs, team: &Team, input: TeamInput) -> Result<Started, String> {
    let told = args.told(PlanView::new())?;
    let run = team.run(input).on_event(told.watcher());
    let run = if args.park { run.park() } else { run }
        .try_start()
        .map_err(|error| chain(&error))?;
    Ok((run, told))
}
