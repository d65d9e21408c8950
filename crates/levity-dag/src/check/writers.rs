use std::collections::BTreeMap;
use std::sync::Arc;

use crate::fault::Found;
use crate::plan::Plan;

/// Of two steps that write a variable, one comes before the other, or a reducer puts their values together.
pub(crate) struct Writers<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) families: &'a [u32],
    pub(crate) settled: &'a [bool],
    pub(crate) most: usize,
}

/// A variable, and two steps that write it, of which the first has to come before the second.
pub(crate) type Pair<'a> = (&'a Arc<str>, (u32, u32));

impl Writers<'_> {
    /// The pairs that must have an order.
    pub(crate) fn pairs<'w>(
        &self,
        writers: &'w BTreeMap<Arc<str>, Vec<u32>>,
        found: &mut Found,
    ) -> Vec<Pair<'w>> {
        let _ = (self.plan, self.families, self.settled, self.most, writers, found);
        Vec::new()
    }

    /// Tells of those that have none.
    pub(crate) fn tell(&self, pairs: &[Pair], ordered: &[bool], found: &mut Found) {
        let _ = (pairs, ordered, found);
    }
}
