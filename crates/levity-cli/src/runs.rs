use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use levity::core::{
    Command, EffectKind, Entry, Journal as _, JournalError, Outcome, Record, RunQuery, RunSummary,
};
use levity::prelude::*;

use crate::terminal::{chain, complain, say, say_json};

/// How `levity runs` is called.
#[derive(Args)]
pub(crate) struct Runs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// List the runs of a journal, oldest first.
    List(Where),
    /// Tell the story of a run.
    Show {
        /// The run's id.
        run: String,
        #[command(flatten)]
        journal: Where,
    },
}

#[derive(Args)]
struct Where {
    /// The folder that the runs are kept in.
    #[arg(long, value_name = "FOLDER", default_value = "runs")]
    journal: PathBuf,
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
}

/// Looks at runs; never changes one.
pub(crate) async fn runs(args: Runs) -> ExitCode {
    let shown = match &args.what {
        What::List(place) => list(place).await,
        What::Show { run, journal } => show(&RunId::new(run.as_str()), journal).await,
    };
    shown.unwrap_or_else(|error| complain(&chain(&error), 1))
}

async fn list(place: &Where) -> Result<ExitCode, JournalError> {
    let Some(journal) = journal(place)? else { return Ok(no_journal(place)) };
    let runs = journal.list(&RunQuery::new()).await?;
    if place.json {
        runs.iter().for_each(say_json);
        return Ok(ExitCode::SUCCESS);
    }
    runs.iter().map(line).for_each(|line| say(&line));
    Ok(ExitCode::SUCCESS)
}

fn line(run: &RunSummary) -> String {
    let status = run.status.as_ref().map_or_else(|| "has not ended".to_owned(), ToString::to_string);
    format!("{}  {}  {} records  {status}\n", run.opened, run.run, run.records)
}

async fn show(run: &RunId, place: &Where) -> Result<ExitCode, JournalError> {
    let Some(journal) = journal(place)? else { return Ok(no_journal(place)) };
    let records = journal.read(run).await?;
    if records.is_empty() {
        let problem = format!("there is no run `{run}`; `levity runs list` shows those there are");
        return Ok(complain(&problem, 1));
    }
    if place.json {
        records.iter().for_each(say_json);
    } else {
        records.iter().filter_map(tell).for_each(|line| say(&line));
    }
    Ok(ExitCode::SUCCESS)
}

/// The journal, if there is one: looking for runs must not make a folder.
fn journal(place: &Where) -> Result<Option<FileJournal>, JournalError> {
    if place.journal.is_dir() { FileJournal::new(&place.journal).map(Some) } else { Ok(None) }
}

fn no_journal(place: &Where) -> ExitCode {
    let problem = format!(
        "there is no folder `{}`; name one with `--journal`, or make a run with `levity run --journal`",
        place.journal.display()
    );
    complain(&problem, 1)
}

/// A record in words, where it has something to say.
fn tell(record: &Record) -> Option<String> {
    let what = match &record.entry {
        Entry::Opened(opened) => format!("opened, driven by {}", opened.machine),
        Entry::Started { effect, note } if note.kind == EffectKind::Tool => {
            format!("{effect}: calls {}", note.name)
        }
        Entry::Finished { effect, outcome, .. } => format!("{effect}: {}", came_of(outcome)?),
        Entry::Commanded(Command::Say { message }) => format!("the host says: {}", message.text()),
        Entry::Commanded(Command::Cancel { reason }) => format!("the host cancels: {reason}"),
        Entry::Commanded(Command::Pause) => "the host pauses".to_owned(),
        Entry::Commanded(Command::Resume) => "the host resumes".to_owned(),
        Entry::Low(limit) => format!("little is left of the limit on {limit}"),
        Entry::Wrapped(limit) => format!("the limit on {limit} is near"),
        Entry::Stopped(limit) => format!("the limit on {limit} is passed"),
        Entry::Ended(status) => format!("ended: {status}"),
        _ => return None,
    };
    Some(format!("{} {what}\n", record.at))
}

fn came_of(outcome: &Outcome) -> Option<String> {
    Some(match outcome {
        Outcome::Model(Ok(response)) => {
            let calls: Vec<String> =
                response.message.calls().map(|call| format!("[{} {}]", call.name, call.args)).collect();
            let text = response.message.text();
            format!("says {} {} ({})", text.trim(), calls.join(" "), response.usage)
        }
        Outcome::Model(Err(error)) => format!("no reply: {error}"),
        Outcome::Tool(result) if result.is_error() => format!("{} failed: {}", result.name, result.text()),
        Outcome::Tool(result) => format!("{} gave {}", result.name, result.text()),
        Outcome::NeedsApproval { reason } => format!("somebody must be asked: {reason}"),
        Outcome::Denied { reason } => format!("denied: {reason}"),
        Outcome::Decision(decision) => format!("decided: {decision:?}"),
        Outcome::Child(ending) => format!("the child {}: {}", ending.status, ending.text),
        Outcome::Refused(limit) => format!("refused: the limit on {limit}"),
        Outcome::Unknown => "nobody knows what came of it".to_owned(),
        _ => return None,
    })
}
