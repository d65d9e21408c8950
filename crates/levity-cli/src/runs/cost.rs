//! The cost of stored runs, by day, model or agent.
//!
//! The costs are those that the records contain: each reply of a model is stored with its tokens,
//! and with its cost if the price was known then. Records that a fork shares with another run are
//! counted once, in the run in which they were made.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use levity::core::Usage;
use levity::runtime::{CostGroup, CostReport};
use serde_json::json;

use super::CommandResult;
use super::list::RunFilter;
use crate::store::JournalArg;
use crate::terminal::{chain, counted, print_json, print_text};

#[derive(Args)]
pub(crate) struct Cost {
    #[command(flatten)]
    place: JournalArg,
    #[command(flatten)]
    filter: RunFilter,
    /// Property by which costs are added up.
    #[arg(long, value_enum, default_value_t = Group::Day)]
    by: Group,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Group {
    /// The day of the model call, in UTC.
    Day,
    /// The model that replied, as the provider names it.
    Model,
    /// The agent, step or worker; a run without a parent has the name of its kind.
    Agent,
}

impl Cost {
    /// Prints a line for each group in alphabetical order, and one for the sum. A journal without
    /// model calls prints only the sum.
    pub(super) async fn cost(self) -> CommandResult {
        let journal = self.place.open()?;
        let runs = journal.list(&self.filter.query()).await;
        let mut report = CostReport::new(self.by.into());
        for run in runs.map_err(|error| chain(&error))? {
            let records = journal.read(&run.run).await;
            report.add(&run.run, &records.map_err(|error| chain(&error))?);
        }
        for (name, calls, usage) in report.groups() {
            self.print(Some(name), calls, usage);
        }
        let (calls, usage) = report.total();
        self.print(None, calls, &usage);
        Ok(ExitCode::SUCCESS)
    }

    /// Prints one group, or the sum of all. Names come from servers and files, so line breaks in
    /// them are replaced.
    fn print(&self, name: Option<&str>, calls: u64, usage: &Usage) {
        if self.json {
            return print_json(&json!({"group": name, "model_calls": calls, "usage": usage}));
        }
        let name = name.unwrap_or("total").replace('\n', "\u{fffd}");
        let calls = counted(calls, "model call");
        print_text(&format!("{name}  {calls}  {usage}\n"));
    }
}

impl From<Group> for CostGroup {
    fn from(group: Group) -> Self {
        match group {
            Group::Day => Self::Day,
            Group::Model => Self::Model,
            Group::Agent => Self::Agent,
        }
    }
}
