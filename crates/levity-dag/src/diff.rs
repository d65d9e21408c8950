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

/// A change to a plan that is running. It cannot change or remove steps that have started or
/// finished.
///
/// ```
/// use levity_dag::{Diff, Plan, Step, StepId};
///
/// let plan = Plan::new()
///     .step(Step::new("fetch", "Retriever").writes(["page"]))
///     .step(Step::new("sum", "Summarizer").reads(["page"]));
/// let failed = |id: &StepId| id.as_str() == "fetch";
///
/// let reply = r#"{"reason": "the site is down",
///     "add": [{"id": "search", "agent": "Browser", "writes": ["page"], "instead_of": "fetch"}],
///     "change": [{"id": "sum", "prompt": "Say where it comes from."}]}"#;
/// let diff = Diff::parse(reply, &plan, &failed)?;
/// let changed = diff.apply(&plan, &failed)?;
/// assert_eq!(changed.steps.len(), 3);
/// assert_eq!(changed.steps[1].reads[0].as_ref(), "page");
///
/// let faults = Diff::parse(r#"{"remove": ["fetch"]}"#, &plan, &failed)?
///     .apply(&plan, &failed)
///     .unwrap_err();
/// assert!(
///     faults
///         .to_string()
///         .starts_with("step `fetch` has started or finished and cannot be removed")
/// );
/// # Ok::<(), levity_dag::Faults>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Diff {
    /// The reason for the change.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Steps to add. A step that replaces a failed one names it in `instead_of`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<Arc<Step>>,
    /// Steps to remove, by id.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<StepId>,
    /// Steps that replace those with the same ids.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub change: Vec<Arc<Step>>,
    /// Declarations of new variables.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<Arc<str>, Variable>,
    /// The reason why the planner gives up. The run then ends with its current results.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub give_up: Option<String>,
}

impl Diff {
    /// Parses a change that a person or a model wrote, as leniently as [`Plan::parse`].
    ///
    /// The parser accepts its own form, `{"add": [..], "remove": [..], "change": [..]}`. A step in
    /// `change` keeps the fields of `plan` that it does not set, and `null` removes a field.
    ///
    /// The parser also accepts a whole plan in any form. It adds new steps, changes steps that
    /// differ, and removes missing steps. `settled` steps are never removed and need not be
    /// repeated.
    ///
    /// # Errors
    /// Returns the same errors as [`Plan::parse`].
    pub fn parse(
        text: &str,
        plan: &Plan,
        settled: &dyn Fn(&StepId) -> bool,
    ) -> Result<Self, Faults> {
        parse::parse(text, plan, settled)
    }

    /// Returns the change that turns one plan into another.
    ///
    /// ```
    /// use levity_dag::{Diff, Plan, Step};
    ///
    /// let old = Plan::new().step(Step::new("a", "A")).step(Step::new("b", "A"));
    /// let new = Plan::new()
    ///     .step(Step::new("a", "A").prompt("Do it well."))
    ///     .step(Step::new("c", "A"));
    /// let diff = Diff::between(&old, &new);
    /// assert_eq!((diff.change[0].id.as_str(), diff.add[0].id.as_str()), ("a", "c"));
    /// assert_eq!(diff.apply(&old, &|_| false)?, new);
    /// # Ok::<(), levity_dag::Faults>(())
    /// ```
    pub fn between(old: &Plan, new: &Plan) -> Self {
        parse::between(old, new, &|_| false)
    }

    /// Returns `true` if the diff changes nothing.
    pub fn is_empty(&self) -> bool {
        self.add.is_empty()
            && self.remove.is_empty()
            && self.change.is_empty()
            && self.variables.is_empty()
    }

    /// Returns the plan after the change. Changed steps keep their positions, and added steps are
    /// appended. Use [`Graph::check_changed`] to validate the result.
    ///
    /// A diff adds declarations of variables, but it cannot change existing ones, because values
    /// may already exist.
    ///
    /// # Errors
    /// Returns an error if the diff changes nothing, affects `settled` steps (started or finished),
    /// or names steps that do not exist.
    pub fn apply(&self, plan: &Plan, settled: &dyn Fn(&StepId) -> bool) -> Result<Plan, Faults> {
        apply::apply(self, plan, settled)
    }

    /// Returns the change with which a judge sends work back. It copies `steps`, all steps between
    /// them and the judge, and the judge. The copies repeat the work and receive the `issues`.
    /// Without `steps`, it copies the direct predecessors of the judge.
    ///
    /// A copy of `draft` is called `draft~2`, or `draft~3` the next time. The copies write the same
    /// variables as the originals, after them. The copy of the judge is a fallback for it. Validate
    /// the result with [`Graph::check_changed`], for which the originals are settled;
    /// [`Graph::check`] finds no order between originals and copies.
    ///
    /// A prompt contains at most 20 issues of 1,000 bytes each. A judge that is not in the graph
    /// gives an empty diff.
    ///
    /// ```
    /// use levity_dag::{Diff, Graph, Plan, PlanConstraints, Step, StepRunner, StepRunnerKind};
    ///
    /// let known = PlanConstraints::new()
    ///     .with("A", StepRunner::new(StepRunnerKind::Agent, "works"));
    /// let plan = Plan::new()
    ///     .step(Step::new("draft", "A").writes(["text"]))
    ///     .step(Step::new("judge", "A").reads(["text"]));
    /// let graph = Graph::check(plan, &known)?;
    /// let diff = Diff::redo(&graph, &"judge".into(), &[], &["too long".to_owned()]);
    /// let ids: Vec<_> = diff.add.iter().map(|step| step.id.as_str()).collect();
    /// assert_eq!(ids, ["draft~2", "judge~2"]);
    /// assert_eq!(diff.reason, "`judge` sent the work back: too long");
    /// # Ok::<(), levity_dag::Faults>(())
    /// ```
    pub fn redo(graph: &Graph, judge: &StepId, steps: &[StepId], issues: &[String]) -> Self {
        redo::redo(graph, judge, steps, issues)
    }
}

#[cfg(test)]
mod tests;
