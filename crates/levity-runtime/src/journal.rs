//! The journals that need no disk: in memory, and none at all.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use levity_core::{
    Journal, JournalError, OpenRun, Record, RunId, RunLog, RunQuery, RunSummary, Snapshot,
};

/// A journal in memory, for as long as the process lives.
///
/// Clones share the records. Only [`remove`](Journal::remove) drops records, so a long-lived
/// program must remove the runs that it no longer needs.
///
/// ```
/// # use levity_core::{Journal, RunId};
/// # use levity_runtime::MemoryJournal;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::JournalError> {
/// let journal = MemoryJournal::new();
/// let run = RunId::new("r1");
/// let open = journal.open(&run).await?;
/// assert!(journal.open(&run).await.is_err(), "one writer at a time");
/// drop(open);
/// assert!(journal.open(&run).await.is_ok());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct MemoryJournal(Arc<Mutex<StoredRuns>>);

#[derive(Debug, Default)]
struct StoredRuns {
    runs: BTreeMap<RunId, Vec<Record>>,
    open: HashSet<RunId>,
    snapshots: BTreeMap<RunId, Snapshot>,
    /// The number of records between two snapshots.
    interval: Option<u64>,
}

impl MemoryJournal {
    /// Creates an empty journal.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a snapshot after every `interval` records of a run. In memory that saves little; use
    /// it to test machines, whose state is then restored from snapshots.
    ///
    /// ```
    /// use levity_core::{Journal, RunId};
    /// use levity_runtime::MemoryJournal;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::JournalError> {
    /// let journal = MemoryJournal::new().with_snapshots(10);
    /// assert!(journal.open(&RunId::new("r1")).await?.log.takes_snapshots());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_snapshots(self, interval: u64) -> Self {
        self.state().interval = Some(interval);
        self
    }

    /// Returns the records of a run, or none if there is no such run.
    pub fn records(&self, run: &RunId) -> Vec<Record> {
        self.state().runs.get(run).cloned().unwrap_or_default()
    }

    fn state(&self) -> MutexGuard<'_, StoredRuns> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Journal for MemoryJournal {
    async fn open(&self, run: &RunId) -> Result<OpenRun, JournalError> {
        if !self.state().open.insert(run.clone()) {
            return Err(JournalError::busy(run));
        }
        let log = MemoryLog {
            journal: self.clone(),
            run: run.clone(),
        };
        Ok(OpenRun::new(self.records(run), log))
    }

    async fn open_latest(&self, run: &RunId) -> Result<OpenRun, JournalError> {
        let mut open = self.open(run).await?;
        if let Some(snapshot) = self.state().snapshots.get(run) {
            open.records.retain(|record| record.seq >= snapshot.seq);
            open.snapshot = Some(snapshot.clone());
        }
        Ok(open)
    }

    async fn read(&self, run: &RunId) -> Result<Vec<Record>, JournalError> {
        Ok(self.records(run))
    }

    async fn list(&self, query: &RunQuery) -> Result<Vec<RunSummary>, JournalError> {
        let state = self.state();
        let asked = |run: &RunId| {
            query
                .below
                .as_ref()
                .is_none_or(|above| run.is_within(above))
        };
        let runs = state.runs.iter().filter(|(run, _)| asked(run));
        Ok(query.select(runs.filter_map(|(run, records)| RunSummary::of(run, records))))
    }

    async fn remove(&self, run: &RunId) -> Result<bool, JournalError> {
        let mut state = self.state();
        if let Some(open) = state.open.iter().find(|other| other.is_within(run)) {
            return Err(JournalError::busy(open));
        }
        let before = state.runs.len();
        state.runs.retain(|other, _| !other.is_within(run));
        state.snapshots.retain(|other, _| !other.is_within(run));
        Ok(state.runs.len() < before)
    }
}

struct MemoryLog {
    journal: MemoryJournal,
    run: RunId,
}

#[async_trait]
impl RunLog for MemoryLog {
    async fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
        let mut state = self.journal.state();
        state
            .runs
            .entry(self.run.clone())
            .or_default()
            .extend_from_slice(records);
        Ok(())
    }

    fn takes_snapshots(&self) -> bool {
        self.journal.state().interval.is_some()
    }

    fn wants_snapshot(&self) -> bool {
        let state = self.journal.state();
        let count = state.runs.get(&self.run).map_or(0, Vec::len) as u64;
        let last = state
            .snapshots
            .get(&self.run)
            .map_or(0, |snapshot| snapshot.seq);
        state
            .interval
            .is_some_and(|interval| count.saturating_sub(last) >= interval)
    }

    async fn snapshot(&mut self, snapshot: Snapshot) -> Result<(), JournalError> {
        // The state is stored as text, as in a journal on disk.
        let state = serde_json::from_str(&snapshot.state.to_string()).unwrap_or_default();
        if self.takes_snapshots() {
            self.journal
                .state()
                .snapshots
                .insert(self.run.clone(), Snapshot::new(snapshot.seq, state));
        }
        Ok(())
    }
}

impl Drop for MemoryLog {
    fn drop(&mut self) {
        self.journal.state().open.remove(&self.run);
    }
}

/// A journal that stores nothing: a run ends with its process. The default.
///
/// Such a run cannot be resumed, replayed or parked, and `park` has no effect.
///
/// ```
/// use levity_core::{Journal, RunId};
/// use levity_runtime::NoJournal;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::JournalError> {
/// assert!(!NoJournal.keeps() && NoJournal.read(&RunId::new("r1")).await?.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct NoJournal;

#[async_trait]
impl Journal for NoJournal {
    async fn open(&self, _: &RunId) -> Result<OpenRun, JournalError> {
        Ok(OpenRun::new(Vec::new(), NoLog))
    }

    async fn list(&self, _: &RunQuery) -> Result<Vec<RunSummary>, JournalError> {
        Ok(Vec::new())
    }

    fn keeps(&self) -> bool {
        false
    }
}

pub(crate) struct NoLog;

#[async_trait]
impl RunLog for NoLog {
    async fn append(&mut self, _: &[Record]) -> Result<(), JournalError> {
        Ok(())
    }
}
