//! The cost of stored runs, by day, model or agent.
//!
//! The costs are those that the records contain: each reply of a model is stored with its tokens,
//! and with its cost if the price was known then. Records that a fork shares with another run are
//! counted once, in the run in which they were made.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use levity::core::{EffectKind, Entry, Outcome, Record, RunId, Usage};
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

/// The calls of one day, model or agent.
#[derive(Default)]
struct Total {
    calls: u64,
    usage: Usage,
}

impl Cost {
    /// Prints a line for each group in alphabetical order, and one for the sum. A journal without
    /// model calls prints only the sum.
    pub(super) async fn cost(self) -> CommandResult {
        let journal = self.place.open()?;
        let runs = journal.list(&self.filter.query()).await;
        let mut totals = BTreeMap::<String, Total>::new();
        let mut agents = Agents::default();
        for run in runs.map_err(|error| chain(&error))? {
            let records = journal
                .read(&run.run)
                .await
                .map_err(|error| chain(&error))?;
            let agent = agents.read(&run.run, &records);
            let shared = shared_records(&records);
            for record in records.iter().skip(shared) {
                let Some((model, usage)) = reply(record) else {
                    continue;
                };
                let group = match self.by {
                    Group::Day => record.at.to_string().chars().take(10).collect(),
                    Group::Model => model.to_owned(),
                    Group::Agent => agent.clone(),
                };
                totals.entry(group).or_default().add(usage);
            }
        }
        let mut sum = Total::default();
        for total in totals.values() {
            sum.calls += total.calls;
            sum.usage += total.usage;
        }
        totals
            .iter()
            .for_each(|(name, total)| self.print(Some(name), total));
        self.print(None, &sum);
        Ok(ExitCode::SUCCESS)
    }

    /// Prints one group, or the sum of all. Names come from servers and files, so line breaks in
    /// them are replaced.
    fn print(&self, name: Option<&str>, total: &Total) {
        if self.json {
            return print_json(&json!({
                "group": name, "model_calls": total.calls, "usage": total.usage,
            }));
        }
        let name = name.unwrap_or("total").replace('\n', "\u{fffd}");
        let calls = counted(total.calls, "model call");
        print_text(&format!("{name}  {calls}  {}\n", total.usage));
    }
}

impl Total {
    /// Adds a model call. A call without a known cost adds only its tokens.
    fn add(&mut self, usage: Usage) {
        self.calls += 1;
        self.usage += usage;
    }
}

/// The names of child runs, which only the records of their parents contain.
#[derive(Default)]
struct Agents(BTreeMap<RunId, String>);

impl Agents {
    /// Returns the name of a run, and learns those of its children. Parents come first, since runs
    /// are listed by their start.
    fn read(&mut self, run: &RunId, records: &[Record]) -> String {
        for record in records {
            if let Entry::Started { effect, note } = &record.entry
                && note.kind == EffectKind::Child
            {
                self.0.insert(run.child(*effect), note.name.to_string());
            }
        }
        let kind = || match records.first().map(|record| &record.entry) {
            Some(Entry::Opened(header)) => header.machine.name.to_string(),
            _ => "unknown".to_owned(),
        };
        self.0.remove(run).unwrap_or_else(kind)
    }
}

/// Returns the number of records that a fork has in common with the run that it was forked from.
fn shared_records(records: &[Record]) -> usize {
    match records.first().map(|record| &record.entry) {
        Some(Entry::Opened(header)) => header
            .forked
            .as_ref()
            .and_then(|fork| usize::try_from(fork.after.saturating_add(1)).ok())
            .unwrap_or_default(),
        _ => 0,
    }
}

/// Returns the model and the usage of a model's reply.
fn reply(record: &Record) -> Option<(&str, Usage)> {
    let Entry::Finished {
        outcome: Outcome::Model(Ok(response)),
        ..
    } = &record.entry
    else {
        return None;
    };
    Some((
        response.model.as_deref().unwrap_or("unnamed"),
        response.usage,
    ))
}
