//! The cost of stored runs, by day, model or agent.
//!
//! The costs are those that the records contain: each reply of a model is stored with its tokens,
//! and with its cost if the price was known then.

use std::collections::BTreeMap;

use levity_core::{EffectKind, Entry, Outcome, Record, RunId, Usage};

/// The property by which a [`CostReport`] adds up costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CostGroup {
    /// The day of the model call, in UTC.
    Day,
    /// The model that replied, as the provider names it.
    Model,
    /// The agent, step or worker; a run without a parent has the name of its kind.
    Agent,
}

/// The model calls of stored runs, added up by day, model or agent.
///
/// Records that a fork shares with another run are counted once, in the run in which they were
/// made.
///
/// ```
/// use levity_core::{
///     EffectId, Entry, Message, Outcome, Record, Response, RunId, Timestamp, Usage,
/// };
/// use levity_runtime::{CostGroup, CostReport};
///
/// let reply = Response::new(Message::assistant("At six.")).with_usage(Usage::new(30, 4));
/// let entry = Entry::finished(EffectId::new(0), Outcome::Model(Ok(reply)));
/// let records = [Record::new(0, Timestamp::from_millis(5), entry)];
/// let mut report = CostReport::new(CostGroup::Day);
/// report.add(&RunId::new("r1"), &records);
/// let groups: Vec<_> = report.groups().map(|(day, calls, _)| (day, calls)).collect();
/// assert_eq!(groups, [("1970-01-01", 1)]);
/// assert_eq!(report.total().1.total(), 34);
/// ```
#[derive(Clone, Debug)]
pub struct CostReport {
    by: CostGroup,
    totals: BTreeMap<String, (u64, Usage)>,
    /// The names of child runs, which only the records of their parents contain.
    agents: BTreeMap<RunId, String>,
}

impl CostReport {
    /// Creates an empty report.
    pub fn new(by: CostGroup) -> Self {
        Self {
            by,
            totals: BTreeMap::new(),
            agents: BTreeMap::new(),
        }
    }

    /// Adds the records of a run. Add a run before its child runs, so that their names are known.
    pub fn add(&mut self, run: &RunId, records: &[Record]) {
        let agent = self.name_of(run, records);
        for record in records.iter().skip(shared_records(records)) {
            let Some((model, usage)) = reply(record) else {
                continue;
            };
            let group = match self.by {
                CostGroup::Day => record.at.to_string().chars().take(10).collect(),
                CostGroup::Model => model.to_owned(),
                CostGroup::Agent => agent.clone(),
            };
            let total = self.totals.entry(group).or_default();
            total.0 += 1;
            total.1 += usage;
        }
    }

    /// Returns each group with the number of its model calls and their usage, in alphabetical
    /// order. Names come from servers and files, so they are untrusted.
    pub fn groups(&self) -> impl Iterator<Item = (&str, u64, &Usage)> {
        self.totals
            .iter()
            .map(|(name, (calls, usage))| (name.as_str(), *calls, usage))
    }

    /// Returns the number of all model calls and their usage. Calls without a known cost add only
    /// their tokens.
    pub fn total(&self) -> (u64, Usage) {
        let mut total = (0, Usage::default());
        for (calls, usage) in self.totals.values() {
            total.0 += calls;
            total.1 += *usage;
        }
        total
    }

    /// Returns the name of a run, and learns those of its children.
    fn name_of(&mut self, run: &RunId, records: &[Record]) -> String {
        for record in records {
            if let Entry::Started { effect, note } = &record.entry
                && note.kind == EffectKind::Child
            {
                self.agents
                    .insert(run.child(*effect), note.name.to_string());
            }
        }
        let kind = || match records.first().map(|record| &record.entry) {
            Some(Entry::Opened(header)) => header.machine.name.to_string(),
            _ => "unknown".to_owned(),
        };
        self.agents.remove(run).unwrap_or_else(kind)
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
    let model = response.model.as_deref().unwrap_or("unnamed");
    Some((model, response.usage))
}
