use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::Links;
use crate::order::{as_number, numbers};

/// A schedule of which pieces of work may begin.
///
/// The cost of a piece does not depend on the number of pieces: a settled piece is checked once by
/// each direct successor. Among the pieces that may begin, the one with the highest urgency is
/// next, then the lowest number.
///
/// A piece is waiting, begun, held or settled, and never goes back. Numbers that do not exist are
/// ignored.
///
/// ```
/// use levity_graph::{Edges, Schedule};
///
/// let edges = Edges::new(vec![vec![], vec![0], vec![1]]);
/// let mut schedule = Schedule::new(3);
/// assert_eq!(schedule.open(&edges), [0]);
/// schedule.ready(0, 0);
/// assert_eq!(schedule.next(), Some(0));
/// assert!(schedule.begin(0) && schedule.settle(0));
///
/// // 1 is skipped, so 2 may begin.
/// schedule.release(0, &edges, |at| (at != 1).then_some(5));
/// assert!(schedule.is_settled(1) && schedule.has_ready());
/// assert_eq!(schedule.next(), Some(2));
/// ```
#[derive(Debug)]
pub struct Schedule {
    pieces: Vec<Piece>,
    ready: BinaryHeap<(u32, Reverse<u32>)>,
    unsettled: usize,
    /// A reused buffer for the pieces that a settled piece releases.
    freed: Vec<u32>,
}

/// The state of a piece of work.
#[derive(Clone, Copy, Debug, Default)]
struct Piece {
    phase: Phase,
    /// The number of its direct predecessors that are not settled.
    open: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Waiting,
    Begun,
    /// Settled, but its successors still wait.
    Held,
    Settled,
}

impl Schedule {
    /// Creates a schedule of this many pieces, all waiting.
    pub fn new(count: usize) -> Self {
        let pieces = vec![Piece::default(); count];
        Self {
            pieces,
            ready: BinaryHeap::new(),
            unsettled: count,
            freed: Vec::new(),
        }
    }

    fn phase(&self, at: u32) -> Option<Phase> {
        self.pieces.get(at as usize).map(|piece| piece.phase)
    }

    /// Counts the open dependencies of each waiting piece. Returns the pieces without any; none of
    /// them is [`ready`](Self::ready) yet.
    pub fn open(&mut self, links: &impl Links) -> Vec<u32> {
        self.ready.clear();
        let waiting =
            numbers(self.pieces.len()).filter(|at| self.phase(*at) == Some(Phase::Waiting));
        let waiting: Vec<u32> = waiting.collect();
        let is_open = |at: &u32| self.phase(*at) != Some(Phase::Settled);
        let open: Vec<_> = waiting
            .iter()
            .map(|at| as_number(links.before(*at).filter(is_open).count()))
            .collect();
        for (at, open) in waiting.iter().zip(open) {
            self.pieces[*at as usize].open = open;
        }
        waiting
            .into_iter()
            .filter(|at| self.pieces[*at as usize].open == 0)
            .collect()
    }

    /// Adds a piece to those that may begin: one without open dependencies, or one to retry.
    ///
    /// The same piece may be added several times; [`next`](Self::next) skips it once it is settled.
    pub fn ready(&mut self, at: u32, urgency: u32) {
        self.ready.push((urgency, Reverse(at)));
    }

