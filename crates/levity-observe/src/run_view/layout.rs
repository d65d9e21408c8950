//! A layered layout for the nodes of one group.
//!
//! The layer of a node is the length of the longest path to it. The rows within each layer are
//! sorted by the mean row of the neighbours, in a few sweeps in both directions. The cost is
//! n log n in the number of nodes and edges.

/// The number of sweeps that sort the rows, in each direction.
const SWEEPS: usize = 3;

/// Returns the layer and the row of each node. Edges lead from the first node to the second; those
/// that close a cycle are ignored.
pub(crate) fn layout(count: usize, edges: &[(usize, usize)]) -> Vec<(u32, u32)> {
    let (mut before, mut after) = (vec![Vec::new(); count], vec![Vec::new(); count]);
    for &(from, to) in edges {
        if from != to && from < count && to < count {
            after[from].push(to);
            before[to].push(from);
        }
    }
    let layer_of = layers(&before, &after);
    let depth = layer_of.iter().max().map_or(0, |deepest| deepest + 1);
    let mut layers = vec![Vec::new(); depth];
    for (node, layer) in layer_of.iter().enumerate() {
        layers[*layer].push(node);
    }
    let mut rows = vec![0_usize; count];
    for layer in &layers {
        number(layer, &mut rows);
    }
    for _ in 0..SWEEPS {
        for layer in &mut layers {
            sort(layer, &before, &mut rows);
        }
        for layer in layers.iter_mut().rev() {
            sort(layer, &after, &mut rows);
        }
    }
    let place = |node: usize| (layer_of[node] as u32, rows[node] as u32);
    (0..count).map(place).collect()
}

/// Returns the length of the longest path to each node. Nodes of a cycle come after all others that
/// lead to them.
fn layers(before: &[Vec<usize>], after: &[Vec<usize>]) -> Vec<usize> {
    let mut open: Vec<usize> = before.iter().map(Vec::len).collect();
    let mut layer = vec![0; before.len()];
    let mut ready: Vec<usize> = (0..before.len()).filter(|node| open[*node] == 0).collect();
    let mut next = 0;
    while let Some(&node) = ready.get(next) {
        next += 1;
        for &follower in &after[node] {
            layer[follower] = layer[follower].max(layer[node] + 1);
            open[follower] -= 1;
            if open[follower] == 0 {
                ready.push(follower);
            }
        }
    }
    layer
}

/// Sorts a layer by the mean row of each node's neighbours. Nodes without neighbours keep their
/// row.
fn sort(layer: &mut [usize], neighbours: &[Vec<usize>], rows: &mut [usize]) {
    let mean = |node: usize| {
        let near = &neighbours[node];
        match near.len() {
            0 => rows[node] as f64,
            count => near.iter().map(|near| rows[*near] as f64).sum::<f64>() / count as f64,
        }
    };
    let mut keyed: Vec<(f64, usize)> = layer.iter().map(|node| (mean(*node), *node)).collect();
    keyed.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    for (place, (_, node)) in layer.iter_mut().zip(keyed) {
        *place = node;
    }
    number(layer, rows);
}

fn number(layer: &[usize], rows: &mut [usize]) {
    for (row, node) in layer.iter().enumerate() {
        rows[*node] = row;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_places_a_diamond_in_three_layers() {
        let places = layout(4, &[(0, 1), (0, 2), (1, 3), (2, 3)]);
        assert_eq!(places, [(0, 0), (1, 0), (1, 1), (2, 0)]);
    }

    #[test]
    fn layout_avoids_a_crossing() {
        // 0 leads to 3, and 1 leads to 2.
        let places = layout(4, &[(0, 3), (1, 2)]);
        assert_eq!(places[0].1, places[3].1);
        assert_eq!(places[1].1, places[2].1);
    }

    #[test]
    fn layout_survives_cycles_and_unknown_nodes() {
        let places = layout(3, &[(0, 1), (1, 2), (2, 1), (1, 1), (9, 0), (0, 9)]);
        assert_eq!(places.len(), 3);
        assert!(layout(0, &[]).is_empty());
    }

    #[test]
    fn each_place_is_used_once() {
        let edges: Vec<_> = (0..1_000).map(|node| (node / 3, node)).collect();
        let places = layout(1_000, &edges);
        let used: std::collections::BTreeSet<_> = places.iter().collect();
        assert_eq!(used.len(), 1_000);
        for (from, to) in edges.into_iter().filter(|(from, to)| from != to) {
            assert!(places[from].0 < places[to].0);
        }
    }
}
