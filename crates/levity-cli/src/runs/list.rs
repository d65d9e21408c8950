//! Lists, shows and compares runs without changing them.
//!
//! None of these commands needs the right to drive a run: they open the journal for reading, take
//! no lease, and work while other processes drive the same runs. They accept runs of strangers too,
//! because nothing in them is executed. `show` prints a note if another program changed a run of
//! this user, because the user reads the run before approving its calls.
//!
//! `list` prints one line for each run, for example `2026-01-02T03:04:05.678Z  3f2a  12 records
//! waiting for an answer`; `--json` prints the whole summaries. Exit codes: 0, or 1 if the journal
//! or the run cannot be read.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use levity::core::{RunId, RunQuery, RunState, RunSummary, Timestamp};
use levity::prelude::*;
use levity::runtime::{RunComparison, RunReport};

use super::{CommandResult, RunArg, read, timeline};
use crate::store::JournalArg;
use crate::terminal::{chain, print_json, print_text};

#[derive(Args)]
pub(crate) struct List {
    #[command(flatten)]
    place: JournalArg,
    #[command(flatten)]
    filter: RunFilter,
    /// List the newest runs first.
    #[arg(long)]
    newest: bool,
    /// Maximum number of runs to list.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
}

/// The options that select runs.
#[derive(Args)]
pub(crate) struct RunFilter {
    /// Select only runs in this state.
    #[arg(long, value_name = "STATE")]
    state: Option<State>,
    /// Select only runs that no other run started.
    #[arg(long)]
    roots: bool,
    /// Select only this run and its child runs.
    #[arg(long, value_name = "RUN")]
    below: Option<String>,
    /// Select only runs that started more than this many days ago, in any state.
    #[arg(long, value_name = "DAYS", value_parser = days)]
    pub(crate) older_than: Option<f64>,
    /// Select only runs that wait for a time that has passed.
    #[arg(long)]
    due: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum State {
    Open,
    Waiting,
    Answered,
    Failed,
}

/// Fractions are accepted, such as `0.5` for twelve hours; infinities and negative numbers are not.
fn days(text: &str) -> Result<f64, String> {
    let days = text
        .parse()
        .ok()
        .filter(|days: &f64| days.is_finite() && *days >= 0.0);
    days.ok_or_else(|| "use a number of days, 0 or more".to_owned())
}

impl RunFilter {
    /// Computes the times for `--older-than` and `--due` from the clock once, so all runs are
    /// judged by the same moment. `runs rm` uses the same query, and deletes exactly those runs
    /// that `runs list` shows with the same options.
    pub(crate) fn query(&self) -> RunQuery {
        let mut query = RunQuery::new();
        query.state = self.state.map(|state| match state {
            State::Open => RunState::Open,
            State::Waiting => RunState::Waiting,
            State::Answered => RunState::Answered,
            State::Failed => RunState::Failed,
        });
        query.roots = self.roots;
        query.below = self.below.as_deref().map(RunId::from);
        let now = Runtime::new().world().now();
        query.before = self.older_than.map(|days| {
            let millis = (days * 86_400_000.0) as u64;
            Timestamp::from_millis(now.as_millis().saturating_sub(millis))
        });
        query.due = self.due.then_some(now);
        query
    }
}

impl List {
    /// An empty journal prints nothing and succeeds, so scripts can count lines.
    pub(super) async fn list(self) -> CommandResult {
        let mut query = self.filter.query();
        (query.newest_first, query.limit) = (self.newest, self.limit);
        let runs = self
            .place
            .open()?
            .list(&query)
            .await
            .map_err(|error| chain(&error))?;
        if self.json {
            runs.iter().for_each(print_json);
        } else {
            runs.iter().map(line).for_each(|line| print_text(&line));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A run that has not ended is described by the cause that holds it, in the order of certainty: a
/// time, an open question, a pause. "not ended" covers both a run in progress and one that a crash
/// interrupted, since a summary cannot tell them apart.
fn line(run: &RunSummary) -> String {
    let status = match (&run.status, run.next_wake()) {
        (Some(status), _) => status.to_string(),
        (None, Some(wakes)) => format!("waiting until {wakes}"),
        (None, None) if !run.waiting.is_empty() => "waiting for an answer".to_owned(),
        (None, None) if run.paused => "paused".to_owned(),
        (None, None) => "not ended".to_owned(),
    };
    format!(
        "{}  {}  {} records  {status}\n",
        run.opened, run.run, run.records
    )
}

#[derive(Args)]
pub(crate) struct Show {
    #[command(flatten)]
    run_arg: RunArg,
    /// Print the records, one JSON object per line.
    #[arg(long)]
    json: bool,
}

impl Show {
    /// Prints the timeline with child runs, or with `--json` the records of this run alone.
    pub(super) async fn show(self) -> CommandResult {
        let (journal, records) = self.run_arg.shown_records().await?;
        if self.json {
            records.iter().for_each(print_json);
        } else {
            print_text(&timeline::render(&journal, &self.run_arg.id(), &records).await);
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(Args)]
pub(crate) struct Compare {
    #[command(flatten)]
    run_arg: RunArg,
    /// Id of the other run.
    other: String,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Compare {
    /// Both runs come from the same journal. A missing run fails with exit code 1 before anything
    /// is printed.
    pub(super) async fn compare(self) -> CommandResult {
        let (journal, left) = self.run_arg.records().await?;
        let other = RunId::new(self.other.as_str());
        let right = read(&*journal, &other).await?;
        let (left, right) = (
            RunReport::of(&self.run_arg.id(), &left),
            RunReport::of(&other, &right),
        );
        let comparison = RunComparison::new(left, right);
        if self.json {
            print_json(&comparison);
        } else {
            print_text(&comparison.to_string());
        }
        Ok(ExitCode::SUCCESS)
    }
}
