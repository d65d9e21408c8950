//! Derives the edges of a plan: stated ones first, then those from fallbacks, then those from
//! variables.
//!
//! The order matters. Stated edges define which of two steps comes first; only then is it clear
//! whether a step that writes a variable is before a reader, or after it by intention. Each stage
//! counts the pairs that it examines and stops at a limit, because a small hostile plan can imply
//! millions of edges.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use petgraph::Direction::{Incoming, Outgoing};

use super::{Dag, Edge, Fallbacks, SettledSteps, Variables, Wiring, cycle, order, reach};
use crate::check;
use crate::fault::{Fault, FaultCollector, FaultKind};
use crate::plan::Plan;
use crate::step::{Step, StepId};

/// The number of pairs of a reader and a writer examined per allowed edge. Steps that share many
/// variables have a single edge.
const PAIRS_PER_EDGE: usize = 4;

/// The edges, ranks, weights and writers derived from a plan.
#[derive(Debug, Default)]
pub(super) struct Topology {
    pub(super) dag: Dag,
    pub(super) rank: Vec<u32>,
    pub(super) weight: Vec<u32>,
    pub(super) writers: BTreeMap<Arc<str>, Vec<u32>>,
}

impl Topology {
    /// Restores the topology of a plan from its wiring, or returns `None` if they do not match.
    pub(super) fn wired(plan: &Plan, wiring: &Wiring) -> Option<Self> {
        let (steps, order) = (plan.steps.len(), &wiring.order);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        if !sorted.into_iter().eq(0..u32::try_from(steps).ok()?) {
            return None;
        }
        let rank = order::ranks(order);
        let mut dag = Dag::with_capacity(steps, wiring.edges.len());
        (0..steps).for_each(|_| _ = dag.add_node(()));
        for (from, to, edge) in &wiring.edges {
            let forward = rank.get(*from as usize)? < rank.get(*to as usize)?;
            forward.then(|| dag.add_edge((*from).into(), (*to).into(), *edge))?;
        }
        let writers = writers(&Variables::new(plan), &rank);
        Some(Self {
            weight: order::weights(&dag, order),
            dag,
            rank,
            writers,
        })
    }
}

/// Returns the steps that write each variable, by rank.
fn writers(variables: &Variables<'_>, rank: &[u32]) -> BTreeMap<Arc<str>, Vec<u32>> {
    let written = variables
        .names
        .iter()
        .zip(&variables.writers)
        .filter(|(_, steps)| !steps.is_empty());
    let by_rank = written.map(|(name, steps)| {
        let mut steps = steps.clone();
        steps.sort_unstable_by_key(|at| rank[*at as usize]);
        ((*name).clone(), steps)
    });
    by_rank.collect()
}

/// Builds the edges: first those that the plan states, then those derived from variables.
pub(super) struct TopologyBuilder<'a> {
    plan: &'a Plan,
    index: &'a HashMap<StepId, u32>,
    settled: &'a SettledSteps,
    fallbacks: Fallbacks,
    dag: Dag,
    max_edges: usize,
    examined: usize,
    /// `seen[source] == target + 1` means that there is an edge from the source to the current
    /// target.
    seen: Vec<u32>,
}

impl<'a> TopologyBuilder<'a> {
    pub(super) fn new(
        plan: &'a Plan,
        index: &'a HashMap<StepId, u32>,
        settled: &'a SettledSteps,
        max_edges: usize,
    ) -> Self {
        let steps = plan.steps.len();
        let mut dag = Dag::with_capacity(steps, steps * 2);
        (0..steps).for_each(|_| _ = dag.add_node(()));
        let fallbacks = Fallbacks::new(plan, index);
        Self {
            plan,
            index,
            settled,
            fallbacks,
            dag,
            max_edges,
            examined: 0,
            seen: vec![0; steps],
        }
    }

    /// Builds all edges and the topology. If faults were found, the topology is incomplete.
    pub(super) fn finish(mut self, found: &mut FaultCollector) -> Topology {
        check::fallbacks(self.plan, &self.fallbacks, found);
        if !self.add_explicit_edges() {
            self.too_many(found);
            return Topology::default();
        }
        let Some(order) = self.order(found) else {
            return Topology::default();
        };
        let order = match self.add_inherited_edges(&order) {
            Some(0) => order,
            Some(_) => match self.order(found) {
                Some(order) => order,
                None => return Topology::default(),
            },
            None => {
                self.too_many(found);
                return Topology::default();
            }
        };
        let variables = Variables::new(self.plan);
        let families = self.fallbacks.families(&order);
        let Some(later) = self.add_variable_edges(&variables, &families, &order) else {
            self.too_many(found);
            return Topology::default();
        };
        let reads = check::Reads {
            plan: self.plan,
            variables: &variables,
            families: &families,
            settled: &self.settled.flags,
        };
        reads.check(&later, found);
        let Some(order) = self.order(found) else {
            return Topology::default();
        };
        self.build_topology(&variables, &families, &order, found)
    }

