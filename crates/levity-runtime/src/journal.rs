use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use levity_core::{Journal, JournalError, OpenRun, Record, RunId, RunLog, RunSummary};

/// Keeps records in memory, for as long as the process lives.
///
/// Clones share the records. Nothing is ever dropped but by [`forget`](Self::forget), so a long-lived
/// program forgets what it no longer needs.
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
    order: Vec<RunId>,
    open: HashSet<RunId>,
}

impl MemoryJournal {
    /// An empty journal.
    pub fn new() -> Self {
        Self::default()
    }

    /// The records of a run; empty when it has none.
    pub fn records(&self, run: &RunId) -> Vec<Record> {
        self.kept().runs.get(run).cloned().unwrap_or_default()
    }

    /// Drops the records of a run and of all runs below it.
    pub fn forget(&self, run: &RunId) {
        let below = format!("{run}.");
        let gone = |other: &RunId| other == run || other.as_str().starts_with(&below);
        let mut kept = self.kept();
        kept.runs.retain(|other, _| !gone(other));
        kept.order.retain(|other| !gone(other));
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
        let log = MemoryLog { journal: self.clone(), run: run.clone() };
        Ok(OpenRun::new(self.records(run), log))
    }

    async fn read(&self, run: &RunId) -> Result<Vec<Record>, JournalError> {
        Ok(self.records(run))
    }

    async fn list(&self) -> Result<Vec<RunSummary>, JournalError> {
        let kept = self.kept();
        let summary = |run| RunSummary::of(run, kept.runs.get(run)?);
        Ok(kept.order.iter().filter_map(summary).collect())
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
        if !kept.runs.contains_key(&self.run) {
            kept.order.push(self.run.clone());
        }
        kept.runs.entry(self.run.clone()).or_default().extend_from_slice(records);
        Ok(())
    }
}

impl Drop for MemoryLog {
    fn drop(&mut self) {
        self.journal.kept().open.remove(&self.run);
    }
}

/// Keeps nothing: a run ends with its process. The default.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoJournal;

#[async_trait]
impl Journal for NoJournal {
    async fn open(&self, _: &RunId) -> Result<OpenRun, JournalError> {
        Ok(OpenRun::new(Vec::new(), NoLog))
    }

    async fn list(&self) -> Result<Vec<RunSummary>, JournalError> {
        Ok(Vec::new())
    }

    fn keeps(&self) -> bool {
        false
    }
}

struct NoLog;

#[async_trait]
impl RunLog for NoLog {
    async fn append(&mut self, _: &[Record]) -> Result<(), JournalError> {
        Ok(())
    }
}
