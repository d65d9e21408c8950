use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};
use levity::core::{Entry, Journal, Record, RunId, RunQuery};

use crate::agent::AgentArgs;
use crate::kind::Several;
use crate::marks::{OwnJournal, Trust};
use crate::store::Where;
use crate::terminal::{chain, complain, note};

mod drive;
mod keep;
mod list;
mod story;
mod tell;

/// How `levity runs` is called.
#[derive(Args)]
pub(crate) struct Runs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// List the runs of a journal, oldest first.
    List(list::List),
    /// Tell the story of a run and the runs below it.
    Show(list::Show),
    /// Set two runs side by side: what they answered, what it cost, what they did.
    Compare(list::Compare),
    /// Go on with a run.
    Resume(Driven),
    /// Fold a run again without performing anything, and see whether it comes out the same.
    Replay(drive::Replay),
    /// Go another way from a record of a run.
    Fork(drive::Fork),
    /// Allow what a run asks about.
    Approve(tell::Approve),
    /// Forbid what a run asks about.
    Deny(tell::Deny),
    /// Answer what a run asks, or tell its model this in place of what a call would return.
    Answer(tell::Answer),
    /// End a run.
    Cancel(tell::Cancel),
    /// Say what came of a call that was under way when a process ended.
    Resolve(tell::Resolve),
    /// Write a run and the runs below it to the standard output, as JSON lines.
    Export(keep::Export),
    /// Take in runs that were exported.
    Import(keep::Import),
    /// Remove runs, with the runs below them.
    Rm(keep::Remove),
}

/// A run that is driven on.
#[derive(Args)]
pub(crate) struct Driven {
    #[command(flatten)]
    one: One,
    #[command(flatten)]
    trust: Trust,
    #[command(flatten)]
    agent: AgentArgs,
    #[command(flatten)]
    several: Several,
}

/// One run of a journal.
#[derive(Args)]
pub(crate) struct One {
    /// The run's id.
    run: String,
    #[command(flatten)]
    place: Where,
}

impl One {
    fn id(&self) -> RunId {
        RunId::new(self.run.as_str())
    }

    async fn records(&self) -> Result<(Arc<dyn Journal>, Vec<Record>), String> {
        let journal = self.place.open()?;
        let records = read(&*journal, &self.id()).await?;
        Ok((journal, records))
    }

    /// The same, of a run that is to go on. It must be the user's own, or trusted; of one that is
    /// not, it is said first which calls somebody has approved.
    async fn own_records(&self, trust: Trust) -> Result<(Arc<OwnJournal>, Vec<Record>), String> {
        let (journal, id) = (self.place.open_own(trust)?, self.id());
        let records = read(&*journal, &id).await?;
        if journal.is_foreign(&id, &records) {
            let query = RunQuery::new().below(id.clone());
            for run in journal.list(&query).await.map_err(|error| chain(&error))? {
                let records = journal
                    .read(&run.run)
                    .await
                    .map_err(|error| chain(&error))?;
                for call in story::approved(&records) {
                    note(&format!("approved before: {}", call.words));
                }
            }
        }
        journal
            .admit(&id, &records)
            .await
            .map_err(|error| chain(&error))?;
        Ok((journal, records))
    }
}

/// What an agent was told to do, if these are the records of an agent's run.
pub(crate) fn goal_of(records: &[Record]) -> Option<String> {
    match &records.first()?.entry {
        Entry::Opened(opened) => story::goal(&opened.state),
        _ => None,
    }
}

/// The records of a run that is there.
async fn read(journal: &dyn Journal, run: &RunId) -> Result<Vec<Record>, String> {
    let records = journal.read(run).await.map_err(|error| chain(&error))?;
    if records.is_empty() {
        return Err(format!(
            "there is no run `{run}`; `levity runs list` shows those there are"
        ));
    }
    Ok(records)
}

/// What a command came to: an exit code, or what is wrong.
type Done = Result<ExitCode, String>;

/// Does what was asked for: 0 when it was done, 1 when not.
pub(crate) async fn runs(args: Runs) -> ExitCode {
    let done = match args.what {
        What::List(list) => list.list().await,
        What::Show(show) => show.show().await,
        What::Compare(compare) => compare.compare().await,
        What::Resume(resume) => drive::resume(resume).await,
        What::Replay(replay) => replay.replay().await,
        What::Fork(fork) => fork.fork().await,
        What::Approve(approve) => approve.tell().await,
        What::Deny(deny) => deny.tell().await,
        What::Answer(answer) => answer.tell().await,
        What::Cancel(cancel) => cancel.tell().await,
        What::Resolve(resolve) => resolve.tell().await,
        What::Export(export) => export.export().await,
        What::Import(import) => import.import().await,
        What::Rm(remove) => remove.remove().await,
    };
    done.unwrap_or_else(|problem| complain(&problem, 1))
}
