//! What comes after what.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use super::Delegation;

/// The delegations in an order in which none comes before what it depends on; among those that are free, the order of the plan.
#[derive(Debug)]
pub(crate) struct Order {
    /// Places in the plan.
    pub(crate) order: Vec<usize>,
    /// For each place in the order: those it depends on, as places in the order.
    pub(crate) needs: Vec<Vec<usize>>,
    /// For each place in the order: the delegations of earlier rounds that it depends on.
    pub(crate) earlier: Vec<Vec<usize>>,
}

impl Order {
    /// # Errors
    /// The ids of a circle.
    pub(super) fn of(
        plan: &[Delegation],
        ids: &BTreeMap<&str, usize>,
        done: &BTreeMap<Arc<str>, usize>,
    ) -> Result<Self, Vec<Arc<str>>> {
        let needs: Vec<Vec<usize>> =
            plan.iter().map(|one| places(one, |id| ids.get(&**id).copied())).collect();
        let mut dependents: Vec<Vec<usize>> = vec![Vec::new(); plan.len()];
        for (at, needs) in needs.iter().enumerate() {
            needs.iter().for_each(|need| dependents[*need].push(at));
        }
        let mut left: Vec<usize> = needs.iter().map(Vec::len).collect();
        let mut free: BinaryHeap<Reverse<usize>> =
            (0..plan.len()).filter(|at| left[*at] == 0).map(Reverse).collect();
        let mut order = Vec::with_capacity(plan.len());
        while let Some(Reverse(at)) = free.pop() {
            order.push(at);
            for next in &dependents[at] {
                left[*next] -= 1;
                if left[*next] == 0 {
                    free.push(Reverse(*next));
                }
            }
        }
        if order.len() < plan.len() {
            return Err(circle(plan, &needs, &left));
        }
        let mut place = vec![0; plan.len()];
        order.iter().enumerate().for_each(|(at, one)| place[*one] = at);
        let own = |one: &usize| needs[*one].iter().map(|need| place[*need]).collect();
        let before = |one: &usize| places(&plan[*one], |id| done.get(id).copied());
        let (needs, earlier) = (order.iter().map(own).collect(), order.iter().map(before).collect());
        Ok(Self { order, needs, earlier })
    }
}

fn places(one: &Delegation, find: impl Fn(&Arc<str>) -> Option<usize>) -> Vec<usize> {
    let mut places: Vec<usize> = one.depends_on.iter().filter_map(find).collect();
    places.sort_unstable();
    places.dedup();
    places
}

/// A circle among those that were never free: each of them needs another of them.
fn circle(plan: &[Delegation], needs: &[Vec<usize>], left: &[usize]) -> Vec<Arc<str>> {
    let Some(mut at) = left.iter().position(|left| *left > 0) else { return Vec::new() };
    let mut seen = vec![usize::MAX; plan.len()];
    let mut way = Vec::new();
    while seen[at] == usize::MAX {
        seen[at] = way.len();
        way.push(at);
        match needs[at].iter().find(|need| left[**need] > 0) {
            Some(next) => at = *next,
            None => break,
        }
    }
    way.drain(..seen[at].min(way.len()));
    way.iter().take(20).map(|at| super::short_id(&plan[*at].id)).collect()
}
