use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::plan::Variable;
use crate::step::{Step, StepId};

/// How a plan is changed while it runs. Steps that have begun or are finished cannot be changed or removed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Diff {
    /// Why, in words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Steps to add. One that does the work of a step that has failed says so by `instead_of`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<Arc<Step>>,
    /// Steps to remove.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<StepId>,
    /// Steps to put in the place of those with the same ids.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub change: Vec<Arc<Step>>,
    /// What is said about variables that are new.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<Arc<str>, Variable>,
    /// The planner sees no other way: the run ends with what there is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub give_up: Option<String>,
}
