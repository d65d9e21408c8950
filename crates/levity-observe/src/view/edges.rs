//! The edges of a plan for drawing, with the reason for each.
//!
//! A running plan reports its edges. For an unchecked plan they are derived here, more simply than
//! the check does: a draft may contain cycles and unknown names, and is drawn all the same.

use std::collections::{BTreeSet, HashMap};

use levity_dag::{Graph, OnFailure, Plan, Step, StepId};

/// The reasons why one step comes after another.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct EdgeKind {
    /// The second step names the first in `after`.
    pub(crate) after: bool,
    /// The condition of this dependency.
    pub(crate) when: Option<String>,
    /// The variables that the first step writes and the second reads.
    pub(crate) variables: Vec<String>,
    /// The second step is a fallback for the first.
    pub(crate) is_fallback: bool,
}

/// Returns all reasons for an edge; several can apply, such as `after` and a variable.
pub(crate) fn edge_kind(from: &Step, to: &Step) -> EdgeKind {
    let after = to.after.iter().find(|after| after.step == from.id);
    let fallback = matches!(&from.on_failure, OnFailure::Fallback(id) if *id == to.id);
    EdgeKind {
        after: after.is_some(),
        when: after
            .and_then(|after| after.when.as_ref())
            .map(ToString::to_string),
        variables: to
            .reads
            .iter()
            .filter(|name| from.writes.contains(name))
            .map(ToString::to_string)
            .collect(),
        is_fallback: fallback || to.fallback_for() == Some(&from.id),
    }
}

/// Returns the edges of a possibly unchecked plan as indices into it, sorted by target and source.
pub(crate) fn edges_of(plan: &Plan) -> Vec<(u32, u32)> {
    let index = PlanIndex::new(plan);
    let mut edges = BTreeSet::new();
    for (to, step) in plan.steps.iter().enumerate() {
        let to = to as u32;
        let named = step
            .after
            .iter()
            .map(|after| &after.step)
            .chain(step.fallback_for());
        edges.extend(
            named
                .filter_map(|id| index.ids.get(id.as_str()))
                .map(|from| (to, *from)),
        );
        if let OnFailure::Fallback(id) = &step.on_failure {
            edges.extend(
                index
                    .ids
                    .get(id.as_str())
                    .map(|fallback_step| (*fallback_step, to)),
            );
        }
        for name in &step.reads {
            // A step that reads and writes a variable reads the values of the steps before it in
            // the plan.
            let writes_too = step.writes.contains(name);
            let writers = index.writers.get(&**name).into_iter().flatten();
            edges.extend(
                writers
                    .filter(|from| !writes_too || **from < to)
                    .map(|from| (to, *from)),
            );
        }
    }
    edges
        .into_iter()
        .filter(|(to, from)| to != from)
        .map(|(to, from)| (from, to))
        .collect()
}

struct PlanIndex<'a> {
    ids: HashMap<&'a str, u32>,
    writers: HashMap<&'a str, Vec<u32>>,
}

impl<'a> PlanIndex<'a> {
    fn new(plan: &'a Plan) -> Self {
        let mut index = Self {
            ids: HashMap::new(),
            writers: HashMap::new(),
        };
        for (at, step) in plan.steps.iter().enumerate() {
            index.ids.entry(step.id.as_str()).or_insert(at as u32);
            for name in &step.writes {
                index.writers.entry(name).or_default().push(at as u32);
            }
        }
        index
    }
}

impl super::PlanView {
    /// Creates a view of a checked plan that is not running.
    ///
    /// ```
    /// use levity_dag::{Plan, Step, StepInput, Team};
    /// use levity_observe::PlanView;
    /// use serde_json::Value;
    ///
    /// # fn main() -> levity_dag::Result<()> {
    /// let team = Team::builder()
    ///     .function("noop", |_: StepInput| async { Ok(Value::Null) })
    ///     .build()?;
    /// let plan = Plan::new()
    ///     .step(Step::new("a", "noop").writes(["x"]))
    ///     .step(Step::new("b", "noop").reads(["x"]));
    /// let view = PlanView::of_graph(&team.check(plan)?);
    /// assert_eq!(view.edges(), [(0, 1)]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn of_graph(graph: &Graph) -> Self {
        let mut view = Self::default();
        let place = |(from, to): (&StepId, &StepId)| {
            Some((graph.find(to.as_str())?, graph.find(from.as_str())?))
        };
        let mut edges: Vec<(u32, u32)> = graph.edges().filter_map(place).collect();
        edges.sort_unstable();
        edges.dedup();
        view.set_plan(
            graph.plan().clone(),
            edges.into_iter().map(|(to, from)| (from, to)).collect(),
        );
        view
    }
}
