/// The pieces of work that come right before and right behind others.
pub trait Links {
    /// The number of pieces.
    fn count(&self) -> usize;

    /// Those right before one, each once.
    fn before(&self, at: u32) -> impl Iterator<Item = u32> + '_;

    /// Those right behind one, each once.
    fn behind(&self, at: u32) -> impl Iterator<Item = u32> + '_;
}

/// Links as lists of numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edges {
    /// Those right before each, in ascending order.
    pub before: Vec<Vec<u32>>,
    /// Those right behind each, in ascending order.
    pub behind: Vec<Vec<u32>>,
}

impl Edges {
    /// Makes links from those right before each. Numbers that nobody has are left out, and so is
    /// what is named twice.
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
