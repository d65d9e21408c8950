/// The dependencies among pieces of work.
///
/// # Contract
/// - [`before`](Self::before) and [`behind`](Self::behind) describe the same links: `a` is before
///   `b` exactly if `b` is behind `a`.
/// - Every number is less than [`count`](Self::count), and no link occurs twice.
/// - The links do not change while a [`Schedule`](crate::Schedule) uses them.
///
/// ```
/// use levity_graph::{Links, sorted};
///
/// /// Each piece follows the one before it.
/// struct Chain(usize);
///
/// impl Links for Chain {
///     fn count(&self) -> usize {
///         self.0
///     }
///
///     fn before(&self, at: u32) -> impl Iterator<Item = u32> + '_ {
///         at.checked_sub(1).into_iter()
///     }
///
///     fn behind(&self, at: u32) -> impl Iterator<Item = u32> + '_ {
///         Some(at + 1).filter(|next| (*next as usize) < self.0).into_iter()
///     }
/// }
///
/// assert_eq!(sorted(&Chain(3), |_| 0), Ok(vec![0, 1, 2]));
/// ```
pub trait Links {
    /// Returns the number of pieces.
    fn count(&self) -> usize;

    /// Returns the direct predecessors of a piece, each once.
    fn before(&self, at: u32) -> impl Iterator<Item = u32> + '_;

    /// Returns the direct successors of a piece, each once.
    fn behind(&self, at: u32) -> impl Iterator<Item = u32> + '_;
}

/// Dependencies as lists of numbers.
///
/// ```
/// use levity_graph::{Edges, Links};
///
/// // The number 9 does not exist, and 0 occurs twice.
/// let edges = Edges::new(vec![vec![], vec![0, 9, 0]]);
/// assert_eq!(edges.before, [vec![], vec![0]]);
/// assert_eq!(edges.behind(0).collect::<Vec<_>>(), [1]);
/// ```
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
