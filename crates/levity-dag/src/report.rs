use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use levity_core::RunOutput;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::machine::GraphMachine;
use crate::notice::{StepStatus, StepUsage};
use crate::plan::Plan;
use crate::step::StepId;

/// The result of a team's run; see [`RunOutput`] and [`TeamDetails`]. Its text is the output of the
/// last completed step.
pub type TeamAnswer = RunOutput<TeamDetails>;

/// The team-specific part of a result: variables, steps and the plan.
pub struct TeamDetails {
    machine: Box<GraphMachine>,
    variables: BTreeMap<Arc<str>, Value>,
}

/// The outcome of a single step.
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
    pub fn parse_variable<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        T::deserialize(self.variable(name)?).ok()
    }

    /// Returns all variables that have a value.
    pub fn variables(&self) -> &BTreeMap<Arc<str>, Value> {
        &self.variables
    }

    /// Returns a report for each step, in plan order.
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
