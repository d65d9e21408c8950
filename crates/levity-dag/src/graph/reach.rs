//! Answers many questions of the form "does a path lead from a to b" at once.

use super::Dag;

/// The number of targets in one pass.
const TARGETS_PER_PASS: usize = 256;

type Mask = [u64; TARGETS_PER_PASS / 64];

/// Returns for each pair whether the first step leads to the second; `order` is a topological
/// order.
///
/// Each pass over the edges handles 256 targets, with one bit each. So the cost for hostile plans
/// is a small multiple of their size, whereas a search for each pair would be quadratic.
pub(super) fn reaches(dag: &Dag, order: &[u32], ranks: &[u32], pairs: &[(u32, u32)]) -> Vec<bool> {
    let mut by_target: Vec<usize> = (0..pairs.len()).collect();
    by_target.sort_unstable_by_key(|pair| ranks[pairs[*pair].1 as usize]);
    let mut reached = vec![false; pairs.len()];
    let mut masks = vec![Mask::default(); order.len()];
    let mut rest = by_target.as_slice();
    while !rest.is_empty() {
        rest = pass(dag, order, ranks, pairs, rest, &mut masks, &mut reached);
    }
    reached
}

/// Runs one pass over as many pairs as have 256 targets; returns the remaining pairs.
fn pass<'a>(
    dag: &Dag,
    order: &[u32],
    ranks: &[u32],
    pairs: &[(u32, u32)],
    rest: &'a [usize],
    masks: &mut [Mask],
    reached: &mut [bool],
) -> &'a [usize] {
    let (mut targets, mut taken) = (Vec::with_capacity(TARGETS_PER_PASS), 0);
    for pair in rest {
        let target = pairs[*pair].1;
        if targets.last() != Some(&target) {
            if targets.len() == TARGETS_PER_PASS {
                break;
            }
            targets.push(target);
        }
        taken += 1;
    }
    let (now, later) = rest.split_at(taken);
    let first = now
        .iter()
        .map(|pair| ranks[pairs[*pair].0 as usize])
        .min()
        .unwrap_or(0) as usize;
    let last = targets.last().map_or(0, |target| ranks[*target as usize]) as usize;
    if first > last {
        return later;
    }
    let between = &order[first..=last];
    for at in between {
        masks[*at as usize] = Mask::default();
    }
    for (bit, target) in targets.iter().enumerate() {
        masks[*target as usize][bit / 64] |= 1 << (bit % 64);
    }
    for at in between.iter().rev() {
        let mut mask = masks[*at as usize];
        for next in dag.neighbors((*at).into()) {
            // Steps beyond the last target lead to none, and their masks may be from an earlier
            // pass.
            if ranks[next.index()] as usize <= last {
                let more = &masks[next.index()];
                mask.iter_mut()
                    .zip(more)
                    .for_each(|(mask, more)| *mask |= more);
            }
        }
        masks[*at as usize] = mask;
    }
    let mut bit = 0;
    for pair in now {
        let (from, to) = pairs[*pair];
        bit += usize::from(targets[bit] != to);
        let within = ranks[from as usize] as usize <= last;
        reached[*pair] = within && masks[from as usize][bit / 64] >> (bit % 64) & 1 == 1;
    }
    later
}
