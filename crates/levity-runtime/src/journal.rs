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
pub struct MemoryJournal(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
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
    #[must_use]
    pub fn with_snapshots(self, interval: u64) -> Self {
        self.kept().interval = Some(interval);
        self
    }

    /// Returns the records of a run, or none if there is no such run.
    pub fn records(&self, run: &RunId) -> Vec<Record> {
        self.kept().runs.get(run).cloned().unwrap_or_default()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Journal for MemoryJournal {
    async fn open(&self, run: &RunId) -> Result<OpenRun, JournalError> {
        if !self.kept().open.insert(run.clone()) {
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
        if let Some(snapshot) = self.kept().snapshots.get(run) {
            open.records.retain(|record| record.seq >= snapshot.seq);
            open.snapshot = Some(snapshot.clone());
        }
        Ok(open)
    }

    async fn read(&self, run: &RunId) -> Result<Vec<Record>, JournalError> {
        Ok(self.records(run))
    }

    async fn list(&self, query: &RunQuery) -> Result<Vec<RunSummary>, JournalError> {
        let kept = self.kept();
        let asked = |run: &RunId| {
            query
                .below
                .as_ref()
                .is_none_or(|above| run.is_within(above))
        };
        let runs = kept.runs.iter().filter(|(run, _)| asked(run));
        Ok(query.select(runs.filter_map(|(run, records)| RunSummary::of(run, records))))
    }

    async fn remove(&self, run: &RunId) -> Result<bool, JournalError> {
        let mut kept = self.kept();
        if let Some(open) = kept.open.iter().find(|other| other.is_within(run)) {
            return Err(JournalError::busy(open));
        }
        let before = kept.runs.len();
        kept.runs.retain(|other, _| !other.is_within(run));
        kept.snapshots.retain(|other, _| !other.is_within(run));
        Ok(kept.runs.len() < before)
    }
}

struct MemoryLog {
    journal: MemoryJournal,
    run: RunId,
}

#[async_trait]
impl RunLog for MemoryLog {
    async fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
        let mut kept = self.journal.kept();
        kept.runs
            .entry(self.run.clone())
            .or_default()
            .extend_from_slice(records);
        Ok(())
    }

    fn takes_snapshots(&self) -> bool {
        self.journal.kept().interval.is_some()
    }

    fn wants_snapshot(&self) -> bool {
        let kept = self.journal.kept();
        let count = kept.runs.get(&self.run).map_or(0, Vec::len) as u64;
        let last = kept
            .snapshots
            .get(&self.run)
            .map_or(0, |snapshot| snapshot.seq);
        kept.interval
            .is_some_and(|interval| count.saturating_sub(last) >= interval)
    }

    async fn snapshot(&mut self, snapshot: Snapshot) -> Result<(), JournalError> {
        // The state is stored as text, as in a journal on disk.
        let state = serde_json::from_str(&snapshot.state.to_string()).unwrap_or_default();
        if self.takes_snapshots() {
            self.journal
                .kept()
                .snapshots
                .insert(self.run.clone(), Snapshot::new(snapshot.seq, state));
        }
        Ok(())
    }
}

impl Drop for MemoryLog {
    fn drop(&mut self) {
        self.journal.kept().open.remove(&self.run);
    }
}

/// A journal that stores nothing: a run ends with its process. The default.
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
