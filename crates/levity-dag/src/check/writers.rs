//! Checks that the last writer of each variable does not depend on timing.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::fault::{Fault, FaultCollector, FaultKind};
use crate::names::short;
use crate::plan::Plan;

/// Checks the writers of each variable: two writers must be ordered, or a reducer must combine
/// their values.
///
/// Steps of one family are alternatives and need no order among themselves. Settled steps are
/// before all others.
pub(crate) struct Writers<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) families: &'a [u32],
    pub(crate) settled: &'a [bool],
    pub(crate) max_pairs: usize,
}

/// A variable and two steps that write it, of which the first must be before the second.
pub(crate) type Pair<'a> = (&'a Arc<str>, (u32, u32));

impl Writers<'_> {
    /// Returns the pairs that must be ordered; `writers` is sorted by rank.
    ///
    /// Consecutive writers of the same family form a group. If every step of a group is before
    /// every step of the next, all pairs are ordered.
    pub(crate) fn pairs<'w>(
        &self,
        writers: &'w BTreeMap<Arc<str>, Vec<u32>>,
        found: &mut FaultCollector,
    ) -> Vec<Pair<'w>> {
        let mut pairs = Vec::new();
        for (name, steps) in writers.iter().filter(|(_, steps)| steps.len() > 1) {
            if self
                .plan
                .variables
                .get(name)
                .is_some_and(|variable| variable.reducer.is_some())
            {
                continue;
            }
            let groups: Vec<_> = steps
                .chunk_by(|a, b| self.families[*a as usize] == self.families[*b as usize])
                .collect();
            for two in groups.windows(2) {
                if pairs.len() + two[0].len() * two[1].len() > self.max_pairs {
                    let message = format!(
                        "variable `{}` has too many writers; give it a reducer",
                        short(name)
                    );
                    found.push(Fault::new(FaultKind::Size, message));
                    return pairs;
                }
                let before = two[0]
                    .iter()
                    .filter(|before| !self.settled[**before as usize]);
                pairs.extend(
                    before.flat_map(|before| {
                        two[1].iter().map(move |after| (name, (*before, *after)))
                    }),
                );
            }
        }
        pairs
    }

    /// Reports the first unordered pair of each variable.
    pub(crate) fn report(&self, pairs: &[Pair], ordered: &[bool], found: &mut FaultCollector) {
        let mut last = None;
        for ((name, (first, second)), _) in
            pairs.iter().zip(ordered).filter(|(_, ordered)| !**ordered)
        {
            if last == Some(*name) {
                continue;
            }
            last = Some(*name);
            found.push_with(|| self.fault(name, *first, *second));
        }
    }

    fn fault(&self, name: &str, first: u32, second: u32) -> Fault {
        let [first, second] = [first, second].map(|at| &self.plan.steps[at as usize].id);
        let name = short(name);
        let message = format!(
            "steps `{first}` and `{second}` both write `{name}`, but their order is undefined; \
                put one after the \
             other, rename one, or give `{name}` a reducer in `variables`, such as `last` for \
             branches of which one runs"
        );
        Fault::at(FaultKind::Write, second, message)
    }
}
