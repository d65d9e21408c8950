use std::cmp::Reverse;
use std::collections::BinaryHeap;

use petgraph::Direction::Incoming;

use super::Dag;

/// A topological order, by these keys among those that are free. `None` when there is a cycle.
pub(super) fn sorted(dag: &Dag, keys: &[(bool, u32)]) -> Option<Vec<u32>> {
    let mut waits: Vec<u32> =
        dag.node_indices().map(|at| dag.edges_directed(at, Incoming).count() as u32).collect();
    let key = |at: usize| Reverse((keys[at], at as u32));
    let mut free: BinaryHeap<_> = (0..waits.len()).filter(|at| waits[*at] == 0).map(key).collect();
    let mut order = Vec::with_capacity(waits.len());
    while let Some(Reverse((_, at))) = free.pop() {
        order.push(at);
        for next in dag.neighbors(at.into()) {
            waits[next.index()] -= 1;
            if waits[next.index()] == 0 {
                free.push(key(next.index()));
            }
        }
    }
    (order.len() == waits.len()).then_some(order)
}

/// The place of each step in an order.
pub(super) fn ranks(order: &[u32]) -> Vec<u32> {
    let mut ranks = vec![0; order.len()];
    for (rank, at) in order.iter().enumerate() {
        ranks[*at as usize] = rank as u32;
    }
    ranks
}

/// How many steps the longest way from each step to an end has, itself included.
pub(super) fn weights(dag: &Dag, order: &[u32]) -> Vec<u32> {
    let mut weights = vec![1; order.len()];
    for at in order.iter().rev() {
        let behind = dag.neighbors((*at).into()).map(|next| weights[next.index()]).max();
        weights[*at as usize] = 1 + behind.unwrap_or(0);
    }
    weights
}
