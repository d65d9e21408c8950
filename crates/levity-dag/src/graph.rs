use std::collections::HashMap;
use std::sync::Arc;

use petgraph::graph::DiGraph;
use serde::{Deserialize, Serialize};

use crate::check;
use crate::fault::{Faults, Found};
use crate::known::PlanConstraints;
use crate::plan::Plan;
use crate::step::{Step, StepId};

mod cycle;
mod edges;
mod order;
mod reach;
mod settled;
mod stand_ins;
mod variables;

pub(crate) use stand_ins::StandIns;
pub(crate) use variables::Variables;

use edges::{Build, Topology};
use order::Numbers;
use settled::Settled;

/// A plan that was checked: a graph without cycles, in which everything that is read is there by
/// then.
///
/// Steps are numbered in the order of the plan, `0..len()`.
///
/// ```
/// use levity_dag::{Graph, PlanConstraints, StepRunner, StepRunnerKind, Plan, Step};
///
/// let known = PlanConstraints::new().with("Retriever", StepRunner::new(StepRunnerKind::Agent, "finds pages"));
/// let plan = Plan::new()
///     .step(Step::new("compare", "Retriever").reads(["page"]))
///     .step(Step::new("fetch", "Retriever").writes(["page"]));
/// let graph = Graph::check(plan, &known)?;
/// let edges: Vec<_> = graph.edges().map(|(from, to)| format!("{from} -> {to}")).collect();
/// assert_eq!(edges, ["fetch -> compare"]);
///
/// let lost = Plan::new().step(Step::new("find", "Retreiver"));
/// let faults = Graph::check(lost, &known).unwrap_err();
/// assert!(faults.to_string().contains("did you mean `Retriever`"));
/// # Ok::<(), levity_dag::Faults>(())
/// ```
///
/// Cloning costs nothing.
#[derive(Clone, Debug)]
pub struct Graph {
    plan: Arc<Plan>,
    found: Arc<FoundOut>,
}

/// What was found out about a plan.
#[derive(Debug)]
struct FoundOut {
    index: HashMap<StepId, u32>,
    topology: Topology,
}

pub(crate) type Dag = DiGraph<(), Edge, u32>;

/// What an edge says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Edge {
    /// Which of the target's `after` it is, if it is one: its condition is there. An edge from a
    /// stand-in has that of the step it stands in for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<u32>,
    /// Whether the target stands in for the source: it is run when the source has failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) stands_in: bool,
}

/// The dependencies between the steps of a plan that was changed while it ran, and no longer tells
/// them itself.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Wiring {
    edges: Vec<(u32, u32, Edge)>,
    /// The steps, each after those before it.
    order: Vec<u32>,
}

impl Graph {
    /// The dependencies between its steps.
    pub(crate) fn wiring(&self) -> Wiring {
        let Topology { dag, rank, .. } = &self.found.topology;
        let number = |node: petgraph::graph::NodeIndex<u32>| node.index() as u32;
        let edges = dag.raw_edges().iter();
        let mut order: Vec<u32> = (0..self.plan.steps.len() as u32).collect();
        order.sort_unstable_by_key(|at| rank.get(*at as usize));
        Wiring {
            edges: edges
                .map(|edge| (number(edge.source()), number(edge.target()), edge.weight))
                .collect(),
            order,
        }
    }

    /// The graph of a plan that was checked and changed, with the wiring that it had.
    ///
    /// # Errors
    /// When the wiring is not one of this plan.
    pub(crate) fn wired(plan: Arc<Plan>, wiring: &Wiring) -> Result<Self, String> {
        let mut found = Found::default();
        let index = check::ids(&plan, &mut found);
        found.none().map_err(|faults| faults.to_string())?;
        let topology = Topology::wired(&plan, wiring).ok_or("its edges do not fit its plan")?;
        Ok(Self {
            plan,
            found: Arc::new(FoundOut { index, topology }),
        })
    }

    /// Checks a plan.
    ///
    /// The cost is near that of reading the plan: 10,000 steps take some milliseconds.
    ///
    /// # Errors
    /// When it cannot be run; all that is wrong is named, and where.
    pub fn check(plan: impl Into<Arc<Plan>>, known: &PlanConstraints) -> Result<Self, Faults> {
        Self::checked(plan.into(), known, None, &|_| false)
    }

