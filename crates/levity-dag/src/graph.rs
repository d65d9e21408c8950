use std::collections::HashMap;
use std::sync::Arc;

use petgraph::graph::DiGraph;
use serde::{Deserialize, Serialize};

use crate::check;
use crate::constraints::PlanConstraints;
use crate::fault::{FaultCollector, Faults};
use crate::plan::Plan;
use crate::step::{Step, StepId};

mod cycle;
mod edges;
mod fallbacks;
mod order;
mod reach;
mod settled_steps;
mod variables;

pub(crate) use fallbacks::Fallbacks;
pub(crate) use variables::Variables;

use edges::{Topology, TopologyBuilder};
use order::NumberedLinks;
use settled_steps::SettledSteps;

/// A validated plan: a graph without cycles, in which every variable is written before it is read.
///
/// Steps are numbered in the order of the plan, `0..len()`.
///
/// ```
/// use levity_dag::{Graph, PlanConstraints, StepRunner, StepRunnerKind, Plan, Step};
///
/// let known = PlanConstraints::new().with(
///     "Retriever",
///     StepRunner::new(StepRunnerKind::Agent, "finds pages"),
/// );
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
/// Cloning is cheap: a graph is two `Arc`s.
#[derive(Clone, Debug)]
pub struct Graph {
    plan: Arc<Plan>,
    layout: Arc<Layout>,
}

/// The index and the topology that the check derives from a plan.
#[derive(Debug)]
struct Layout {
    index: HashMap<StepId, u32>,
    topology: Topology,
}

pub(crate) type Dag = DiGraph<(), Edge, u32>;

/// The attributes of an edge between two steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Edge {
    /// The position of this edge in the target's `after` list, if it is listed there; that entry
    /// has its condition. An edge from a fallback step has the position of the step that it
    /// replaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<u32>,
    /// `true` if the target is a fallback for the source, and runs when the source has failed.
    #[serde(
        default,
        rename = "stands_in",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub(crate) is_fallback: bool,
}

/// The dependencies between the steps of a plan that was changed while it ran. The changed plan
/// alone no longer determines them.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Wiring {
    edges: Vec<(u32, u32, Edge)>,
    /// The steps in topological order.
    order: Vec<u32>,
}

impl Graph {
    /// Returns the dependencies between the steps.
    pub(crate) fn wiring(&self) -> Wiring {
        let Topology { dag, rank, .. } = &self.layout.topology;
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

    /// Restores the graph of a plan that was checked and changed, with its saved wiring.
    ///
    /// # Errors
    /// Returns an error if the wiring does not belong to this plan.
    pub(crate) fn wired(plan: Arc<Plan>, wiring: &Wiring) -> Result<Self, String> {
        let mut found = FaultCollector::default();
        let index = check::ids(&plan, &mut found);
        found.finish().map_err(|faults| faults.to_string())?;
        let topology =
            Topology::wired(&plan, wiring).ok_or("the saved edges do not match the plan")?;
        Ok(Self {
            plan,
            layout: Arc::new(Layout { index, topology }),
        })
    }

    /// Validates a plan and builds its graph.
    ///
    /// The cost is close to that of reading the plan: 10,000 steps take a few milliseconds.
    ///
    /// The check covers ids, runners, references, cycles, reads, writes, declarations, sizes and
    /// the worst-case budget. It needs no network and calls no agent.
    ///
    /// # Errors
    /// Returns all faults, with their steps, if the plan cannot run.
    pub fn check(plan: impl Into<Arc<Plan>>, known: &PlanConstraints) -> Result<Self, Faults> {
        Self::checked(plan.into(), known, None, &|_| false)
    }

    /// Validates a plan that replaces `old` while `old` is running. Steps that have started or
    /// finished are settled.
    ///
    /// A settled step keeps its edges, even if a new step writes a variable that it has read.
    /// Settled steps also keep their order. A new step that writes a variable of a settled step is
    /// ordered after it. Settled steps count as zero in the worst case, so the limits in `known`
    /// are the remaining limits.
    ///
    /// ```
    /// use levity_dag::{
    ///     Diff, Graph, Plan, PlanConstraints, Step, StepId, StepRunner, StepRunnerKind,
    /// };
    ///
    /// let known = PlanConstraints::new()
    ///     .with("A", StepRunner::new(StepRunnerKind::Agent, "works"));
    /// let plan = Plan::new()
    ///     .step(Step::new("fetch", "A").writes(["page"]))
    ///     .step(Step::new("sum", "A").reads(["page"]));
    /// let old = Graph::check(plan, &known)?;
    /// let started = |id: &StepId| id.as_str() == "fetch";
    ///
    /// let reply = r#"{"add": [{"id": "mail", "agent": "A", "after": "sum"}]}"#;
    /// let diff = Diff::parse(reply, old.plan(), &started)?;
    /// let changed = diff.apply(old.plan(), &started)?;
    /// let graph = Graph::check_changed(changed, &known, &old, &started)?;
    /// assert_eq!(graph.len(), 3);
    /// # Ok::<(), levity_dag::Faults>(())
    /// ```
    ///
    /// # Errors
    /// Returns the same errors as [`check`](Self::check).
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
        let mut found = FaultCollector::default();
        check::size(&plan, known, &mut found);
        found.finish()?;
        let index = check::ids(&plan, &mut found);
        let settled = SettledSteps::new(&plan, &index, old, settled);
        check::parts(&plan, known, &index, &settled.flags, &mut found);
        let topology =
            TopologyBuilder::new(&plan, &index, &settled, known.max_edges).finish(&mut found);
        found.finish()?;
        Ok(Self {
            plan,
            layout: Arc::new(Layout { index, topology }),
        })
    }

