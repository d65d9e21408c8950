use serde::{Deserialize, Serialize};

use crate::{ControlCommand, EffectId, EffectKind, Entry, Record, RunId, Status, Timestamp};

/// The summary of a run in a list of runs.
///
/// It is a fold over the run's records, so a store can cache it beside them.
///
/// ```
/// use levity_core::{Entry, Record, RunId, RunState, RunSummary, Status, Timestamp};
///
/// let at = Timestamp::from_millis(5);
/// let records = [Record::new(0, at, Entry::Ended(Status::Complete))];
/// let summary = RunSummary::of(&RunId::new("r1"), &records).unwrap();
/// assert_eq!((summary.state(), summary.records), (RunState::Answered, 1));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunSummary {
    /// The id of the run.
    pub run: RunId,
    /// The time at which the run was created.
    pub opened: Timestamp,
    /// The time of the last record of the run.
    pub updated: Timestamp,
    /// The number of records of the run.
    pub records: u64,
    /// `true` if another run started this one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub child: bool,
    /// `true` if the run starts nothing new until it is resumed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// The people and times that the run waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<Waiting>,
    /// The final status, if the run has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
}

impl RunSummary {
    /// Creates the summary of a run without records.
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

    /// Computes the summary of these records; `None` if there are none.
    pub fn of(run: &RunId, records: &[Record]) -> Option<Self> {
        let mut summary = Self::new(run.clone(), records.first()?.at);
        records.iter().for_each(|record| summary.add(record));
        Some(summary)
    }

    /// Updates the summary with one more record.
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
            // The only remaining action of the run is to end.
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

    /// Returns the state of the run.
    pub fn state(&self) -> RunState {
        match &self.status {
            Some(status) if status.is_answer() => RunState::Answered,
            Some(_) => RunState::Failed,
            None if self.waiting.is_empty() => RunState::Open,
            None => RunState::Waiting,
        }
    }

    /// Returns the earliest time that the run waits for, if any.
    pub fn next_wake(&self) -> Option<Timestamp> {
        self.waiting
            .iter()
            .filter_map(|waiting| waiting.until)
            .min()
    }
}

/// A person or a time that a run waits for.
///
/// ```
/// # use levity_core::{EffectId, Timestamp, Waiting};
/// let person = Waiting::new(EffectId::new(3), None);
/// let time = Waiting::new(EffectId::new(4), Some(Timestamp::from_millis(60_000)));
/// assert!(person.until.is_none() && time.until.is_some());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Waiting {
    /// The effect of the question or the wait.
    pub effect: EffectId,
    /// The time that the run waits for; `None` if it waits for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

impl Waiting {
    /// Creates a wait for a time or, without one, for a person.
    pub fn new(effect: EffectId, until: Option<Timestamp>) -> Self {
        Self { effect, until }
    }
}

/// The state of a run.
///
/// ```
/// # use levity_core::RunState;
/// let open: Vec<_> = RunState::ALL.into_iter().filter(|state| !state.is_end()).collect();
/// assert_eq!(open, [RunState::Open, RunState::Waiting]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunState {
    /// The run has not ended and is not waiting.
    Open,
    /// The run has not ended and waits for a person or a time.
    Waiting,
    /// The run ended with an answer.
    Answered,
    /// The run ended without an answer: it failed, was cancelled or reached a limit.
    Failed,
}

impl RunState {
    /// All states of a run.
    pub const ALL: [Self; 4] = [Self::Open, Self::Waiting, Self::Answered, Self::Failed];

    /// Returns `true` if the run has ended.
    ///
    /// ```
    /// # use levity_core::RunState;
    /// assert!(RunState::Answered.is_end() && RunState::Failed.is_end());
    /// assert!(!RunState::Waiting.is_end());
    /// ```
    pub fn is_end(self) -> bool {
        matches!(self, Self::Answered | Self::Failed)
    }
}

/// A filter for listing runs; by default it selects all runs.
///
/// ```
/// # use levity_core::{RunQuery, RunState};
/// let query = RunQuery::new().state(RunState::Waiting).roots().limit(20);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct RunQuery {
    /// Selects only runs in this state.
    pub state: Option<RunState>,
    /// Selects only runs that no other run started.
    pub roots: bool,
    /// Selects only this run and its descendants.
    pub below: Option<RunId>,
    /// Selects only runs created at this time or later.
    pub since: Option<Timestamp>,
    /// Selects only runs created before this time.
    pub before: Option<Timestamp>,
    /// Selects only runs that wait for a time that is not after this time.
    pub due: Option<Timestamp>,
    /// The maximum number of runs.
    pub limit: Option<usize>,
    /// Lists the newest runs first.
    pub newest_first: bool,
}

