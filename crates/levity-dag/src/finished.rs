use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use levity_core::Finished;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::machine::GraphMachine;
use crate::notice::{StepSpent, StepStatus};
use crate::plan::Plan;
use crate::step::StepId;

/// The result of a team's run; see [`Finished`] and [`TeamDetails`]. Its text is the output of the
/// last step that is done.
pub type TeamAnswer = Finished<TeamDetails>;

/// The part of a result that only a team's run has: variables, steps and the plan.
pub struct TeamDetails {
    machine: Box<GraphMachine>,
    variables: BTreeMap<Arc<str>, Value>,
}

/// What became of a step.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StepReport {
    /// The step.
    pub step: StepId,
    /// Where it stands.
    pub status: StepStatus,
    /// Why it failed, if it did.
    pub error: Option<String>,
    /// What it took.
    pub spent: StepSpent,
}

impl TeamDetails {
    pub(crate) fn new(machine: GraphMachine) -> Self {
        let variables = machine.values();
        Self {
            machine: Box::new(machine),
            variables,
        }
    }

    /// The value of a variable.
    pub fn variable(&self, name: &str) -> Option<&Value> {
        self.variables.get(name)
    }

    /// The value of a variable as a `T`; nothing when there is none, or it is no `T`.
    pub fn parse_variable<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        T::deserialize(self.variable(name)?).ok()
    }

    /// All variables that have a value.
    pub fn variables(&self) -> &BTreeMap<Arc<str>, Value> {
        &self.variables
    }

    /// What became of each step, in the order of the plan.
    pub fn steps(&self) -> Vec<StepReport> {
        let report = |(step, status, error, spent)| StepReport {
            step,
            status,
            error,
            spent,
        };
        self.machine.reports().map(report).collect()
    }

    /// What became of a step.
    pub fn step(&self, id: &str) -> Option<StepReport> {
        self.steps()
            .into_iter()
            .find(|report| report.step.as_str() == id)
    }

    /// The plan as it was last; nothing when none was made.
    pub fn plan(&self) -> Option<&Arc<Plan>> {
        self.machine.plan()
    }

    /// How many times another way was looked for.
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
