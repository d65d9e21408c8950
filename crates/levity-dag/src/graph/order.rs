//! Computes orders and priorities of steps from the edges.

use levity_graph::Links;

use super::Dag;

/// The links of a graph between step numbers.
pub(crate) struct NumberedLinks<'a>(pub(super) &'a Dag);

impl Links for NumberedLinks<'_> {
    fn count(&self) -> usize {
        self.0.node_count()
    }

    fn before(&self, at: u32) -> impl Iterator<Item = u32> + '_ {
        self.0
            .neighbors_directed(at.into(), petgraph::Incoming)
            .map(|before| before.index() as u32)
    }

    fn behind(&self, at: u32) -> impl Iterator<Item = u32> + '_ {
        self.0
            .neighbors(at.into())
            .map(|behind| behind.index() as u32)
    }
}

/// Returns the position of each step in an order.
pub(super) fn ranks(order: &[u32]) -> Vec<u32> {
    let mut ranks = vec![0; order.len()];
    for (rank, at) in order.iter().enumerate() {
        ranks[*at as usize] = rank as u32;
    }
    ranks
}

/// Returns the number of steps on the longest path from each step to an end, including itself.
pub(super) fn weights(dag: &Dag, order: &[u32]) -> Vec<u32> {
    let mut weights = vec![1; order.len()];
    for at in order.iter().rev() {
        let behind = dag
            .neighbors((*at).into())
            .map(|next| weights[next.index()])
            .max();
        weights[*at as usize] = 1 + behind.unwrap_or(0);
    }
    weights
}
