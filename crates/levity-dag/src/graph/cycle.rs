//! Describes cycles in a form that a planner can act on: a short cycle for each component, with the
//! reason of each edge that the plan does not state.

use std::collections::{HashSet, VecDeque};

use petgraph::algo::kosaraju_scc;

use super::{Dag, Edge};
use crate::fault::{Fault, FaultCollector, FaultKind};
use crate::plan::Plan;

/// The maximum number of steps named in a cycle.
const MAX_NAMED: usize = 12;

/// The maximum number of edges followed in search of a short cycle, per component.
const MAX_SEARCHED: usize = 200_000;

/// Reports a cycle in each strongly connected component of the graph.
pub(super) fn report(dag: &Dag, plan: &Plan, found: &mut FaultCollector) {
    let mut components = kosaraju_scc(dag);
    components.retain(|component| component.len() > 1);
    for component in &mut components {
        component.sort_unstable();
    }
    components.sort_unstable();
    for component in components {
        found.push_with(|| {
            let component: Vec<u32> = component.iter().map(|at| at.index() as u32).collect();
            let cycle = shortest(dag, &component);
            let step = cycle.first().and_then(|at| plan.steps.get(*at as usize));
            let fault = Fault::new(FaultKind::Cycle, message(dag, plan, &cycle));
            Fault {
                step: step.map(|step| step.id.clone()),
                ..fault
            }
        });
    }
}

/// Returns the shortest cycle through one of the first steps of a component, within the
/// search limit.
fn shortest(dag: &Dag, component: &[u32]) -> Vec<u32> {
    let mut within = vec![false; dag.node_count()];
    component.iter().for_each(|at| within[*at as usize] = true);
    let (mut best, mut remaining) = (Vec::new(), MAX_SEARCHED);
    for at in component {
        let cycle = shortest_through(dag, &within, *at, &mut remaining);
        if best.is_empty() || (!cycle.is_empty() && cycle.len() < best.len()) {
            best = cycle;
        }
        if remaining == 0 || best.len() == 2 {
            break;
        }
    }
    best
}

/// Returns the shortest cycle through a step.
fn shortest_through(dag: &Dag, within: &[bool], start: u32, remaining: &mut usize) -> Vec<u32> {
    let mut previous = vec![u32::MAX; dag.node_count()];
    let mut queue = VecDeque::from([start]);
    while let Some(at) = queue.pop_front() {
        for next in dag.neighbors(at.into()).map(|next| next.index() as u32) {
            *remaining = remaining.saturating_sub(1);
            if next == start {
                return trace_back(&previous, start, at);
            }
            if within[next as usize] && previous[next as usize] == u32::MAX {
                previous[next as usize] = at;
                queue.push_back(next);
            }
        }
    }
    Vec::new()
}

fn trace_back(previous: &[u32], start: u32, last: u32) -> Vec<u32> {
    let mut cycle = vec![last];
    let mut at = last;
    while at != start {
        at = previous[at as usize];
        cycle.push(at);
    }
    cycle.reverse();
    cycle
}

fn message(dag: &Dag, plan: &Plan, cycle: &[u32]) -> String {
    let id = |at: &u32| {
        plan.steps
            .get(*at as usize)
            .map_or("", |step| step.id.as_str())
    };
    let mut names: Vec<String> = cycle
        .iter()
        .take(MAX_NAMED)
        .map(|at| id(at).to_owned())
        .collect();
    if cycle.len() > MAX_NAMED {
        names.push(format!("({} more)", cycle.len() - MAX_NAMED));
    }
    names.extend(cycle.first().map(|at| id(at).to_owned()));
    let round = names.join(" -> ");
    let reasons = edge_reasons(dag, plan, cycle);
    format!("the steps form a cycle: `{round}`{reasons}; remove one of these edges")
}

/// Explains the edges of a cycle that no `after` lists.
fn edge_reasons(dag: &Dag, plan: &Plan, cycle: &[u32]) -> String {
    let mut reasons = Vec::new();
    let next = cycle.iter().cycle().skip(1);
    for (from, to) in cycle.iter().zip(next).take(MAX_NAMED) {
        let edge = dag
            .find_edge((*from).into(), (*to).into())
            .and_then(|edge| dag.edge_weight(edge));
        let (Some(source), Some(target)) =
            (plan.steps.get(*from as usize), plan.steps.get(*to as usize))
        else {
            continue;
        };
        if let Some(Edge {
            after: None,
            is_fallback: true,
        }) = edge
        {
            reasons.push(format!("`{}` is a fallback for `{}`", target.id, source.id));
        } else if let Some(Edge { after: None, .. }) = edge {
            let writes: HashSet<_> = source.writes.iter().collect();
            let name = target.needs().find(|name| writes.contains(name));
            reasons.extend(name.map(|name| {
                format!(
                    "`{}` reads `{name}`, which `{}` writes",
                    target.id, source.id
                )
            }));
        }
    }
    if reasons.is_empty() {
        String::new()
    } else {
        format!(" ({})", reasons.join(", "))
    }
}
