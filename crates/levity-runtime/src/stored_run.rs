//! A run as loaded from a journal.

use levity_core::{
    Entry, Journal, JournalError, Limits, MachineKind, OpenRun, Record, RunHeader, RunId, RunLog,
    RuntimeError,
};
use levity_driver::{RunSnapshot, restore_from};
use serde_json::Value;

/// A run of a journal: its last snapshot, if it was opened from one, and the records after it.
pub(crate) struct StoredRun {
    pub(crate) snapshot: Option<Box<RunSnapshot>>,
    pub(crate) records: Vec<Record>,
    pub(crate) log: Box<dyn RunLog>,
}

impl StoredRun {
    /// Returns a run with all its records.
    pub(crate) fn whole(open: OpenRun) -> Self {
        let OpenRun { records, log, .. } = open;
        Self {
            snapshot: None,
            records,
            log,
        }
    }

    /// Opens a run from its last snapshot. If this version cannot read the snapshot, all records
    /// are read.
    pub(crate) async fn latest(journal: &dyn Journal, run: &RunId) -> Result<Self, JournalError> {
        let OpenRun {
            snapshot,
            records,
            log,
            ..
        } = journal.open_latest(run).await?;
        match snapshot.map(RunSnapshot::read) {
            None => Ok(Self {
                snapshot: None,
                records,
                log,
            }),
            Some(Ok(snapshot)) => Ok(Self {
                snapshot: Some(Box::new(snapshot)),
                records,
                log,
            }),
            Some(Err(_)) => {
                // Others may open the run once its log is dropped.
                drop(log);
                journal.open(run).await.map(Self::whole)
            }
        }
    }

    /// Returns the number of records to fold.
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns `true` if the journal has nothing of the run.
    pub(crate) fn is_new(&self) -> bool {
        self.records.is_empty() && !self.has_snapshot()
    }

    /// Returns `true` if the run was opened from a snapshot, so that reading all records is an
    /// alternative.
    pub(crate) fn has_snapshot(&self) -> bool {
        self.snapshot.is_some()
    }

    /// Returns the record that opened the run; from a snapshot, without the first state of the
    /// machine.
    pub(crate) fn opened(&self) -> Option<&RunHeader> {
        match (
            &self.snapshot,
            self.records.first().map(|record| &record.entry),
        ) {
            (Some(snapshot), _) => Some(snapshot.opened()),
            (None, Some(Entry::Opened(opened))) => Some(opened),
            _ => None,
        }
    }

    /// Returns the last known state of the machine.
    pub(crate) fn state(&self) -> Option<&Value> {
        match &self.snapshot {
            Some(snapshot) => Some(snapshot.machine().1),
            None => self.opened().map(|opened| &opened.state),
        }
    }

    pub(crate) fn is_ended(&self) -> bool {
        matches!(
            self.records.last().map(|record| &record.entry),
            Some(Entry::Ended(_))
        )
    }

    /// Returns the limits that the run was created with.
    pub(crate) fn limits(&self) -> Limits {
        self.opened()
            .map_or_else(Limits::default, |opened| *opened.limits)
    }

    /// Checks that a run may be driven on its own: a child run needs its parent.
    pub(crate) fn check_is_own(&self, run: &RunId) -> Result<(), RuntimeError> {
        match (self.opened().and_then(|opened| opened.origin), run.parent()) {
            (Some(_), Some(above)) => {
                let reason = format!(
                    "it is a child of run `{above}`; resume that run, and this one continues \
                     with it"
                );
                Err(RuntimeError::Restore {
                    run: run.clone(),
                    reason,
                })
            }
            _ => Ok(()),
        }
    }

    /// Rebuilds the machine from the last state.
    pub(crate) fn restore<M>(
        &self,
        run: &RunId,
        restore: &(dyn Fn(&MachineKind, &Value) -> Result<M, String> + Send + Sync),
    ) -> Result<M, RuntimeError> {
        let Some(snapshot) = &self.snapshot else {
            return restore_from(run, &self.records, restore);
        };
        let (kind, state) = snapshot.machine();
        restore(kind, state).map_err(|reason| RuntimeError::Restore {
            run: run.clone(),
            reason,
        })
    }
}