impl RunQuery {
    /// Creates a query for all runs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Selects only runs in this state.
    #[must_use]
    pub fn state(mut self, state: RunState) -> Self {
        self.state = Some(state);
        self
    }

    /// Selects only runs that no other run started.
    #[must_use]
    pub fn roots(mut self) -> Self {
        self.roots = true;
        self
    }

    /// Selects only this run and its descendants.
    ///
    /// ```
    /// # use levity_core::{RunId, RunQuery, RunSummary, Timestamp};
    /// let query = RunQuery::new().below(RunId::new("r1"));
    /// let matches = |run| query.matches(&RunSummary::new(RunId::new(run), Timestamp::default()));
    /// assert!(matches("r1") && matches("r1.3") && !matches("r2"));
    /// ```
    #[must_use]
    pub fn below(mut self, run: RunId) -> Self {
        self.below = Some(run);
        self
    }

    /// Selects only runs created at this time or later.
    ///
    /// ```
    /// # use levity_core::{RunQuery, RunSummary, Timestamp};
    /// let query = RunQuery::new().since(Timestamp::from_millis(1_000));
    /// let opened = |at| RunSummary::new("r1".into(), Timestamp::from_millis(at));
    /// assert!(query.matches(&opened(1_000)) && !query.matches(&opened(999)));
    /// ```
    #[must_use]
    pub fn since(mut self, time: Timestamp) -> Self {
        self.since = Some(time);
        self
    }

    /// Selects only runs created before this time.
    #[must_use]
    pub fn before(mut self, time: Timestamp) -> Self {
        self.before = Some(time);
        self
    }

    /// Selects only runs that wait for a time that is not after `now`.
    #[must_use]
    pub fn due(mut self, now: Timestamp) -> Self {
        self.due = Some(now);
        self
    }

    /// Limits the number of runs.
    #[must_use]
    pub fn limit(mut self, runs: usize) -> Self {
        self.limit = Some(runs);
        self
    }

    /// Lists the newest runs first.
    #[must_use]
    pub fn newest_first(mut self) -> Self {
        self.newest_first = true;
        self
    }

    /// Returns `true` if the query selects this run.
    ///
    /// ```
    /// # use levity_core::{RunQuery, RunState, RunSummary, Timestamp};
    /// let run = RunSummary::new("r1".into(), Timestamp::default());
    /// assert!(RunQuery::new().matches(&run));
    /// assert!(!RunQuery::new().state(RunState::Answered).matches(&run));
    /// ```
    pub fn matches(&self, run: &RunSummary) -> bool {
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
                .is_none_or(|now| run.next_wake().is_some_and(|wakes| wakes <= now))
    }

    /// Filters, sorts and limits `runs` as the query requires; for stores without their own index.
    ///
    /// ```
    /// use levity_core::{RunQuery, RunSummary, Timestamp};
    ///
    /// let runs = [3, 1, 2].map(|at| {
    ///     RunSummary::new(format!("r{at}").into(), Timestamp::from_millis(at))
    /// });
    /// let newest = RunQuery::new().newest_first().limit(2).select(runs);
    /// assert_eq!(newest.iter().map(|run| run.run.as_str()).collect::<Vec<_>>(), ["r3", "r2"]);
    /// ```
    pub fn select(&self, runs: impl IntoIterator<Item = RunSummary>) -> Vec<RunSummary> {
        let mut found: Vec<_> = runs.into_iter().filter(|run| self.matches(run)).collect();
        found.sort_by(|a, b| (a.opened, &a.run).cmp(&(b.opened, &b.run)));
        if self.newest_first {
            found.reverse();
        }
        found.truncate(self.limit.unwrap_or(usize::MAX));
        found
    }
}

/// A request that another process leaves for the process that drives a run.
///
/// ```
/// # use levity_core::{Decision, EffectId, RunRequest};
/// let allow = RunRequest::Decide { effect: EffectId::new(3), decision: Decision::Allow };
/// let json = serde_json::to_string(&allow)?;
/// assert_eq!(json, r#"{"decide":{"effect":3,"decision":"allow"}}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunRequest {
    /// A control command for the run.
    Command(ControlCommand),
    /// The decision on a question.
    Decide {
        /// The effect of the question.
        effect: EffectId,
        /// The decision to record.
        decision: crate::Decision,
    },
    /// The outcome of a call that was in progress when an earlier process ended.
    Resolve {
        /// The effect of the call.
        effect: EffectId,
        /// The outcome of the call.
        resolution: crate::Resolution,
    },
}
