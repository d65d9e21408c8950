use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use levity_core::RunOutput;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::machine::GraphMachine;
use crate::notice::{StepStatus, StepUsage};
use crate::plan::Plan;
use crate::readable;
use crate::step::StepId;

/// The result of a team's run; see [`RunOutput`] and [`TeamDetails`]. Its text is the output of the
/// last completed step.
///
/// ```
/// use levity_dag::{Plan, Step, StepInput, Team, TeamAnswer};
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> levity_dag::Result<()> {
/// let team = Team::builder()
///     .function("tide", |_: StepInput| async { Ok(json!({"time": "six", "metres": 4})) })
///     .build()?;
/// let plan = Plan::new().step(Step::new("tide", "tide").writes(["time", "metres"]));
/// let answer: TeamAnswer = team.run(plan).await?;
/// // The last step writes two variables, so the text is an object.
/// assert!(answer.text().starts_with('{'));
/// assert_eq!(answer.parse_variable::<u8>("metres"), Some(4));
/// assert_eq!(answer.replans(), 0);
/// # Ok(())
/// # }
/// ```
pub type TeamAnswer = RunOutput<TeamDetails>;

/// The team-specific part of a result: variables, steps and the plan.
///
/// [`TeamAnswer`] dereferences to it.
pub struct TeamDetails {
    machine: Box<GraphMachine>,
    variables: BTreeMap<Arc<str>, Value>,
}

/// The outcome of a single step.
///
/// Reports exist for every step of the latest plan. A step that was still running when the run
/// stopped is `Pending`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StepReport {
    /// The id of the step.
    pub step: StepId,
    /// The final status of the step.
    pub status: StepStatus,
    /// The error message, if the step failed.
    pub error: Option<String>,
    /// The resources that the step used.
    pub spent: StepUsage,
}

impl TeamDetails {
    pub(crate) fn new(machine: GraphMachine) -> Self {
        let variables = machine.values();
        Self {
            machine: Box::new(machine),
            variables,
        }
    }

    /// Returns the value of a variable.
    pub fn variable(&self, name: &str) -> Option<&Value> {
        self.variables.get(name)
    }

    /// Returns the value of a variable as a `T`, or `None` if it is missing or cannot be
    /// deserialized.
    ///
    /// Use [`variable`](Self::variable) to tell a missing variable from one of another type.
    pub fn parse_variable<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        T::deserialize(self.variable(name)?).ok()
    }

    /// Returns all variables that have a value.
    ///
    /// The goal and the descriptions of input files, which levity adds itself, are not among them.
    pub fn variables(&self) -> &BTreeMap<Arc<str>, Value> {
        &self.variables
    }

    /// Returns the answer as Markdown for people, with the sources that the steps named.
    ///
    /// [`text`](RunOutput::text) has the same answer as the last step wrote it, which is JSON if
    /// the step wrote a list or an object.
    ///
    /// ```
    /// use levity_dag::{Plan, Step, StepInput, Team};
    /// use serde_json::json;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_dag::Result<()> {
    /// let tide = json!({"tide": {"text": "At six.", "sources": ["tides.pdf"]}});
    /// let team = Team::builder()
    ///     .function("tide", move |_: StepInput| {
    ///         let tide = tide.clone();
    ///         async move { Ok(tide) }
    ///     })
    ///     .build()?;
    /// let answer = team.run(Plan::new().step(Step::new("tide", "tide").writes(["tide"]))).await?;
    /// assert_eq!(answer.to_markdown(), "At six.\n\nSources:\n- tides.pdf");
    /// # Ok(())
    /// # }
    /// ```
    pub fn to_markdown(&self) -> String {
        let answer = self.machine.last_output();
        let mut text = answer.as_ref().map(readable::markdown).unwrap_or_default();
        let sources = self.sources();
        if !sources.is_empty() {
            let space = if text.is_empty() { "" } else { "\n\n" };
            text += &format!("{space}Sources:\n- {}", sources.join("\n- "));
        }
        text
    }

    /// Returns the sources that the steps named, each once: the values of the fields `source`,
    /// `sources` and `url` in all variables. At most 100 are returned.
    pub fn sources(&self) -> Vec<String> {
        readable::sources(self.variables.values())
    }

    /// Returns a report for each step, in plan order.
    ///
    /// ```
    /// use levity_core::ToolError;
    /// use levity_dag::{OnFailure, Plan, Step, StepInput, StepStatus, Team};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_dag::Result<()> {
    /// let team = Team::builder()
    ///     .function("broken", |_: StepInput| async { Err(ToolError::failed("no network")) })
    ///     .build()?;
    /// let plan = Plan::new().step(Step::new("fetch", "broken").on_failure(OnFailure::Skip));
    /// let report = team.run(plan).await?.steps().remove(0);
    /// assert_eq!((report.status, report.spent.attempts), (StepStatus::Failed, 1));
    /// assert_eq!(report.error.as_deref(), Some("no network"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn steps(&self) -> Vec<StepReport> {
        let report = |(step, status, error, spent)| StepReport {
            step,
            status,
            error,
            spent,
        };
        self.machine.reports().map(report).collect()
    }

    /// Returns the report for one step.
    pub fn step(&self, id: &str) -> Option<StepReport> {
        self.steps()
            .into_iter()
            .find(|report| report.step.as_str() == id)
    }

    /// Returns the latest plan, or `None` if none was made.
    pub fn plan(&self) -> Option<&Arc<Plan>> {
        self.machine.plan()
    }

    /// Returns the number of replans that were started.
    pub fn replans(&self) -> u32 {
        self.machine.replans()
    }
}

impl fmt::Debug for TeamDetails {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TeamDetails")
            .field("replans", &self.replans())
            .finish_non_exhaustive()
    }
}
