//! Failures of a journal on request, for tests of the code that writes to it.
//!
//! The counters are shared by all clones and all runs, so a plan can name "the third append of the
//! scenario", whichever run makes it. `deny(clippy::missing_trait_methods)` makes sure that a new
//! method of `Journal` is forwarded and does not silently use its default.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use levity_core::{
    Journal, JournalError, JournalErrorKind, OpenRun, Record, RunId, RunLog, RunQuery, RunRequest,
    RunSummary, Snapshot,
};

/// A journal that fails on request of a test. Clones share their counts, and so do all runs.
///
/// A failed append stores nothing, unless it is [cut](Self::cut_after_records), and its log then
/// fails permanently. To stop a whole scenario after every record in turn, see
/// [`crash`](crate::crash).
///
/// ```no_run
/// # use levity_core::Journal;
/// # use levity_test::FaultyJournal;
/// # async fn test(inner: impl Journal + 'static) {
/// // The process dies when the third record is written.
/// let journal = FaultyJournal::new(inner).stop_after_records(2);
/// # }
/// ```
#[derive(Clone)]
pub struct FaultyJournal {
    inner: Arc<dyn Journal>,
    plan: Plan,
    counts: Arc<Mutex<Counts>>,
}

/// The configured failures; none by default. Counts of appends start at 1.
#[derive(Clone, Debug, Default)]
struct Plan {
    opens_fail: bool,
    /// The numbers of single appends that fail.
    appends: Vec<usize>,
    /// The number of the first append from which on all fail.
    from: Option<usize>,
    /// The number of stored records after which appends fail completely.
    records: Option<usize>,
    /// The number of stored records after which appends store only the part that fits.
    cut: Option<usize>,
}

#[derive(Debug, Default)]
struct Counts {
    appends: usize,
    records: usize,
}

impl FaultyJournal {
    /// Creates a journal that forwards everything to `inner`.
    pub fn new(inner: impl Journal + 'static) -> Self {
        Self {
            inner: Arc::new(inner),
            plan: Plan::default(),
            counts: Arc::default(),
        }
    }

    /// Makes every `open` fail.
    #[must_use]
    pub fn fail_open(mut self) -> Self {
        self.plan.opens_fail = true;
        self
    }

    /// Makes the `n`th append fail, counted from 1.
    #[must_use]
    pub fn fail_append(mut self, n: usize) -> Self {
        self.plan.appends.push(n);
        self
    }

    /// Makes the `n`th append, counted from 1, and all after it fail.
    #[must_use]
    pub fn fail_from(mut self, n: usize) -> Self {
        self.plan.from = Some(n);
        self
    }

    /// Stores `n` records, and fails every append that would add more, completely.
    #[must_use]
    pub fn stop_after_records(mut self, n: usize) -> Self {
        self.plan.records = Some(n);
        self
    }

    /// Stores `n` records, and fails every append that would add more, after the part that still
    /// fits, as after a kill.
    ///
    /// ```
    /// # use std::sync::{Arc, Mutex};
    /// # use levity_core::*;
    /// # #[derive(Clone, Default)]
    /// # struct OneRun(Arc<Mutex<Vec<Record>>>);
    /// # #[async_trait::async_trait]
    /// # impl Journal for OneRun {
    /// #     async fn open(&self, _: &RunId) -> Result<OpenRun, JournalError> {
    /// #         Ok(OpenRun::new(self.0.lock().unwrap().clone(), self.clone()))
    /// #     }
    /// #     async fn list(&self, _: &RunQuery) -> Result<Vec<RunSummary>, JournalError> {
    /// #         Ok(Vec::new())
    /// #     }
    /// # }
    /// # #[async_trait::async_trait]
    /// # impl RunLog for OneRun {
    /// #     async fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
    /// #         self.0.lock().unwrap().extend_from_slice(records);
    /// #         Ok(())
    /// #     }
    /// # }
    /// use levity_test::FaultyJournal;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::JournalError> {
    /// let journal = FaultyJournal::new(OneRun::default()).cut_after_records(1);
    /// let mut run = journal.open(&RunId::new("r")).await?;
    /// let record = |seq| Record::new(seq, Timestamp::default(), Entry::Wrapped(Limit::Tokens));
    /// assert!(run.log.append(&[record(0), record(1)]).await.is_err());
    /// assert_eq!(journal.open(&RunId::new("r")).await?.records.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn cut_after_records(mut self, n: usize) -> Self {
        self.plan.cut = Some(n);
        self
    }

    /// Returns the number of appends, failed ones included.
    pub fn appends(&self) -> usize {
        self.counts().appends
    }

    /// Returns the number of forwarded records.
    pub fn records(&self) -> usize {
        self.counts().records
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn faulty(&self, mut opened: OpenRun) -> OpenRun {
        opened.log = Box::new(FaultyLog {
            inner: opened.log,
            journal: self.clone(),
            broken: false,
        });
        opened
    }

    /// Counts an append, and returns the number of its records to store, or its error.
    ///
    /// An append beyond `records` fails whole; one beyond `cut` is shortened, and the log reports
    /// the failure afterwards.
    fn admit(&self, records: usize) -> Result<usize, JournalError> {
        let mut counts = self.counts();
        counts.appends += 1;
        let nth = counts.appends;
        let planned =
            self.plan.appends.contains(&nth) || self.plan.from.is_some_and(|from| nth >= from);
        if planned {
            return Err(fault(format!("append {nth} fails as planned")));
        }
        let total = counts.records + records;
        if let Some(limit) = self.plan.records.filter(|limit| total > *limit) {
            return Err(fault(format!(
                "append {nth} fails as planned: only {limit} records are stored"
            )));
        }
        let fit = self.plan.cut.map_or(records, |limit| {
            limit.saturating_sub(counts.records).min(records)
        });
        counts.records += fit;
        Ok(fit)
    }
}

