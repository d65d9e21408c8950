//! Reports of work, one for each delegation, leg or turn.

use std::collections::BTreeSet;
use std::sync::Arc;

use levity_core::{RunId, Stats, Usage};
use serde::{Deserialize, Serialize};

/// The work of one worker on a task, and its result.
///
/// A report is part of the saved state of a run. Retries and fallbacks update the same report, so
/// its usage covers all attempts, and its text is that of the last one.
///
/// ```
/// use levity_loop::Agent;
/// use levity_swarm::{ReportStatus, Router, Swarm};
/// use levity_test::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> levity_swarm::Result<()> {
/// let pilot = Agent::builder(ScriptedModel::new().reply("At six.")).build()?;
/// let swarm = Swarm::builder(Router::keywords())
///     .agent("pilot", "Knows the tides.", pilot)
///     .build()?;
/// let finished = swarm.run("When is the tide high?").await?;
/// let report = &finished.reports()[0];
/// assert_eq!((&*report.id, &*report.worker), ("d1", "pilot"));
/// assert_eq!((report.status, report.attempts), (ReportStatus::Done, 1));
/// assert!(report.run.is_some());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WorkerReport {
    /// The id of the delegation, or the number of the leg, turn or round.
    pub id: Arc<str>,
    /// The last worker that worked on it.
    pub worker: Arc<str>,
    /// The task of the worker.
    pub task: Arc<str>,
    /// The status of the work.
    pub status: ReportStatus,
    /// The worker's answer, or its last text if it was stopped; at most
    /// [`MAX_TEXT`](Self::MAX_TEXT) bytes.
    pub text: Arc<str>,
    /// The error message, if the work did not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The number of attempts.
    pub attempts: u32,
    /// The usage of all attempts together.
    pub usage: Usage,
    /// The numbers of turns and calls.
    pub stats: Stats,
    /// The failed work of an earlier round that this work repeats, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again: Option<Arc<str>>,
    /// The run of the last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
}

impl WorkerReport {
    /// The maximum size of the stored text: 256 KiB. The complete text is in the worker's run.
    pub const MAX_TEXT: usize = 256 << 10;

    pub(crate) fn new(
        id: impl Into<Arc<str>>,
        worker: Arc<str>,
        task: impl Into<Arc<str>>,
    ) -> Self {
        Self {
            id: id.into(),
            worker,
            task: task.into(),
            status: ReportStatus::Waiting,
            text: Arc::default(),
            error: None,
            attempts: 0,
            usage: Usage::default(),
            stats: Stats::default(),
            again: None,
            run: None,
        }
    }

    /// Returns `true` if the work completed.
    pub fn is_done(&self) -> bool {
        self.status == ReportStatus::Done
    }
}

/// Returns the work that did not complete, and was not repeated successfully in a later round.
pub(crate) fn missing(reports: &[WorkerReport]) -> Vec<&WorkerReport> {
    let mut covered: BTreeSet<&str> = BTreeSet::new();
    // Repeated work is always later than the original, so the search runs backwards.
    for report in reports.iter().rev() {
        if let Some(earlier) = report.again.as_deref()
            && (report.is_done() || covered.contains(&*report.id))
        {
            covered.insert(earlier);
        }
    }
    reports
        .iter()
        .filter(|report| !report.is_done() && !covered.contains(&*report.id))
        .collect()
}

/// The status of a piece of work.
///
/// ```
/// use levity_swarm::ReportStatus;
///
/// assert!(ReportStatus::Skipped.is_settled());
/// assert!(!ReportStatus::Running.is_settled());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ReportStatus {
    /// The work has not started.
    Waiting,
    /// The work is in progress.
    Running,
    /// The work is complete.
    Done,
    /// The work failed in its last attempt.
    Failed,
    /// The host stopped the work.
    Stopped,
    /// The work was not started, because a dependency did not complete or a limit was near.
    Skipped,
}

impl ReportStatus {
    /// Returns `true` if the status is final.
    pub fn is_settled(self) -> bool {
        !matches!(self, Self::Waiting | Self::Running)
    }
}
