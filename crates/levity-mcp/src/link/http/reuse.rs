//! The decision whether connections to a server are reused.
//!
//! Connections are normally reused, because a new one costs a round trip, or several with TLS.
//! However, a server that leaves Nagle's algorithm on and writes a response in two pieces delays
//! the second piece. It waits until the client's kernel acknowledges the first one, which takes
//! about 40 ms on a reused connection. Such a server responds faster on new connections. This
//! module detects that by measurement: if responses to one kind of request are slow repeatedly,
//! some requests use a new connection. If each of those is much faster, all later requests do the
//! same.

use std::collections::HashMap;
use std::time::Duration;

use levity_core::Timestamp;

use super::call::Caller;

/// A response below this time was not delayed.
const SLOW: Duration = Duration::from_millis(35);
/// The minimum time that a new connection must save to count as faster.
const MIN_SAVING: Duration = Duration::from_millis(25);
/// The number of consecutive slow responses before a new connection is tried.
const SLOW_STREAK: u32 = 3;
/// The number of consecutive faster attempts before new connections are always used.
const REQUIRED_WINS: u32 = 2;
/// The maximum number of kinds of request that are measured at once.
const MAX_KINDS: usize = 64;

/// The kind of connection for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionMode {
    /// A reused connection of the pool.
    Reused,
    /// A new connection per request.
    New,
}

#[derive(Debug, Default)]
pub(super) struct ReuseTracker {
    kinds: HashMap<u64, KindStats>,
    always_new: bool,
}

/// The measurements of one kind of request.
#[derive(Clone, Copy, Debug, Default)]
struct KindStats {
    slow: u32,
    /// The fastest of the consecutive slow responses.
    fastest: Duration,
    wins: u32,
    /// The number of slow responses to skip before the next attempt.
    pause: u32,
    losses: u32,
}

impl ReuseTracker {
    /// Returns the kind of connection for a request now.
    fn mode(&self, kind: u64) -> ConnectionMode {
        let try_new = |kind: &KindStats| {
            kind.pause == 0 && (kind.slow >= SLOW_STREAK || (kind.wins > 0 && kind.slow > 0))
        };
        match self.always_new || self.kinds.get(&kind).is_some_and(try_new) {
            true => ConnectionMode::New,
            false => ConnectionMode::Reused,
        }
    }

    /// Records the response time of a request.
    fn record(&mut self, kind: u64, mode: ConnectionMode, time: Duration) {
        if self.always_new {
            return;
        }
        if self.kinds.len() >= MAX_KINDS && !self.kinds.contains_key(&kind) {
            self.kinds.clear();
        }
        let stats = self.kinds.entry(kind).or_default();
        match mode {
            ConnectionMode::Reused => stats.record_reused(time),
            ConnectionMode::New => stats.record_new(time),
        }
        if stats.wins >= REQUIRED_WINS {
            self.always_new = true;
            self.kinds = HashMap::new();
        }
    }
}

/// A measurement of one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timer {
    kind: u64,
    mode: ConnectionMode,
    started: Timestamp,
}

impl Timer {
    /// Starts the measurement of a request.
    pub(super) fn start(caller: &Caller, kind: u64) -> Self {
        Self {
            kind,
            mode: caller.reuse().mode(kind),
            started: caller.world.now(),
        }
    }

    pub(super) fn mode(&self) -> ConnectionMode {
        self.mode
    }

    /// Ends the measurement when the response has arrived.
    pub(super) fn stop(self, caller: &Caller) {
        caller
            .reuse()
            .record(self.kind, self.mode, caller.world.now().since(self.started));
    }
}

impl KindStats {
    /// Records a response on a reused connection. A fast one ends the row of slow ones.
    fn record_reused(&mut self, time: Duration) {
        if time < SLOW {
            *self = Self {
                losses: self.losses,
                ..Self::default()
            };
            return;
        }
        self.pause = self.pause.saturating_sub(1);
        self.fastest = if self.slow == 0 {
            time
        } else {
            self.fastest.min(time)
        };
        self.slow = self.slow.saturating_add(1);
    }

    /// Records an attempt with a new connection: a win if it saved 25 ms, else a longer pause of
    /// attempts.
    fn record_new(&mut self, time: Duration) {
        // Concurrent requests may also have used a new connection, but one attempt counts only
        // once.
        if self.slow == 0 {
            return;
        }
        self.slow = 0;
        if time + MIN_SAVING <= self.fastest {
            self.wins += 1;
        } else {
            self.wins = 0;
            // The request itself is slow. The more often that happens, the longer the delay until
            // the next attempt.
            self.losses = (self.losses + 1).min(8);
            self.pause = 8 << self.losses;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs calls of one kind with the given times per kind of connection, and returns the number
    /// of new connections.
    fn run(tracker: &mut ReuseTracker, calls: usize, reused: u64, new: u64) -> usize {
        let mut new_connections = 0;
        for _ in 0..calls {
            let mode = tracker.mode(1);
            new_connections += usize::from(mode == ConnectionMode::New);
            tracker.record(
                1,
                mode,
                Duration::from_millis(if mode == ConnectionMode::New {
                    new
                } else {
                    reused
                }),
            );
        }
        new_connections
    }

    #[test]
    fn server_with_delayed_responses_always_gets_new_connections() {
        let mut tracker = ReuseTracker::default();
        assert_eq!(run(&mut tracker, 6, 44, 1), 2);
        assert_eq!(tracker.mode(1), ConnectionMode::New);
        assert_eq!(tracker.mode(2), ConnectionMode::New);
    }

    #[test]
    fn fast_server_keeps_reused_connections() {
        assert_eq!(run(&mut ReuseTracker::default(), 1000, 2, 1), 0);
    }

    #[test]
    fn slow_tool_causes_few_new_connections() {
        let mut tracker = ReuseTracker::default();
        assert!(run(&mut tracker, 1000, 100, 90) < 10);
        assert!(run(&mut tracker, 1000, 100, 250) < 10);
        assert_eq!(tracker.mode(2), ConnectionMode::Reused);
    }

    #[test]
    fn single_faster_attempt_is_not_enough() {
        let mut tracker = ReuseTracker::default();
        run(&mut tracker, 4, 100, 1);
        assert!(run(&mut tracker, 500, 100, 100) > 0);
        assert!(!tracker.always_new);
    }

    #[test]
    fn number_of_measured_kinds_is_bounded() {
        let mut tracker = ReuseTracker::default();
        (0..10_000).for_each(|kind| tracker.record(kind, ConnectionMode::Reused, SLOW));
        assert!(tracker.kinds.len() <= MAX_KINDS);
    }
}