    /// Checks a plan that `old` was changed to while it ran. What has begun or is finished is
    /// settled.
    ///
    /// A settled step keeps the edges that it had, even if a new step writes what it has read, and
    /// settled steps keep their order. What is new and writes a variable of a settled step is later
    /// than that. Settled steps count nothing in the worst case, so the limits in `known` are those
    /// that are left.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn check_changed(
        plan: impl Into<Arc<Plan>>,
        known: &PlanConstraints,
        old: &Self,
        settled: &dyn Fn(&StepId) -> bool,
    ) -> Result<Self, Faults> {
        Self::checked(plan.into(), known, Some(old), settled)
    }

    fn checked(
        plan: Arc<Plan>,
        known: &PlanConstraints,
        old: Option<&Self>,
        settled: &dyn Fn(&StepId) -> bool,
    ) -> Result<Self, Faults> {
        let mut found = Found::default();
        check::size(&plan, known, &mut found);
        found.none()?;
        let index = check::ids(&plan, &mut found);
        let settled = Settled::new(&plan, &index, old, settled);
        check::parts(&plan, known, &index, &settled.is, &mut found);
        let topology = Build::new(&plan, &index, &settled, known.max_edges).finish(&mut found);
        found.none()?;
        Ok(Self {
            plan,
            found: Arc::new(FoundOut { index, topology }),
        })
    }

    /// The same graph of a plan in which nothing but what is given from the start differs.
    pub(crate) fn with_plan(mut self, plan: Arc<Plan>) -> Self {
        self.plan = plan;
        self
    }

    /// The plan.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// How many steps there are.
    pub fn len(&self) -> usize {
        self.plan.steps.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.plan.steps.is_empty()
    }

    /// The step of this number.
    pub fn step(&self, at: u32) -> Option<&Arc<Step>> {
        self.plan.steps.get(at as usize)
    }

    /// The number of a step.
    pub fn find(&self, id: &str) -> Option<u32> {
        self.found.index.get(id).copied()
    }

    /// All edges, those that follow from variables included: which step comes before which.
    pub fn edges(&self) -> impl Iterator<Item = (&StepId, &StepId)> {
        let id = |at: petgraph::graph::NodeIndex<u32>| {
            self.plan.steps.get(at.index()).map(|step| &step.id)
        };
        self.found
            .topology
            .dag
            .raw_edges()
            .iter()
            .filter_map(move |edge| Some((id(edge.source())?, id(edge.target())?)))
    }

    /// The edges that lead to a step: where they come from, and what they say.
    pub(crate) fn before(&self, at: u32) -> impl Iterator<Item = (u32, Edge)> + '_ {
        use petgraph::visit::EdgeRef as _;
        let edges = self
            .found
            .topology
            .dag
            .edges_directed(at.into(), petgraph::Direction::Incoming);
        edges.map(|edge| (edge.source().index() as u32, *edge.weight()))
    }

    /// The edges that lead away from a step.
    pub(crate) fn behind(&self, at: u32) -> impl Iterator<Item = (u32, Edge)> + '_ {
        use petgraph::visit::EdgeRef as _;
        let edges = self
            .found
            .topology
            .dag
            .edges_directed(at.into(), petgraph::Direction::Outgoing);
        edges.map(|edge| (edge.target().index() as u32, *edge.weight()))
    }

    /// Which step comes right before which, by number.
    pub(crate) fn links(&self) -> Numbers<'_> {
        Numbers(&self.found.topology.dag)
    }

    /// The pairs of a step and one that stands in for it.
    pub(crate) fn stand_ins(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let edges = self
            .found
            .topology
            .dag
            .raw_edges()
            .iter()
            .filter(|edge| edge.weight.stands_in);
        edges.map(|edge| (edge.source().index() as u32, edge.target().index() as u32))
    }

    /// The place of a step in an order in which every step comes after those before it.
    pub(crate) fn rank(&self, at: u32) -> u32 {
        self.found
            .topology
            .rank
            .get(at as usize)
            .copied()
            .unwrap_or_default()
    }

    /// How many steps the longest way from this one to an end has: what is on the longest way goes
    /// first.
    pub(crate) fn weight(&self, at: u32) -> u32 {
        self.found
            .topology
            .weight
            .get(at as usize)
            .copied()
            .unwrap_or_default()
    }

    /// The steps that write a variable, by rank.
    pub(crate) fn writers(&self, variable: &str) -> &[u32] {
        self.found
            .topology
            .writers
            .get(variable)
            .map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests;
