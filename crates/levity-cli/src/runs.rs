//! Commands on stored runs: list, show, compare, resume, replay, fork, control, export, import and
//! delete.
//!
//! Three levels of access exist. Reading (`list`, `storage`) works on every journal. Control
//! (`control`) stores a request for the driver of a run. Driving (`drive`) performs the effects of
//! a run, and is allowed for runs that this user started or trusts by an option.
//!
//! Each subcommand returns a `CommandResult`; an error message becomes exit code 1 here, in one
//! place. Commands that drive a run return the exit codes of the run instead.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};
use levity::core::{Entry, Journal, Record, RunId};

use crate::agent::AgentArgs;
use crate::kind::GroupOptions;
use crate::marks::{OwnJournal, Trust};
use crate::store::JournalArg;
use crate::terminal::{chain, report_error};

mod artifacts;
mod control;
mod cost;
mod drive;
mod list;
mod storage;
mod timeline;

/// The arguments of `levity runs`.
#[derive(Args)]
pub(crate) struct Runs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List the runs of a journal, oldest first.
    List(list::List),
    /// Show the history of a run and its child runs.
    Show(list::Show),
    /// Compare two runs: their answers, costs and actions.
    Compare(list::Compare),
    /// Add up the cost of stored runs by day, model or agent.
    Cost(cost::Cost),
    /// List the files that a run and its child runs wrote.
    Artifacts(artifacts::Artifacts),
    /// Resume a run from its last record.
    Resume(DriveArgs),
    /// Replay a run without performing any effect, and check that it has the same result.
    Replay(drive::Replay),
    /// Fork a run: start a new run from one of its records.
    Fork(drive::Fork),
    /// Approve the call that a run asks for.
    Approve(control::Approve),
    /// Deny the call that a run asks for.
    Deny(control::Deny),
    /// Answer the question of a run, or give its model this text instead of the result of a call.
    Answer(control::Answer),
    /// Cancel a run that has not ended.
    Cancel(control::Cancel),
    /// State the result of a call that was in progress when a process ended.
    Resolve(control::Resolve),
    /// Write a run and its child runs to the standard output, as JSON Lines.
    Export(storage::Export),
    /// Import runs that were exported as JSON Lines.
    Import(storage::Import),
    /// Delete runs together with their child runs.
    Rm(storage::Remove),
}

/// The arguments of a command that continues a run.
#[derive(Args)]
pub(crate) struct DriveArgs {
    #[command(flatten)]
    run_arg: RunArg,
    #[command(flatten)]
    trust: Trust,
    #[command(flatten)]
    agent: AgentArgs,
    #[command(flatten)]
    group: GroupOptions,
    /// File that came with the goal, so that agents can read it again; may be given more than once.
    #[arg(long = "file", value_name = "PATH")]
    files: Vec<PathBuf>,
}

/// One run of a journal.
#[derive(Args)]
pub(crate) struct RunArg {
    /// Id of the run.
    run: String,
    #[command(flatten)]
    place: JournalArg,
}

impl RunArg {
    /// The id is taken as written; unlike ids of sessions, it cannot be shortened.
    fn id(&self) -> RunId {
        RunId::new(self.run.as_str())
    }

    /// Opens the journal for reading, without any check of ownership. Fails if the journal or the
    /// run does not exist.
    async fn records(&self) -> Result<(Arc<dyn Journal>, Vec<Record>), String> {
        let journal = self.place.open()?;
        let records = read(&*journal, &self.id()).await?;
        Ok((journal, records))
    }

    /// Reads the records of any run to show them, with a note if another program changed them.
    async fn shown_records(&self) -> Result<(Arc<OwnJournal>, Vec<Record>), String> {
        let (journal, id) = (self.place.open_own(Trust::NONE)?, self.id());
        let records = journal.read_to_show(&id).await;
        let records = existing(&id, records.map_err(|error| chain(&error))?)?;
        Ok((journal, records))
    }

    /// Reads the records of a run that is to be stopped, which may belong to anyone.
    async fn any_records(&self) -> Result<(Arc<OwnJournal>, Vec<Record>), String> {
        let journal = Arc::new(self.place.open_any()?);
        let records = read(&*journal, &self.id()).await?;
        Ok((journal, records))
    }

    /// Reads the records of a run to resume, which must belong to the user or be trusted. Prints
    /// the calls that were approved in a run of another user, whether it is trusted or rejected.
    ///
    /// A journal of a stranger can contain decisions that allow dangerous calls, and a resumed run
    /// would execute them without asking again.
    async fn own_records(&self, trust: Trust) -> Result<(Arc<OwnJournal>, Vec<Record>), String> {
        let (journal, id) = (self.place.open_own(trust)?, self.id());
        if !trust.trust_journal
            && let Ok(checked) = journal.read_to_continue(&id).await
            && !checked.is_empty()
        {
            return Ok((journal, checked));
        }
        let records = read(&*journal, &id).await?;
        if let Err(error) = journal.admit(&id, &records).await {
            // The user learns what `--trust-journal` would allow.
            let printed = journal.print_approved(&id, &records).await;
            printed.map_err(|error| chain(&error))?;
            return Err(chain(&error));
        }
        Ok((journal, records))
    }
}

/// Returns the goal of an agent, if these are the records of an agent's run.
///
/// `levity run --id` compares it with the goal of the command, to detect an id that is used for
/// something else.
pub(crate) fn goal_of(records: &[Record]) -> Option<String> {
    match &records.first()?.entry {
        Entry::Opened(opened) => timeline::goal(&opened.state),
        _ => None,
    }
}

/// Returns the calls of a run that were approved, each on one line.
pub(crate) fn approved_calls(records: &[Record]) -> impl Iterator<Item = String> {
    timeline::approved(records)
        .into_iter()
        .map(|call| call.text)
}

/// Reads the records of an existing run.
///
/// A journal returns no records for an unknown run; this function turns that into an error with
/// advice.
async fn read(journal: &dyn Journal, run: &RunId) -> Result<Vec<Record>, String> {
    let records = journal.read(run).await.map_err(|error| chain(&error))?;
    existing(run, records)
}

/// Returns the records, unless there are none.
fn existing(run: &RunId, records: Vec<Record>) -> Result<Vec<Record>, String> {
    if records.is_empty() {
        return Err(format!(
            "there is no run `{run}`; `levity runs list` shows all runs"
        ));
    }
    Ok(records)
}

/// The result of a command: an exit code, or an error message.
type CommandResult = Result<ExitCode, String>;

/// Runs the subcommand and returns 0 if it succeeds, else 1.
pub(crate) async fn runs(args: Runs) -> ExitCode {
    let result = match args.action {
        Action::List(list) => list.list().await,
        Action::Show(show) => show.show().await,
        Action::Compare(compare) => compare.compare().await,
        Action::Cost(cost) => cost.cost().await,
        Action::Artifacts(artifacts) => artifacts.print().await,
        Action::Resume(resume) => drive::resume(resume).await,
        Action::Replay(replay) => replay.replay().await,
        Action::Fork(fork) => fork.fork().await,
        Action::Approve(approve) => approve.send().await,
        Action::Deny(deny) => deny.send().await,
        Action::Answer(answer) => answer.send().await,
        Action::Cancel(cancel) => cancel.send().await,
        Action::Resolve(resolve) => resolve.send().await,
        Action::Export(export) => export.export().await,
        Action::Import(import) => import.import().await,
        Action::Rm(remove) => remove.remove().await,
    };
    result.unwrap_or_else(|problem| report_error(&problem, 1))
}
