//! The state that all requests with the same key share in this process.
//!
//! A sliding window records each request with its time and tokens. The earliest time for the next
//! request follows from the window alone, so only the first call of the queue computes it and
//! sleeps; the others wait to be notified. This keeps the order of arrival, and a large request is
//! not overtaken by small ones.
//!
//! All methods are synchronous and take the time as a parameter. Only [`QueueSlot::wait_for_turn`]
//! waits, and it holds no lock while it does. `last` and the window may lie in the future after the
//! clock was set back; [`State::prune`] corrects that.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use levity_core::{Timestamp, World};
use tokio::sync::Notify;

use super::Rate;

/// The period over which rates are counted.
const WINDOW: Duration = Duration::from_secs(60);

/// The limiter of each key that is in use.
///
/// Weak references: a limiter lives as long as a layer uses it, and `shared` removes dead entries.
static LIMITERS: LazyLock<Mutex<HashMap<String, Weak<Limiter>>>> = LazyLock::new(Mutex::default);

/// The limiter of one key. Its lock is held only for short computations.
#[derive(Debug, Default)]
pub(super) struct Limiter(Mutex<State>);

/// The window, the queue and the next number of a call.
#[derive(Debug, Default)]
struct State {
    /// The requests of the last minute, oldest first.
    sent: VecDeque<Sent>,
    /// The time of the last request.
    last: Option<Timestamp>,
    /// A retry delay from the provider: the time of its report, and the time until which it holds.
    blocked: Option<(Timestamp, Timestamp)>,
    /// The waiting calls, in order of arrival.
    queue: VecDeque<Waiter>,
    next: u64,
}

/// A request in the window, found by its number when its usage is known.
#[derive(Clone, Debug)]
struct Sent {
    id: u64,
    at: Timestamp,
    tokens: u64,
}

/// A call in the queue; `first` is notified when it becomes the first one.
#[derive(Debug)]
struct Waiter {
    id: u64,
    tokens: u64,
    first: Arc<Notify>,
}

impl Limiter {
    /// Returns the limiter for `key`. All callers in this process share it while one of them holds
    /// it.
    pub(super) fn shared(key: &str) -> Arc<Self> {
        let mut all = LIMITERS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(limiter) = all.get(key).and_then(Weak::upgrade) {
            return limiter;
        }
        all.retain(|_, limiter| limiter.strong_count() > 0);
        let limiter = Arc::new(Self::default());
        all.insert(key.to_owned(), Arc::downgrade(&limiter));
        limiter
    }

    /// Adds a call to the queue and estimates its wait. Returns `None` if the queue is full.
    pub(super) fn enqueue(
        self: &Arc<Self>,
        tokens: u64,
        rate: &Rate,
        now: Timestamp,
    ) -> Option<QueueSlot> {
        let mut state = self.state();
        let full = state.queue.len() >= rate.max_waiting;
        // A call that need not wait is admitted even if no call may wait.
        if full && !state.queue.is_empty() {
            return None;
        }
        state.next += 1;
        let (id, first) = (state.next, Arc::new(Notify::new()));
        state.queue.push_back(Waiter {
            id,
            tokens,
            first: first.clone(),
        });
        let expected = state.expected(rate, now);
        if full && !expected.is_zero() {
            state.queue.pop_back();
            return None;
        }
        Some(QueueSlot {
            limiter: self.clone(),
            id,
            first,
            expected,
        })
    }

    /// Replaces the estimated tokens of a request with the actual count.
    ///
    /// A request that has left the window is ignored.
    pub(super) fn record_usage(&self, id: u64, tokens: u64) {
        let mut state = self.state();
        if let Some(sent) = state.sent.iter_mut().find(|sent| sent.id == id) {
            sent.tokens = tokens;
        }
    }

