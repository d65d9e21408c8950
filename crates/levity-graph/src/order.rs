use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::Links;

/// Returns an order in which every piece follows its dependencies; among independent pieces, by key
/// and then by number.
///
/// The cost is linear in the number of links, times the logarithm of the number of pieces.
///
/// ```
/// use levity_graph::{Edges, find_cycle, sorted};
///
/// // 0 waits for 1; among the others, the key decides.
/// let edges = Edges::new(vec![vec![1], vec![], vec![]]);
/// assert_eq!(sorted(&edges, std::cmp::Reverse), Ok(vec![2, 1, 0]));
///
/// let edges = Edges::new(vec![vec![1], vec![0], vec![1]]);
/// let stuck = sorted(&edges, |at| at).unwrap_err();
/// assert_eq!((&*stuck, find_cycle(&edges, &stuck)), (&[0, 1, 2][..], vec![0, 1]));
/// ```
///
/// # Errors
/// Returns the numbers of all pieces in a cycle or after one, in ascending order, if there is a
/// cycle.
pub fn sorted<K: Ord>(links: &impl Links, key: impl Fn(u32) -> K) -> Result<Vec<u32>, Vec<u32>> {
    let count = links.count();
    let mut open: Vec<u32> = numbers(count)
        .map(|at| as_number(links.before(at).count()))
        .collect();
    let entry = |at: u32| Reverse((key(at), at));
    let mut free: BinaryHeap<_> = numbers(count)
        .filter(|at| open[*at as usize] == 0)
        .map(entry)
        .collect();
    let mut order = Vec::with_capacity(count);
    while let Some(Reverse((_, at))) = free.pop() {
        order.push(at);
        for behind in links.behind(at) {
            let open = &mut open[behind as usize];
            *open -= 1;
            if *open == 0 {
                free.push(entry(behind));
            }
        }
    }
    match order.len() == count {
        true => Ok(order),
        false => Err(numbers(count).filter(|at| open[*at as usize] > 0).collect()),
    }
}

/// Returns one cycle among the pieces that [`sorted`] could not order, each followed by one of its
/// dependencies.
///
/// `stuck` is the error of [`sorted`], in ascending order. The result is empty if `stuck` is.
///
/// ```
/// use levity_graph::{Edges, find_cycle, sorted};
///
/// let edges = Edges::new(vec![vec![0]]);
/// let stuck = sorted(&edges, |at| at).unwrap_err();
/// assert_eq!(find_cycle(&edges, &stuck), [0]);
/// ```
pub fn find_cycle(links: &impl Links, stuck: &[u32]) -> Vec<u32> {
    let mut place = vec![None; links.count()];
    let (mut path, mut next) = (Vec::new(), stuck.first().copied());
    while let Some(at) = next {
        if let Some(first) = place[at as usize] {
            return path.split_off(first);
        }
        place[at as usize] = Some(path.len());
        path.push(at);
        // Every stuck piece waits for another stuck piece.
        next = links
            .before(at)
            .find(|before| stuck.binary_search(before).is_ok());
    }
    Vec::new()
}

pub(crate) fn numbers(count: usize) -> std::ops::Range<u32> {
    0..as_number(count)
}

pub(crate) fn as_number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Edges;

    #[test]
    fn order_prefers_lower_key_then_lower_number() {
        let edges = Edges::new(vec![vec![2], vec![], vec![], vec![]]);
        assert_eq!(sorted(&edges, |_| 0), Ok(vec![1, 2, 0, 3]));
        assert_eq!(
            sorted(&edges, |at| u32::from(at == 1)),
            Ok(vec![2, 0, 3, 1])
        );
    }

    #[test]
    fn cycle_excludes_pieces_after_it() {
        for (before, stuck, cycle) in [
            (vec![vec![0]], vec![0], vec![0]),
            (
                vec![vec![1], vec![2], vec![1], vec![]],
                vec![0, 1, 2],
                vec![1, 2],
            ),
            (
                vec![vec![], vec![3, 0], vec![1], vec![2]],
                vec![1, 2, 3],
                vec![1, 3, 2],
            ),
        ] {
            let edges = Edges::new(before);
            assert_eq!(sorted(&edges, |at| at), Err(stuck.clone()));
            assert_eq!(find_cycle(&edges, &stuck), cycle);
        }
    }
}