    fn build_topology(
        self,
        variables: &Variables,
        families: &[u32],
        order: &[u32],
        found: &mut FaultCollector,
    ) -> Topology {
        let rank = order::ranks(order);
        let writers = writers(variables, &rank);
        let check = check::Writers {
            plan: self.plan,
            families,
            settled: &self.settled.flags,
            max_pairs: self.max_edges,
        };
        let pairs = check.pairs(&writers, found);
        let queries: Vec<_> = pairs.iter().map(|(_, pair)| *pair).collect();
        check.report(
            &pairs,
            &reach::reaches(&self.dag, order, &rank, &queries),
            found,
        );
        let weight = order::weights(&self.dag, order);
        Topology {
            dag: self.dag,
            rank,
            weight,
            writers,
        }
    }

    /// Adds an edge unless it exists; returns `false` if there are too many.
    fn add(&mut self, from: u32, to: u32, edge: Edge) -> bool {
        if from == to || self.seen[from as usize] == to + 1 {
            return true;
        }
        self.seen[from as usize] = to + 1;
        self.dag.add_edge(from.into(), to.into(), edge);
        self.dag.edge_count() <= self.max_edges
    }

    /// Returns a topological order of the current edges, or reports a cycle.
    fn order(&self, found: &mut FaultCollector) -> Option<Vec<u32>> {
        let keys = &self.settled.keys;
        let order = levity_graph::sorted(&order::NumberedLinks(&self.dag), |at| keys[at as usize]);
        order
            .map_err(|_| cycle::report(&self.dag, self.plan, found))
            .ok()
    }

    fn after(&self, step: &Step) -> Vec<Option<u32>> {
        step.after
            .iter()
            .map(|after| self.index.get(&after.step).copied())
            .collect()
    }

