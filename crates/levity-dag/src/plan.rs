use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::step::{Reducer, Step};

/// What is to be done, as data: steps, what they read and write, and what is given from the start.
///
/// A plan may be wrong in any way; [`Graph::check`](crate::Graph::check) says whether it can be run.
///
/// ```
/// use levity_dag::{Plan, Step};
///
/// let plan = Plan::new()
///     .step(Step::new("fetch", "Retriever").prompt("Find the page about tides.").writes(["page"]))
///     .step(Step::new("sum", "Summarizer").prompt("Sum it up.").reads(["page"]).writes(["summary"]));
/// assert_eq!(plan.steps.len(), 2);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Plan {
    /// The steps, in an order that only matters where nothing else decides.
    pub steps: Vec<Arc<Step>>,
    /// What is said about variables.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<Arc<str>, Variable>,
    /// The variables that are there from the start.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub given: BTreeMap<Arc<str>, Value>,
}

impl Plan {
    /// A plan without steps.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a step.
    #[must_use]
    pub fn step(mut self, step: Step) -> Self {
        self.steps.push(Arc::new(step));
        self
    }

    /// Gives a variable from the start.
    #[must_use]
    pub fn given(mut self, name: impl Into<Arc<str>>, value: impl Into<Value>) -> Self {
        self.given.insert(name.into(), value.into());
        self
    }

    /// Says something about a variable.
    #[must_use]
    pub fn variable(mut self, name: impl Into<Arc<str>>, variable: Variable) -> Self {
        self.variables.insert(name.into(), variable);
        self
    }
}

/// What is said about a variable.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Variable {
    /// What its value must look like, as a JSON Schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// How the values of several steps that write it become one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reducer: Option<Reducer>,
}

impl Variable {
    /// A variable of which nothing is said yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// What its value must look like, as a JSON Schema.
    #[must_use]
    pub fn schema(mut self, schema: Value) -> Self {
        self.schema = Some(schema);
        self
    }

    /// How the values of several steps become one.
    #[must_use]
    pub fn reducer(mut self, reducer: Reducer) -> Self {
        self.reducer = Some(reducer);
        self
    }
}