    /// Blocks all requests for the given time.
    ///
    /// A block never becomes shorter: of two delays, the later end holds.
    pub(super) fn block_for(&self, time: Duration, now: Timestamp) {
        let mut state = self.state();
        let until = state
            .blocked
            .map_or(now, |(_, until)| until)
            .max(now.after(time));
        state.blocked = Some((now, until));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Removes requests that are more than a minute old. It also caps all times at `now`, so that
    /// no call waits for a clock that was set back to catch up.
    fn prune(&mut self, now: Timestamp) {
        while self
            .sent
            .front()
            .is_some_and(|sent| now.since(sent.at) >= WINDOW)
        {
            self.sent.pop_front();
        }
        for sent in self.sent.iter_mut().rev().take_while(|sent| sent.at > now) {
            sent.at = now;
        }
        self.last = self.last.map(|last| last.min(now));
        self.blocked = self
            .blocked
            .filter(|(reported, until)| *reported <= now && *until > now);
    }

    /// Returns the earliest time from `now` on at which a request of this many tokens may be sent.
    ///
    /// The result is the latest of four times: the minimum gap after the last request, the end of a
    /// block, the time when the window has room for another request, and for its tokens.
    fn earliest_send(&self, tokens: u64, rate: &Rate, now: Timestamp) -> Timestamp {
        let gap = self.last.map(|last| last.after(rate.min_interval));
        let mut earliest_send = now
            .max(gap.unwrap_or(now))
            .max(self.blocked.map_or(now, |(_, until)| until));
        if let Some(limit) = rate.requests {
            let limit = usize::try_from(limit.max(1)).unwrap_or(usize::MAX);
            let nth = self
                .sent
                .len()
                .checked_sub(limit)
                .and_then(|at| self.sent.get(at));
            earliest_send = earliest_send.max(nth.map_or(now, |sent| sent.at.after(WINDOW)));
        }
        match rate.tokens {
            Some(limit) => earliest_send.max(self.tokens_free_at(tokens, limit, now)),
            None => earliest_send,
        }
    }

    /// Returns the time at which enough tokens have left the window. A request larger than the
    /// whole window is admitted once the window is empty.
    fn tokens_free_at(&self, tokens: u64, limit: u64, now: Timestamp) -> Timestamp {
        let mut used = self.sent.iter().fold(tokens.min(limit), |sum, sent| {
            sum.saturating_add(sent.tokens)
        });
        let mut earliest_send = now;
        for sent in &self.sent {
            if used <= limit {
                break;
            }
            used = used.saturating_sub(sent.tokens);
            earliest_send = sent.at.after(WINDOW);
        }
        earliest_send
    }

    /// Records a request in the window as sent at this time.
    fn send(&mut self, id: u64, tokens: u64, at: Timestamp) {
        self.sent.push_back(Sent { id, at, tokens });
        self.last = Some(at);
    }

    /// Returns the wait of the last call in the queue if all calls before it are sent immediately.
    ///
    /// It simulates the queue on a copy of the window, so it costs the length of the queue. The
    /// estimate is only shown to the user; the actual wait follows from the window at each step.
    fn expected(&self, rate: &Rate, now: Timestamp) -> Duration {
        let (sent, last, blocked) = (self.sent.clone(), self.last, self.blocked);
        let mut then = Self {
            sent,
            last,
            blocked,
            ..Self::default()
        };
        let mut at = now;
        for waiter in &self.queue {
            then.prune(at);
            at = then.earliest_send(waiter.tokens, rate, at);
            then.send(waiter.id, waiter.tokens, at);
        }
        at.since(now)
    }

    /// Removes a call from the queue and wakes the new first call.
    fn dequeue(&mut self, id: u64) {
        self.queue.retain(|waiter| waiter.id != id);
        if let Some(waiter) = self.queue.front() {
            waiter.first.notify_one();
        }
    }
}

/// A place in the queue, which dropping gives up.
#[derive(Debug)]
pub(super) struct QueueSlot {
    limiter: Arc<Limiter>,
    id: u64,
    first: Arc<Notify>,
    expected: Duration,
}

impl QueueSlot {
    /// Returns the wait that was estimated on entry.
    pub(super) fn expected(&self) -> Duration {
        self.expected
    }

    /// Waits for its turn, records the request as sent and returns its number.
    pub(super) async fn wait_for_turn(self, rate: &Rate, world: &dyn World) -> u64 {
        loop {
            match self.poll_slot(rate, world.now()) {
                SlotState::Ready => return self.id,
                SlotState::Sleep(time) => world.sleep(time).await,
                SlotState::Queued => self.first.notified().await,
            }
        }
    }

    /// Decides whether this call may go now. If it may, it enters the window under the same lock,
    /// so no other call can take its place.
    fn poll_slot(&self, rate: &Rate, now: Timestamp) -> SlotState {
        let mut state = self.limiter.state();
        let Some(waiter) = state.queue.front().filter(|waiter| waiter.id == self.id) else {
            return SlotState::Queued;
        };
        let tokens = waiter.tokens;
        state.prune(now);
        let earliest_send = state.earliest_send(tokens, rate, now);
        if earliest_send > now {
            return SlotState::Sleep(earliest_send.since(now));
        }
        state.send(self.id, tokens, now);
        SlotState::Ready
    }
}

/// The next step of a waiting call: send, sleep as the first of the queue, or wait to become the
/// first.
enum SlotState {
    Ready,
    Sleep(Duration),
    Queued,
}

impl Drop for QueueSlot {
    fn drop(&mut self) {
        self.limiter.state().dequeue(self.id);
    }
}
