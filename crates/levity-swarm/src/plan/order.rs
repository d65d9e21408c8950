//! The order of delegations.
//!
//! The order decides the order of reports and of messages on the bus. Workers still run as soon as
//! their own dependencies are done.

use std::collections::BTreeMap;
use std::sync::Arc;

use levity_graph::{Edges, find_cycle, sorted};

use super::Delegation;

/// The delegations in a topological order. Independent delegations stay in plan order.
#[derive(Debug)]
pub(crate) struct Order {
    /// The positions in the plan.
    pub(crate) order: Vec<u32>,
    /// For each position in the order, its dependencies as positions in the order.
    pub(crate) needs: Vec<Vec<u32>>,
    /// For each position in the order, its dependencies of earlier rounds.
    pub(crate) earlier: Vec<Vec<usize>>,
}

impl Order {
    /// Sorts the delegations of a plan.
    ///
    /// # Errors
    /// Returns the ids of a cycle.
    pub(super) fn of(
        plan: &[Delegation],
        ids: &BTreeMap<&str, u32>,
        done: &BTreeMap<Arc<str>, usize>,
    ) -> Result<Self, Vec<Arc<str>>> {
        /// The maximum number of delegations named in a cycle.
        const MAX_NAMED: usize = 20;
        let edges = Edges::new(
            plan.iter()
                .map(|one| places(one, |id| ids.get(&**id).copied()))
                .collect(),
        );
        let order = sorted(&edges, |at| at).map_err(|stuck| {
            let circle = find_cycle(&edges, &stuck).into_iter().take(MAX_NAMED);
            circle
                .map(|at| super::short_id(&plan[at as usize].id))
                .collect::<Vec<_>>()
        })?;
        let mut place = vec![0; plan.len()];
        (0..)
            .zip(&order)
            .for_each(|(at, one)| place[*one as usize] = at);
        let own = |one: &u32| {
            edges.before[*one as usize]
                .iter()
                .map(|need| place[*need as usize])
                .collect()
        };
        let before = |one: &u32| places(&plan[*one as usize], |id| done.get(id).copied());
        let (needs, earlier) = (
            order.iter().map(own).collect(),
            order.iter().map(before).collect(),
        );
        Ok(Self {
            order,
            needs,
            earlier,
        })
    }
}

fn places<T: Ord>(one: &Delegation, find: impl Fn(&Arc<str>) -> Option<T>) -> Vec<T> {
    let mut places: Vec<T> = one.depends_on.iter().filter_map(find).collect();
    places.sort_unstable();
    places.dedup();
    places
}
