use serde::{Deserialize, Serialize};

use crate::{ControlCommand, EffectId, EffectKind, Entry, Record, RunId, Status, Timestamp};

/// What a list of runs shows of each.
///
/// It is a fold of the run's records, like everything else: a store may keep it beside them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunSummary {
    /// The run.
    pub run: RunId,
    /// When it was made.
    pub opened: Timestamp,
    /// When the last thing happened in it.
    pub updated: Timestamp,
    /// How many records it has.
    pub records: u64,
    /// Whether another run started it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub child: bool,
    /// Whether it begins nothing new until it is told to.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// What it waits for: people and times.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<Waiting>,
    /// How it ended, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
}

impl RunSummary {
    /// A run that has no records yet.
    pub fn new(run: RunId, opened: Timestamp) -> Self {
        Self {
            run,
            opened,
            updated: opened,
            records: 0,
            child: false,
            paused: false,
            waiting: Vec::new(),
            status: None,
        }
    }

    /// What these records say; `None` when there are none.
    pub fn of(run: &RunId, records: &[Record]) -> Option<Self> {
        let mut summary = Self::new(run.clone(), records.first()?.at);
        records.iter().for_each(|record| summary.add(record));
        Some(summary)
    }

    /// Takes in one more record.
    pub fn add(&mut self, record: &Record) {
        self.updated = record.at;
        self.records += 1;
        match &record.entry {
            Entry::Opened(opened) => self.child = opened.origin.is_some(),
            Entry::Started { effect, note } => {
                self.forget(*effect);
                if matches!(note.kind, EffectKind::Ask | EffectKind::Wait) {
                    self.waiting.push(Waiting::new(*effect, note.until));
                }
            }
            Entry::Finished { effect, .. } => self.forget(*effect),
            Entry::Commanded(ControlCommand::Pause) => self.paused = true,
            Entry::Commanded(ControlCommand::Resume) => self.paused = false,
            // All it has left to do is to end.
            Entry::Commanded(ControlCommand::Cancel { .. }) | Entry::Stopped(_) => {
                self.waiting.clear();
            }
            Entry::Ended(status) => {
                self.paused = false;
                self.waiting.clear();
                self.status = Some(status.clone());
            }
            _ => {}
        }
    }

    fn forget(&mut self, effect: EffectId) {
        self.waiting.retain(|waiting| waiting.effect != effect);
    }

    /// Where the run stands.
    pub fn state(&self) -> RunState {
        match &self.status {
            Some(status) if status.is_answer() => RunState::Answered,
            Some(_) => RunState::Failed,
            None if self.waiting.is_empty() => RunState::Open,
            None => RunState::Waiting,
        }
    }

    /// The first time that it waits for, if it waits for one.
    pub fn wakes(&self) -> Option<Timestamp> {
        self.waiting
            .iter()
            .filter_map(|waiting| waiting.until)
            .min()
    }
}

/// Something that a run waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Waiting {
    /// The question, or the wait.
    pub effect: EffectId,
    /// The time it waits for; `None` when it waits for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

impl Waiting {
    /// Waits for a time, or for a person.
    pub fn new(effect: EffectId, until: Option<Timestamp>) -> Self {
        Self { effect, until }
    }
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunState {
    /// It has not ended, and waits for nobody.
    Open,
    /// It has not ended, and waits for a person or a time.
    Waiting,
    /// It ended with an answer.
    Answered,
    /// It ended without one: it failed, was cancelled, or ran out of something.
    Failed,
}

impl RunState {
    /// All there are.
    pub const ALL: [Self; 4] = [Self::Open, Self::Waiting, Self::Answered, Self::Failed];

    /// Whether the run has ended.
    pub fn is_end(self) -> bool {
        matches!(self, Self::Answered | Self::Failed)
    }
}

/// Which runs to list; all of them, unless told otherwise.
///
/// ```
/// # use levity_core::{RunQuery, RunState};
/// let query = RunQuery::new().state(RunState::Waiting).roots().limit(20);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct RunQuery {
    /// Only those that stand like this.
    pub state: Option<RunState>,
    /// Only those that no other run started.
    pub roots: bool,
    /// Only this run and those below it.
    pub below: Option<RunId>,
    /// Only those made at this time or later.
    pub since: Option<Timestamp>,
    /// Only those made before this time.
    pub before: Option<Timestamp>,
    /// Only those that wait for a time that has come by then.
    pub due: Option<Timestamp>,
    /// At most so many.
    pub limit: Option<usize>,
    /// The newest first.
    pub newest_first: bool,
}

impl RunQuery {
    /// All runs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only those that stand like this.
    #[must_use]
    pub fn state(mut self, state: RunState) -> Self {
        self.state = Some(state);
        self
    }

    /// Only those that no other run started.
    #[must_use]
    pub fn roots(mut self) -> Self {
        self.roots = true;
        self
    }

    /// Only this run and those below it.
    #[must_use]
    pub fn below(mut self, run: RunId) -> Self {
        self.below = Some(run);
        self
    }

    /// Only those made at this time or later.
    #[must_use]
    pub fn since(mut self, time: Timestamp) -> Self {
        self.since = Some(time);
        self
    }

    /// Only those made before this time.
    #[must_use]
    pub fn before(mut self, time: Timestamp) -> Self {
        self.before = Some(time);
        self
    }

    /// Only those that wait for a time that has come by then.
    #[must_use]
    pub fn due(mut self, now: Timestamp) -> Self {
        self.due = Some(now);
        self
    }

    /// At most so many.
    #[must_use]
    pub fn limit(mut self, runs: usize) -> Self {
        self.limit = Some(runs);
        self
    }

    /// The newest first.
    #[must_use]
    pub fn newest_first(mut self) -> Self {
        self.newest_first = true;
        self
    }

    /// Whether it asks for this run.
    pub fn asks_for(&self, run: &RunSummary) -> bool {
        self.state.is_none_or(|state| run.state() == state)
            && !(self.roots && run.child)
            && self
                .below
                .as_ref()
                .is_none_or(|above| run.run.is_within(above))
            && self.since.is_none_or(|time| run.opened >= time)
            && self.before.is_none_or(|time| run.opened < time)
            && self
                .due
                .is_none_or(|now| run.wakes().is_some_and(|wakes| wakes <= now))
    }

    /// Those of `runs` that it asks for, in the order it wants; for a store that has no better way.
    pub fn select(&self, runs: impl IntoIterator<Item = RunSummary>) -> Vec<RunSummary> {
        let mut found: Vec<_> = runs.into_iter().filter(|run| self.asks_for(run)).collect();
        found.sort_by(|a, b| (a.opened, &a.run).cmp(&(b.opened, &b.run)));
        if self.newest_first {
            found.reverse();
        }
        found.truncate(self.limit.unwrap_or(usize::MAX));
        found
    }
}

/// What another process leaves for whoever drives a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunRequest {
    /// A command.
    Command(ControlCommand),
    /// The answer to a question.
    Decide {
        /// The question.
        effect: EffectId,
        /// The answer.
        decision: crate::Decision,
    },
    /// What came of a call that an earlier process had begun.
    Resolve {
        /// The call.
        effect: EffectId,
        /// What came of it.
        resolution: crate::Resolution,
    },
}