    /// Returns the steps that are not settled, with their numbers.
    fn open(&self) -> impl Iterator<Item = (u32, &'a Arc<Step>)> + use<'a> {
        let steps = self.plan.steps.iter().enumerate().zip(&self.settled.flags);
        steps
            .filter(|(_, settled)| !**settled)
            .map(|((at, step), _)| (at as u32, step))
    }

    /// Adds the edges of settled steps, and those of `after`, `instead_of` and fallbacks; returns
    /// `false` if there are too many.
    fn add_explicit_edges(&mut self) -> bool {
        let settled = self.settled;
        settled
            .edges
            .iter()
            .all(|(from, to, edge)| self.add(*from, *to, *edge))
            && self
                .open()
                .all(|(at, step)| self.add_stated_edges(at, step))
    }

    /// `k` is the position in `after`, by which the scheduler finds the condition of the edge.
    fn add_stated_edges(&mut self, at: u32, step: &Step) -> bool {
        let after = self.after(step);
        let sources: Vec<_> = self.fallbacks.sources(at).collect();
        let added = after.into_iter().enumerate().all(|(k, from)| {
            let Some(from) = from else { return true };
            let is_fallback = sources.binary_search(&from).is_ok();
            self.add(
                from,
                at,
                Edge {
                    after: Some(k as u32),
                    is_fallback,
                },
            )
        });
        added
            && sources.iter().all(|from| {
                self.add(
                    *from,
                    at,
                    Edge {
                        after: None,
                        is_fallback: true,
                    },
                )
            })
    }

    /// Adds an edge to each successor of a step from all fallbacks for the step, unless the
    /// successor is before them. For example, repeated work follows its judge and is before the
    /// second judge. Returns the number of added edges, or `None` if there are too many.
    fn add_inherited_edges(&mut self, order: &[u32]) -> Option<usize> {
        if self.fallbacks.is_empty() {
            return Some(0);
        }
        let mut queries = Vec::new();
        for (at, step) in self.open() {
            self.mark(at);
            self.fallbacks_before(at, &self.after(step), &mut queries)?;
        }
        let pairs: Vec<_> = queries.iter().map(|(from, to, _)| (*to, *from)).collect();
        let before = reach::reaches(&self.dag, order, &order::ranks(order), &pairs);
        let mut added = 0;
        for ((from, to, edge), before) in queries.into_iter().zip(before) {
            if !before {
                self.dag.add_edge(from.into(), to.into(), edge);
                added += 1;
            }
        }
        (self.dag.edge_count() <= self.max_edges).then_some(added)
    }

    /// Collects all direct and indirect fallbacks for the predecessors of a step. It omits those
    /// that already have an edge to the step, and the step's own family.
    fn fallbacks_before(
        &mut self,
        at: u32,
        after: &[Option<u32>],
        found: &mut Vec<(u32, u32, Edge)>,
    ) -> Option<()> {
        if after.is_empty() {
            return Some(());
        }
        let own = self.fallbacks.all_sources(at, self.max_edges);
        self.examined += own.len();
        if self.examined > self.max_pairs() {
            return None;
        }
        for (k, from) in after.iter().enumerate() {
            let edge = Edge {
                after: Some(k as u32),
                is_fallback: false,
            };
            let mut open: Vec<_> = from
                .iter()
                .copied()
                .filter(|from| !own.contains(from))
                .collect();
            while let Some(of) = open.pop() {
                for fallback in self.fallbacks.of(of).filter(|fallback| *fallback != at) {
                    self.examined += 1;
                    // A fallback that has an edge is an `after` entry itself, or was found before.
                    if self.seen[fallback as usize] != at + 1 {
                        self.seen[fallback as usize] = at + 1;
                        found.push((fallback, at, edge));
                        open.push(fallback);
                    }
                }
                if self.examined > self.max_pairs() || found.len() > self.max_edges {
                    return None;
                }
            }
        }
        Some(())
    }

    /// Returns the maximum number of pairs of steps that are examined.
    fn max_pairs(&self) -> usize {
        self.max_edges.saturating_mul(PAIRS_PER_EDGE)
    }

    /// Adds the edges derived from variables. Returns the pairs of reader and writer in which the
    /// reader is first, or `None` if there are too many.
    fn add_variable_edges(
        &mut self,
        variables: &Variables,
        families: &[u32],
        order: &[u32],
    ) -> Option<Vec<(u32, u32)>> {
        let ranks = order::ranks(order);
        let (mut edges, mut queries) = (Vec::new(), Vec::new());
        for (to, _) in self.open() {
            self.mark(to);
            for variable in &variables.reads[to as usize] {
                let writers = &variables.writers[*variable as usize];
                self.examined += writers.len();
                if self.examined > self.max_pairs() {
                    return None;
                }
                let updates = writers.binary_search(&to).is_ok();
                for from in writers.iter().copied().filter(|from| *from != to) {
                    let alternative = updates && families[from as usize] == families[to as usize];
                    if alternative || self.seen[from as usize] == to + 1 {
                        continue;
                    }
                    self.seen[from as usize] = to + 1;
                    let list = if self.may_lead(to, from, &ranks) {
                        &mut queries
                    } else {
                        &mut edges
                    };
                    list.push((to, from));
                }
            }
            if edges.len() + queries.len() > self.max_edges {
                return None;
            }
        }
        let before = reach::reaches(&self.dag, order, &ranks, &queries);
        let mut later = Vec::new();
        for (pair, before) in queries.into_iter().zip(before) {
            if before {
                later.push(pair);
            } else {
                edges.push(pair);
            }
        }
        edges.sort_unstable();
        for (to, from) in edges {
            self.dag.add_edge(from.into(), to.into(), Edge::default());
        }
        (self.dag.edge_count() <= self.max_edges).then_some(later)
    }

    /// Marks the edges that lead to a step as seen.
    fn mark(&mut self, to: u32) {
        for from in self.dag.neighbors_directed(to.into(), Incoming) {
            self.seen[from.index()] = to + 1;
        }
    }

    /// Returns `true` if the explicit edges may lead from one step to another; it does not
    /// search.
    fn may_lead(&self, from: u32, to: u32, ranks: &[u32]) -> bool {
        ranks[from as usize] < ranks[to as usize]
            && self
                .dag
                .neighbors_directed(from.into(), Outgoing)
                .next()
                .is_some()
            && self
                .dag
                .neighbors_directed(to.into(), Incoming)
                .next()
                .is_some()
    }

    fn too_many(&self, found: &mut FaultCollector) {
        let max_edges = self.max_edges;
        found.push(Fault::new(
            FaultKind::Size,
            format!(
                "the steps depend on each other in more than {max_edges} ways; let one step \
                    collect \
                    what \
                    many write \
                 before many others read it"
            ),
        ));
    }
}
