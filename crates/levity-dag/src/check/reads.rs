use crate::fault::Found;
use crate::graph::Variables;
use crate::plan::Plan;

/// Everything that is read is written before, or given.
pub(crate) struct Reads<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) variables: &'a Variables<'a>,
    pub(crate) settled: &'a [bool],
}

impl Reads<'_> {
    /// `later` has the pairs of a reader and a writer that comes after it.
    pub(crate) fn check(&self, later: &[(u32, u32)], found: &mut Found) {
        let _ = (self.plan, self.variables, self.settled, later, found);
    }
}