fn fault(message: impl Into<String>) -> JournalError {
    JournalError::new(JournalErrorKind::Io, message)
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Journal for FaultyJournal {
    async fn open(&self, run: &RunId) -> Result<OpenRun, JournalError> {
        if self.plan.opens_fail {
            return Err(fault("open fails as planned"));
        }
        Ok(self.faulty(self.inner.open(run).await?))
    }

    async fn open_latest(&self, run: &RunId) -> Result<OpenRun, JournalError> {
        if self.plan.opens_fail {
            return Err(fault("open fails as planned"));
        }
        Ok(self.faulty(self.inner.open_latest(run).await?))
    }

    async fn read(&self, run: &RunId) -> Result<Vec<Record>, JournalError> {
        self.inner.read(run).await
    }

    async fn read_to_continue(&self, run: &RunId) -> Result<Vec<Record>, JournalError> {
        self.inner.read_to_continue(run).await
    }

    async fn list(&self, query: &RunQuery) -> Result<Vec<RunSummary>, JournalError> {
        self.inner.list(query).await
    }

    async fn remove(&self, run: &RunId) -> Result<bool, JournalError> {
        self.inner.remove(run).await
    }

    async fn post(&self, run: &RunId, post: &RunRequest) -> Result<(), JournalError> {
        self.inner.post(run, post).await
    }

    fn keeps(&self) -> bool {
        self.inner.keeps()
    }
}

/// The log of one run. It stays broken after a failed or dropped append, as the contract of
/// `RunLog` allows.
struct FaultyLog {
    inner: Box<dyn RunLog>,
    journal: FaultyJournal,
    broken: bool,
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl RunLog for FaultyLog {
    async fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
        if self.broken {
            return Err(fault(
                "an earlier append failed, so this log cannot be used any more",
            ));
        }
        // Until the append has succeeded it may still fail, or be dropped half-way.
        self.broken = true;
        let stored = self.journal.admit(records.len())?;
        self.inner
            .append(records.get(..stored).unwrap_or(records))
            .await?;
        if stored < records.len() {
            return Err(fault(format!(
                "the append is cut as planned: {stored} of its records are stored"
            )));
        }
        self.broken = false;
        Ok(())
    }

    fn takes_snapshots(&self) -> bool {
        self.inner.takes_snapshots()
    }

    fn wants_snapshot(&self) -> bool {
        self.inner.wants_snapshot()
    }

    async fn snapshot(&mut self, snapshot: Snapshot) -> Result<(), JournalError> {
        self.inner.snapshot(snapshot).await
    }

    async fn posted(&mut self) -> Result<Vec<RunRequest>, JournalError> {
        self.inner.posted().await
    }

    async fn posted_by_now(&mut self) -> Result<Vec<RunRequest>, JournalError> {
        self.inner.posted_by_now().await
    }
}

impl fmt::Debug for FaultyJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyJournal")
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}