    /// Returns `true` if a piece may begin.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Removes and returns the most urgent piece that may begin and is not settled.
    #[expect(
        clippy::should_implement_trait,
        reason = "it is not an iterator: the next piece changes as work is settled"
    )]
    pub fn next(&mut self) -> Option<u32> {
        while let Some((_, Reverse(at))) = self.ready.pop() {
            if !self.is_settled(at) {
                return Some(at);
            }
        }
        None
    }

    /// Marks a piece as begun; returns `false` if it began before or is settled.
    pub fn begin(&mut self, at: u32) -> bool {
        let piece = self
            .pieces
            .get_mut(at as usize)
            .filter(|piece| piece.phase == Phase::Waiting);
        piece.map(|piece| piece.phase = Phase::Begun).is_some()
    }

    /// Settles a piece; returns `false` if it was settled before. Call [`release`](Self::release)
    /// to release its successors.
    pub fn settle(&mut self, at: u32) -> bool {
        self.mark(at, Phase::Settled)
    }

    /// Settles a piece but makes its successors wait until [`let_go`](Self::let_go).
    ///
    /// A plan holds a failed step while its planner looks for another way.
    ///
    /// ```
    /// use levity_graph::{Edges, Schedule};
    ///
    /// let edges = Edges::new(vec![vec![], vec![0]]);
    /// let mut schedule = Schedule::new(2);
    /// schedule.open(&edges);
    /// assert!(schedule.hold(0) && schedule.is_held(0));
    /// schedule.let_go(0);
    /// schedule.release(0, &edges, |_| Some(0));
    /// assert_eq!(schedule.next(), Some(1));
    /// ```
    pub fn hold(&mut self, at: u32) -> bool {
        self.mark(at, Phase::Held)
    }

    /// Ends the wait of a held piece's successors. Call [`release`](Self::release) to release them.
    pub fn let_go(&mut self, at: u32) {
        if let Some(piece) = self
            .pieces
            .get_mut(at as usize)
            .filter(|piece| piece.phase == Phase::Held)
        {
            piece.phase = Phase::Settled;
        }
    }

    fn mark(&mut self, at: u32, phase: Phase) -> bool {
        match self.pieces.get_mut(at as usize) {
            Some(piece) if !matches!(piece.phase, Phase::Held | Phase::Settled) => {
                piece.phase = phase;
                self.unsettled -= 1;
                true
            }
            _ => false,
        }
    }

    /// Returns the pieces that are held.
    pub fn held(&self) -> impl Iterator<Item = u32> {
        numbers(self.pieces.len()).filter(|at| self.is_held(*at))
    }

    /// Returns `true` if a piece is held.
    pub fn is_held(&self, at: u32) -> bool {
        self.phase(at) == Some(Phase::Held)
    }

    /// Returns `true` if a piece is settled, held or not.
    pub fn is_settled(&self, at: u32) -> bool {
        matches!(self.phase(at), Some(Phase::Held | Phase::Settled))
    }

    /// Returns `true` if every piece is settled.
    pub fn is_done(&self) -> bool {
        self.unsettled == 0
    }

    /// Releases the successors of a settled piece. `decide` returns the urgency of each piece
    /// without open dependencies, or `None` to skip it. A skipped piece is settled, and its
    /// successors are released in turn.
    ///
    /// Call it once for each settled piece. Calling it before [`open`](Self::open) has no effect,
    /// because no piece has counted its dependencies yet.
    ///
    /// ```
    /// use levity_graph::{Edges, Schedule};
    ///
    /// let edges = Edges::new(vec![vec![], vec![], vec![0, 1]]);
    /// let mut schedule = Schedule::new(3);
    /// schedule.open(&edges);
    /// schedule.settle(0);
    /// schedule.release(0, &edges, |_| Some(0));
    /// assert!(!schedule.has_ready());
    /// schedule.settle(1);
    /// schedule.release(1, &edges, |_| Some(0));
    /// assert_eq!(schedule.next(), Some(2));
    /// ```
    pub fn release(
        &mut self,
        at: u32,
        links: &impl Links,
        mut decide: impl FnMut(u32) -> Option<u32>,
    ) {
        let (mut skipped, mut next, mut at) = (Vec::new(), 0, at);
        let mut freed = std::mem::take(&mut self.freed);
        loop {
            for behind in links.behind(at) {
                let Some(piece) = self.pieces.get_mut(behind as usize) else {
                    continue;
                };
                if piece.phase == Phase::Waiting && piece.open > 0 {
                    piece.open -= 1;
                    freed.extend((piece.open == 0).then_some(behind));
                }
            }
            for behind in freed.drain(..) {
                match decide(behind) {
                    Some(urgency) => self.ready(behind, urgency),
                    None => skipped.extend(self.settle(behind).then_some(behind)),
                }
            }
            match skipped.get(next) {
                Some(skipped) => (at, next) = (*skipped, next + 1),
                None => break,
            }
        }
        self.freed = freed;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Edges, sorted};

    #[test]
    fn held_piece_blocks_successors_until_let_go() {
        let edges = Edges::new(vec![vec![], vec![0]]);
        let mut schedule = Schedule::new(2);
        assert_eq!(schedule.open(&edges), [0]);
        assert!(schedule.hold(0) && !schedule.settle(0));
        assert_eq!(schedule.held().collect::<Vec<_>>(), [0]);
        assert_eq!(schedule.open(&edges), []);
        schedule.let_go(0);
        schedule.release(0, &edges, |_| Some(7));
        assert_eq!((schedule.next(), schedule.held().count()), (Some(1), 0));
    }

    proptest! {
        /// For any order of completion, every piece begins once, after its dependencies, or is
        /// skipped.
        #[test]
        fn every_piece_is_settled_once_after_its_dependencies(
            before in prop::collection::vec(
                prop::collection::vec(any::<prop::sample::Index>(), 0..4),
                1..40,
            ),
            picks in prop::collection::vec(any::<prop::sample::Index>(), 40), skip in 2_u32..9,
        ) {
            let before = before.iter().enumerate().map(|(at, all)| match at {
                0 => Vec::new(),
                _ => all.iter().map(|one| one.index(at) as u32).collect(),
            });
            let edges = Edges::new(before.collect());
            let mut schedule = Schedule::new(edges.before.len());
            let (mut under_way, mut settled) = (Vec::new(), Vec::new());
            for at in schedule.open(&edges) {
                schedule.ready(at, 0);
            }
            for pick in picks.iter().cycle() {
                while let Some(at) = schedule.next() {
                    prop_assert!(edges.before[at as usize].iter().all(|one| settled.contains(one)));
                    schedule.begin(at);
                    under_way.push(at);
                }
                if under_way.is_empty() {
                    break;
                }
                let at = under_way.remove(pick.index(under_way.len()));
                prop_assert!(schedule.settle(at));
                settled.push(at);
                schedule.release(at, &edges, |next| {
                    let skips = next.is_multiple_of(skip);
                    settled.extend(skips.then_some(next));
                    (!skips).then_some(0)
                });
            }
            prop_assert!(schedule.is_done());
            settled.sort_unstable();
            prop_assert_eq!(settled, (0..edges.before.len() as u32).collect::<Vec<_>>());
            prop_assert!(sorted(&edges, |at| at).is_ok());
        }
    }
}
