use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::fault::Faults;
use crate::graph::Graph;
use crate::plan::{Plan, Variable};
use crate::step::{Step, StepId};

mod apply;
mod parse;
mod redo;

/// How a plan is changed while it runs. Steps that have begun or are finished cannot be changed or
/// removed.
///
/// ```
/// use levity_dag::{Diff, Plan, Step, StepId};
///
/// let plan = Plan::new()
///     .step(Step::new("fetch", "Retriever").writes(["page"]))
///     .step(Step::new("sum", "Summarizer").reads(["page"]));
/// let failed = |id: &StepId| id.as_str() == "fetch";
///
/// let reply = r#"{"reason": "the site is down", "add": [{"id": "search", "agent": "Browser", "writes": ["page"],
///     "instead_of": "fetch"}], "change": [{"id": "sum", "prompt": "Say where it comes from."}]}"#;
/// let diff = Diff::parse(reply, &plan, &failed)?;
/// let changed = diff.apply(&plan, &failed)?;
/// assert_eq!(changed.steps.len(), 3);
/// assert_eq!(changed.steps[1].reads[0].as_ref(), "page");
///
/// let faults = Diff::parse(r#"{"remove": ["fetch"]}"#, &plan, &failed)?.apply(&plan, &failed).unwrap_err();
/// assert!(faults.to_string().starts_with("step `fetch` has begun or is finished, and cannot be removed"));
/// # Ok::<(), levity_dag::Faults>(())
/// ```
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

impl Diff {
    /// Reads a change that a person or a model has written, with the kindness of [`Plan::parse`].
    ///
    /// It takes its own form, `{"add": [..], "remove": [..], "change": [..]}`. What a step in
    /// `change` does not say stays as it is in `plan`, and `null` takes it away. A whole plan in
    /// any form is taken too: what is new in it is added, what differs is changed, and what is
    /// missing is removed unless it is `settled`, which nobody has to repeat.
    ///
    /// # Errors
    /// As [`Plan::parse`].
    pub fn parse(
        text: &str,
        plan: &Plan,
        settled: &dyn Fn(&StepId) -> bool,
    ) -> Result<Self, Faults> {
        parse::parse(text, plan, settled)
    }

    /// What makes one plan of another.
    pub fn between(old: &Plan, new: &Plan) -> Self {
        parse::between(old, new, &|_| false)
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.add.is_empty()
            && self.remove.is_empty()
            && self.change.is_empty()
            && self.variables.is_empty()
    }

    /// The plan after the change: steps that are changed stay in their places, and those that are
    /// added come last. [`Graph::check_changed`] says whether it can be run.
    ///
    /// # Errors
    /// When it changes nothing, touches steps that are `settled` (begun or finished), or names
    /// steps that are not there.
    pub fn apply(&self, plan: &Plan, settled: &dyn Fn(&StepId) -> bool) -> Result<Plan, Faults> {
        apply::apply(self, plan, settled)
    }

    /// The change with which a judge sends work back: copies of `steps`, of all that is between
    /// them and the judge, and of the judge, which do the same once more and are told the `issues`.
    /// Without `steps`, all that stands directly before the judge is done again.
    ///
    /// A copy of `draft` is called `draft~2`, or `draft~3` the next time. They write what the first
    /// ones wrote, later than those, and the copy of the judge stands in for it. This holds for
    /// [`Graph::check_changed`], to which the first ones are settled; [`Graph::check`] knows no
    /// order between the two.
    pub fn redo(graph: &Graph, judge: &StepId, steps: &[StepId], issues: &[String]) -> Self {
        redo::redo(graph, judge, steps, issues)
    }
}

#[cfg(test)]
mod tests;
