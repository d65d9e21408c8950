//! Looking at runs; nothing is changed.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use levity::core::{RunId, RunQuery, RunState, RunSummary, Timestamp};
use levity::prelude::*;
use levity::runtime::{RunComparison, RunReport};

use super::{Done, One, read, story};
use crate::store::Where;
use crate::terminal::{chain, say, say_json};

#[derive(Args)]
pub(crate) struct List {
    #[command(flatten)]
    place: Where,
    #[command(flatten)]
    which: Which,
    /// The newest first.
    #[arg(long)]
    newest: bool,
    /// At most so many.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
}

/// Which runs are meant.
#[derive(Args)]
pub(crate) struct Which {
    /// Only those that stand like this.
    #[arg(long, value_name = "STATE")]
    state: Option<State>,
    /// Only those that no other run started.
    #[arg(long)]
    roots: bool,
    /// Only this run and those below it.
    #[arg(long, value_name = "RUN")]
    below: Option<String>,
    /// Only those made longer ago than so many days, however they stand.
    #[arg(long, value_name = "DAYS", value_parser = days)]
    pub(crate) older_than: Option<f64>,
    /// Only those that wait for a time that has come.
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

fn days(text: &str) -> Result<f64, String> {
    let days = text
        .parse()
        .ok()
        .filter(|days: &f64| days.is_finite() && *days >= 0.0);
    days.ok_or_else(|| "it must be a number of days, 0 or more".to_owned())
}

impl Which {
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
    pub(super) async fn list(self) -> Done {
        let mut query = self.which.query();
        (query.newest_first, query.limit) = (self.newest, self.limit);
        let runs = self
            .place
            .open()?
            .list(&query)
            .await
            .map_err(|error| chain(&error))?;
        if self.json {
            runs.iter().for_each(say_json);
        } else {
            runs.iter().map(line).for_each(|line| say(&line));
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn line(run: &RunSummary) -> String {
    let status = match (&run.status, run.wakes()) {
        (Some(status), _) => status.to_string(),
        (None, Some(wakes)) => format!("waits until {wakes}"),
        (None, None) if !run.waiting.is_empty() => "waits for an answer".to_owned(),
        (None, None) if run.paused => "is paused".to_owned(),
        (None, None) => "has not ended".to_owned(),
    };
    format!(
        "{}  {}  {} records  {status}\n",
        run.opened, run.run, run.records
    )
}

#[derive(Args)]
pub(crate) struct Show {
    #[command(flatten)]
    one: One,
    /// Print the records, one JSON object a line.
    #[arg(long)]
    json: bool,
}

impl Show {
    pub(super) async fn show(self) -> Done {
        let (journal, records) = self.one.records().await?;
        if self.json {
            records.iter().for_each(say_json);
        } else {
            say(&story::tell(&*journal, &self.one.id(), &records).await);
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(Args)]
pub(crate) struct Compare {
    #[command(flatten)]
    one: One,
    /// The other run's id.
    other: String,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Compare {
    pub(super) async fn compare(self) -> Done {
        let (journal, left) = self.one.records().await?;
        let other = RunId::new(self.other.as_str());
        let right = read(&*journal, &other).await?;
        let (left, right) = (
            RunReport::of(&self.one.id(), &left),
            RunReport::of(&other, &right),
        );
        let comparison = RunComparison::new(left, right);
        if self.json {
            say_json(&comparison);
        } else {
            say(&comparison.to_string());
        }
        Ok(ExitCode::SUCCESS)
    }
}
