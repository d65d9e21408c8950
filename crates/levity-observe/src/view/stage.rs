//! The stages of a run of a plan.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The stage of a run of a plan.
///
/// ```
/// use levity_observe::PlanStage;
///
/// assert_eq!(PlanStage::Replanning.to_string(), "replanning");
/// assert_eq!(serde_json::to_string(&PlanStage::Ended)?, r#""ended""#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PlanStage {
    /// No plan has been requested yet.
    #[default]
    Starting,
    /// An agent profiles the given files.
    Profiling,
    /// The plan is being made.
    Planning,
    /// A person is asked to approve the plan, or a change of it.
    Approving,
    /// The steps are running.
    Running,
    /// The planner changes the plan; steps that do not depend on the change continue.
    Replanning,
    /// The run has ended.
    Ended,
}

impl PlanStage {
    /// Returns the name of the stage.
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
