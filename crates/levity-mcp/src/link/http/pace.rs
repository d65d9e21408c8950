//! Whether connections to a server are kept and used again.
//!
//! They are, as a rule: a new one costs a round trip, or several with TLS. But a server that leaves
//! Nagle's algorithm on and writes an answer in two pieces holds the second back until our kernel
//! acknowledges the first, which on a connection in use it does some 40 ms late. Such a server
//! answers faster on a new connection each time. That is found out by measuring: where answers to
//! one kind of request are slow again and again, some go by a new connection, and when each of
//! those is much faster, all do from then on.

use std::collections::HashMap;
use std::time::Duration;

use levity_core::Timestamp;

use super::call::Caller;

/// An answer that takes less than this has not been held back.
const SLOW: Duration = Duration::from_millis(35);
/// A new connection has to save this much to count as faster.
const SAVED: Duration = Duration::from_millis(25);
/// Slow answers in a row before a new connection is tried.
const IN_A_ROW: u32 = 3;
/// Tries of a new connection that have to be faster, all of them, before it is used for good.
const WINS: u32 = 2;
/// Kinds of request that are watched at once.
const KINDS: usize = 64;

/// By which connection a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// One that is kept.
    Kept,
    /// A new one.
    New,
}

#[derive(Debug, Default)]
pub(super) struct Pace {
    kinds: HashMap<u64, Kind>,
    new_for_good: bool,
}

/// What was seen of one kind of request.
#[derive(Clone, Copy, Debug, Default)]
struct Kind {
    slow: u32,
    /// The fastest of the slow answers in a row.
    least: Duration,
    wins: u32,
    /// Slow answers that are let go by before the next try.
    pause: u32,
    losses: u32,
}

impl Pace {
    /// By which connection a request of this kind goes now.
    fn way(&self, kind: u64) -> Way {
        let try_new = |kind: &Kind| {
            kind.pause == 0 && (kind.slow >= IN_A_ROW || (kind.wins > 0 && kind.slow > 0))
        };
        match self.new_for_good || self.kinds.get(&kind).is_some_and(try_new) {
            true => Way::New,
            false => Way::Kept,
        }
    }

    /// Takes in how long a request of this kind took to its answer.
    fn took(&mut self, kind: u64, way: Way, time: Duration) {
        if self.new_for_good {
            return;
        }
        if self.kinds.len() >= KINDS && !self.kinds.contains_key(&kind) {
            self.kinds.clear();
        }
        let seen = self.kinds.entry(kind).or_default();
        match way {
            Way::Kept => seen.kept(time),
            Way::New => seen.tried(time),
        }
        if seen.wins >= WINS {
            self.new_for_good = true;
            self.kinds = HashMap::new();
        }
    }
}

/// Measures one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timer {
    kind: u64,
    way: Way,
    began: Timestamp,
}

impl Timer {
    /// A request of this kind begins.
    pub(super) fn start(caller: &Caller, kind: u64) -> Self {
        Self {
            kind,
            way: caller.pace().way(kind),
            began: caller.world.now(),
        }
    }

    pub(super) fn way(&self) -> Way {
        self.way
    }

    /// Its answer is here.
    pub(super) fn stop(self, caller: &Caller) {
        caller
            .pace()
            .took(self.kind, self.way, caller.world.now().since(self.began));
    }
}

impl Kind {
    fn kept(&mut self, time: Duration) {
        if time < SLOW {
            *self = Self {
                losses: self.losses,
                ..Self::default()
            };
            return;
        }
        self.pause = self.pause.saturating_sub(1);
        self.least = if self.slow == 0 {
            time
        } else {
            self.least.min(time)
        };
        self.slow = self.slow.saturating_add(1);
    }

    fn tried(&mut self, time: Duration) {
        // Requests that ran side by side may have been sent by a new connection too: one try counts
        // once.
        if self.slow == 0 {
            return;
        }
        self.slow = 0;
        if time + SAVED <= self.least {
            self.wins += 1;
        } else {
            self.wins = 0;
            // The request is slow by itself: the more often that was seen, the longer until the
            // next try.
            self.losses = (self.losses + 1).min(8);
            self.pause = 8 << self.losses;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs calls of one kind, each taking what the way to it says, and returns how many went by a
    /// new connection.
    fn run(pace: &mut Pace, calls: usize, kept: u64, new: u64) -> usize {
        let mut tried = 0;
        for _ in 0..calls {
            let way = pace.way(1);
            tried += usize::from(way == Way::New);
            pace.took(
                1,
                way,
                Duration::from_millis(if way == Way::New { new } else { kept }),
            );
        }
        tried
    }

    #[test]
    fn a_server_that_stalls_on_kept_connections_gets_new_ones_for_good() {
        let mut pace = Pace::default();
        assert_eq!(run(&mut pace, 6, 44, 1), 2);
        assert_eq!(pace.way(1), Way::New);
        assert_eq!(pace.way(2), Way::New);
    }

    #[test]
    fn a_fast_server_is_never_tried() {
        assert_eq!(run(&mut Pace::default(), 1000, 2, 1), 0);
    }

    #[test]
    fn a_slow_tool_costs_few_tries_and_changes_nothing() {
        let mut pace = Pace::default();
        assert!(run(&mut pace, 1000, 100, 90) < 10);
        assert!(run(&mut pace, 1000, 100, 250) < 10);
        assert_eq!(pace.way(2), Way::Kept);
    }

    #[test]
    fn one_lucky_try_is_not_enough() {
        let mut pace = Pace::default();
        run(&mut pace, 4, 100, 1);
        assert!(run(&mut pace, 500, 100, 100) > 0);
        assert!(!pace.new_for_good);
    }

    #[test]
    fn few_kinds_are_kept_in_mind() {
        let mut pace = Pace::default();
        (0..10_000).for_each(|kind| pace.took(kind, Way::Kept, SLOW));
        assert!(pace.kinds.len() <= KINDS);
    }
}
