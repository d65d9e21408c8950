use std::fmt;

use serde::{Deserialize, Serialize};

/// Where a run of a plan stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PlanStage {
    /// Nothing is planned yet.
    #[default]
    Starting,
    /// Somebody looks at the files that were given.
    Profiling,
    /// The plan is being made.
    Planning,
    /// A person is asked whether the plan, or a change of it, may be carried out.
    Approving,
    /// Steps are run.
    Running,
    /// Another way is looked for; steps that do not depend on it go on.
    Replanning,
    /// The run has ended.
    Ended,
}

impl PlanStage {
    /// The stage as text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Profiling => "profiling",
            Self::Planning => "planning",
            Self::Approving => "approving",
            Self::Running => "running",
            Self::Replanning => "replanning",
            Self::Ended => "ended",
        }
    }
}

impl fmt::Display for PlanStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
