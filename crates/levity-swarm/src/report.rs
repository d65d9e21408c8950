use std::collections::BTreeSet;
use std::sync::Arc;

use levity_core::{RunId, Stats, Usage};
use serde::{Deserialize, Serialize};

/// What a worker did, and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WorkerReport {
    /// What it was: the id of the delegation, or the number of the leg, turn or round.
    pub id: Arc<str>,
    /// Who did it last.
    pub worker: Arc<str>,
    /// What was to be done.
    pub task: Arc<str>,
    /// What came of it.
    pub status: ReportStatus,
    /// What the worker said; its last words when it was stopped. At most
    /// [`MAX_TEXT`](Self::MAX_TEXT) bytes of it.
    pub text: Arc<str>,
    /// Why it is not done, if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How often it was tried.
    pub attempts: u32,
    /// What it used, all attempts together.
    pub usage: Usage,
    /// What was done for it.
    pub stats: Stats,
    /// What failed in an earlier round and is done again by this, if it is something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again: Option<Arc<str>>,
    /// The run of the last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
}

impl WorkerReport {
    /// How much of what a worker says is kept: 256 KiB. The whole is in its run.
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

    /// Whether it is done.
    pub fn is_done(&self) -> bool {
        self.status == ReportStatus::Done
    }
}

/// What is not done, and was not done again in a later round either.
pub(crate) fn missing(reports: &[WorkerReport]) -> Vec<&WorkerReport> {
    let mut covered: BTreeSet<&str> = BTreeSet::new();
    // What does something again comes later, and may itself be done again only after that.
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

/// What came of a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ReportStatus {
    /// It has not begun.
    Waiting,
    /// It is under way.
    Running,
    /// It is done.
    Done,
    /// It could not be done.
    Failed,
    /// The host stopped it.
    Stopped,
    /// It was not begun, since something before it is not done or a limit was near.
    Skipped,
}

impl ReportStatus {
    /// Whether nothing more comes of it.
    pub fn is_settled(self) -> bool {
        !matches!(self, Self::Waiting | Self::Running)
    }
}
