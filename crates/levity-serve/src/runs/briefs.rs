//! The goals and the usage of stored runs, for lists.
//!
//! The journal lists runs without them, because they require a read of each run. A list therefore
//! reads only some runs, and remembers the goals, which never change. Other entries of the list
//! have no goal until a later request.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use levity_core::{RunId, RunSummary, Timestamp, Usage};
use tokio::time::timeout;

use super::{RunStatus, Runs};
use crate::access::Caller;

/// The maximum number of bytes of a goal in a list.
pub(crate) const MAX_GOAL: usize = 1 << 10;
/// The maximum number of runs that are read for one list.
const MAX_READS: usize = 100;
/// The maximum time that the reads of one list take.
const MAX_TIME: Duration = Duration::from_millis(300);
/// The maximum number of runs that are remembered.
const MAX_RUNS: usize = 2048;

/// The goal of a run, and its usage if it has ended.
pub(crate) struct RunBrief {
    pub(crate) goal: String,
    pub(crate) usage: Option<Usage>,
    opened: Timestamp,
    updated: Timestamp,
}

impl RunBrief {
    fn of(status: &RunStatus, summary: &RunSummary) -> Self {
        Self {
            goal: status.brief(MAX_GOAL).goal,
            usage: status.ending.as_ref().map(|_| status.usage),
            opened: summary.opened,
            updated: summary.updated,
        }
    }

    /// Returns `true` if this is the run of the summary, and the usage cannot have changed since.
    fn is_current(&self, summary: &RunSummary) -> bool {
        let is_same = self.opened == summary.opened;
        is_same && (summary.status.is_none() || self.updated == summary.updated)
    }
}

/// The runs whose entries are remembered.
#[derive(Default)]
pub(super) struct BriefCache(Mutex<BTreeMap<RunId, Arc<RunBrief>>>);

impl BriefCache {
    fn runs(&self) -> MutexGuard<'_, BTreeMap<RunId, Arc<RunBrief>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, summary: &RunSummary) -> Option<Arc<RunBrief>> {
        let runs = self.runs();
        let found = runs.get(&summary.run)?;
        found.is_current(summary).then(|| found.clone())
    }

    /// Adds a run. If there are too many, the run that started first is removed.
    fn add(&self, id: &RunId, brief: RunBrief) {
        let mut runs = self.runs();
        runs.insert(id.clone(), Arc::new(brief));
        if runs.len() <= MAX_RUNS {
            return;
        }
        let oldest = runs.iter().min_by_key(|(_, brief)| brief.opened);
        if let Some(id) = oldest.map(|(id, _)| id.clone()) {
            runs.remove(&id);
        }
    }

    pub(super) fn remove(&self, id: &RunId) {
        self.runs().remove(id);
    }
}

impl Runs {
    /// Returns the goal and the usage of a run that this process does not drive, if they are known
    /// without a read of the journal.
    pub(crate) fn known_brief(&self, summary: &RunSummary) -> Option<Arc<RunBrief>> {
        let here = self.get(&summary.run);
        let brief =
            |run: Arc<super::LiveRun>| Arc::new(RunBrief::of(&run.brief(MAX_GOAL), summary));
        here.map(brief).or_else(|| self.inner.briefs.get(summary))
    }

    /// Reads the goals of the first runs of a list that are not known yet, as far as the time
    /// allows. Child runs are not read. An entry whose run cannot be read stays without a goal.
    pub(crate) async fn read_briefs(&self, caller: &Caller, runs: &[RunSummary]) {
        let is_unknown = |run: &&RunSummary| {
            !run.child && run.run.parent().is_none() && self.known_brief(run).is_none()
        };
        let read = async {
            for run in runs.iter().filter(is_unknown).take(MAX_READS) {
                if let Ok(status) = self.status_for(caller, &run.run).await {
                    let brief = RunBrief::of(&status, run);
                    self.inner.briefs.add(&run.run, brief);
                }
            }
        };
        // The runs that were read in time are known from now on.
        let _ = timeout(MAX_TIME, read).await;
    }
}

#[cfg(test)]
mod tests {
    use levity_core::Status;

    use super::*;

    fn summary(id: &str, opened: u64, updated: u64) -> RunSummary {
        let mut summary = RunSummary::new(RunId::new(id), Timestamp::from_millis(opened));
        summary.updated = Timestamp::from_millis(updated);
        summary
    }

    #[test]
    fn run_brief_is_current_until_run_is_replaced_or_ends() {
        let (cache, first) = (BriefCache::default(), summary("r", 1, 5));
        cache.add(
            &first.run,
            RunBrief::of(&RunStatus::of_goal("Sum up."), &first),
        );
        assert_eq!(cache.get(&first).unwrap().goal, "Sum up.");
        let mut later = summary("r", 1, 9);
        assert!(cache.get(&later).is_some(), "a goal never changes");
        later.status = Some(Status::Complete);
        assert!(cache.get(&later).is_none(), "the usage has changed");
        assert!(cache.get(&summary("r", 2, 5)).is_none(), "another run");
    }

    #[test]
    fn cache_removes_oldest_run_above_limit() {
        let cache = BriefCache::default();
        for at in 0..=MAX_RUNS as u64 {
            let run = summary(&format!("r{at}"), at, at);
            cache.add(&run.run, RunBrief::of(&RunStatus::of_goal("x"), &run));
        }
        assert_eq!(cache.runs().len(), MAX_RUNS);
        assert!(cache.get(&summary("r0", 0, 0)).is_none());
        assert!(cache.get(&summary("r1", 1, 1)).is_some());
    }

    #[test]
    fn long_goal_is_cut_at_character() {
        let run = summary("r", 1, 1);
        let status = RunStatus::of_goal(&"é".repeat(MAX_GOAL));
        assert_eq!(RunBrief::of(&status, &run).goal.len(), MAX_GOAL);
        let status = RunStatus::of_goal(&format!("x{}", "é".repeat(MAX_GOAL)));
        assert_eq!(RunBrief::of(&status, &run).goal.len(), MAX_GOAL - 1);
    }
}
