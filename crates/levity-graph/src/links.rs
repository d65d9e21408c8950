/// The dependencies among pieces of work.
pub trait Links {
    /// Returns the number of pieces.
    fn count(&self) -> usize;

    /// Returns the direct predecessors of a piece, each once.
    fn before(&self, at: u32) -> impl Iterator<Item = u32> + '_;

    /// Returns the direct successors of a piece, each once.
    fn behind(&self, at: u32) -> impl Iterator<Item = u32> + '_;
}

/// Dependencies as lists of numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edges {
    /// The direct predecessors of each piece, in ascending order.
    pub before: Vec<Vec<u32>>,
    /// The direct successors of each piece, in ascending order.
    pub behind: Vec<Vec<u32>>,
}

impl Edges {
    /// Creates dependencies from the direct predecessors of each piece. Invalid numbers and
    /// duplicates are removed.
    pub fn new(mut before: Vec<Vec<u32>>) -> Self {
        let mut behind = vec![Vec::new(); before.len()];
        for (at, before) in (0..).zip(&mut before) {
            before.retain(|one| (*one as usize) < behind.len());
            before.sort_unstable();
            before.dedup();
            before.iter().for_each(|one| behind[*one as usize].push(at));
        }
        Self { before, behind }
    }
}

impl Links for Edges {
    fn count(&self) -> usize {
        self.before.len()
    }

    fn before(&self, at: u32) -> impl Iterator<Item = u32> + '_ {
        self.before.get(at as usize).into_iter().flatten().copied()
    }

    fn behind(&self, at: u32) -> impl Iterator<Item = u32> + '_ {
        self.behind.get(at as usize).into_iter().flatten().copied()
    }
}