    /// Returns the same graph for a plan that differs only in its initial variables.
    pub(crate) fn with_plan(mut self, plan: Arc<Plan>) -> Self {
        self.plan = plan;
        self
    }

    /// Returns the plan of this graph.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Returns the number of steps.
    pub fn len(&self) -> usize {
        self.plan.steps.len()
    }

    /// Returns `true` if the graph has no steps.
    pub fn is_empty(&self) -> bool {
        self.plan.steps.is_empty()
    }

    /// Returns the step with this number.
    pub fn step(&self, at: u32) -> Option<&Arc<Step>> {
        self.plan.steps.get(at as usize)
    }

    /// Returns the number of the step with this id.
    ///
    /// ```
    /// use levity_dag::{Graph, Plan, PlanConstraints, Step, StepRunner, StepRunnerKind};
    ///
    /// let known = PlanConstraints::new()
    ///     .with("A", StepRunner::new(StepRunnerKind::Agent, "works"));
    /// let graph = Graph::check(Plan::new().step(Step::new("fetch", "A")), &known)?;
    /// let at = graph.find("fetch").unwrap();
    /// assert_eq!(&*graph.step(at).unwrap().agent, "A");
    /// assert_eq!(graph.find("other"), None);
    /// # Ok::<(), levity_dag::Faults>(())
    /// ```
    pub fn find(&self, id: &str) -> Option<u32> {
        self.layout.index.get(id).copied()
    }

    /// Returns all edges as pairs of predecessor and successor, including those derived from
    /// variables.
    pub fn edges(&self) -> impl Iterator<Item = (&StepId, &StepId)> {
        let id = |at: petgraph::graph::NodeIndex<u32>| {
            self.plan.steps.get(at.index()).map(|step| &step.id)
        };
        self.layout
            .topology
            .dag
            .raw_edges()
            .iter()
            .filter_map(move |edge| Some((id(edge.source())?, id(edge.target())?)))
    }

    /// Returns the incoming edges of a step, with the numbers of their sources.
    pub(crate) fn before(&self, at: u32) -> impl Iterator<Item = (u32, Edge)> + '_ {
        use petgraph::visit::EdgeRef as _;
        let edges = self
            .layout
            .topology
            .dag
            .edges_directed(at.into(), petgraph::Direction::Incoming);
        edges.map(|edge| (edge.source().index() as u32, *edge.weight()))
    }

    /// Returns the outgoing edges of a step, with the numbers of their targets.
    pub(crate) fn behind(&self, at: u32) -> impl Iterator<Item = (u32, Edge)> + '_ {
        use petgraph::visit::EdgeRef as _;
        let edges = self
            .layout
            .topology
            .dag
            .edges_directed(at.into(), petgraph::Direction::Outgoing);
        edges.map(|edge| (edge.target().index() as u32, *edge.weight()))
    }

    /// Returns the edges as pairs of step numbers.
    pub(crate) fn links(&self) -> NumberedLinks<'_> {
        NumberedLinks(&self.layout.topology.dag)
    }

    /// Returns the pairs of a step and a fallback for it.
    pub(crate) fn fallbacks(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let edges = self
            .layout
            .topology
            .dag
            .raw_edges()
            .iter()
            .filter(|edge| edge.weight.is_fallback);
        edges.map(|edge| (edge.source().index() as u32, edge.target().index() as u32))
    }

    /// Returns the position of a step in a topological order.
    pub(crate) fn rank(&self, at: u32) -> u32 {
        self.layout
            .topology
            .rank
            .get(at as usize)
            .copied()
            .unwrap_or_default()
    }

    /// Returns the number of steps on the longest path from this step to an end. Steps on the
    /// longest path start first.
    pub(crate) fn weight(&self, at: u32) -> u32 {
        self.layout
            .topology
            .weight
            .get(at as usize)
            .copied()
            .unwrap_or_default()
    }

    /// Returns the steps that write a variable, by rank.
    pub(crate) fn writers(&self, variable: &str) -> &[u32] {
        self.layout
            .topology
            .writers
            .get(variable)
            .map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests;
