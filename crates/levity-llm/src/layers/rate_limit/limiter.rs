//! What is known, in this process, of the requests that share a key.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use levity_core::{Timestamp, World};
use tokio::sync::Notify;

use super::Rate;

/// What rates are counted over.
const WINDOW: Duration = Duration::from_secs(60);

/// The limiter of each key that somebody holds.
static LIMITERS: LazyLock<Mutex<HashMap<String, Weak<Limiter>>>> = LazyLock::new(Mutex::default);

#[derive(Debug, Default)]
pub(super) struct Limiter(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The requests of the last minute, oldest first.
    sent: VecDeque<Sent>,
    /// When the last request was sent.
    last: Option<Timestamp>,
    /// The provider said not to come before the second of these; it said so at the first.
    closed: Option<(Timestamp, Timestamp)>,
    /// Those who wait, first come first.
    line: VecDeque<Waiter>,
    next: u64,
}

#[derive(Clone, Debug)]
struct Sent {
    id: u64,
    at: Timestamp,
    tokens: u64,
}

#[derive(Debug)]
struct Waiter {
    id: u64,
    tokens: u64,
    first: Arc<Notify>,
}

impl Limiter {
    /// The one for `key`, shared by all in this process who ask for it while somebody holds it.
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

    /// Gets in line, and says how long it will take as things stand; `None` when the line is too
    /// long.
    pub(super) fn line_up(
        self: &Arc<Self>,
        tokens: u64,
        rate: &Rate,
        now: Timestamp,
    ) -> Option<Place> {
        let mut state = self.state();
        let full = state.line.len() >= rate.max_waiting;
        // Who need not wait is let through also where nobody may.
        if full && !state.line.is_empty() {
            return None;
        }
        state.next += 1;
        let (id, first) = (state.next, Arc::new(Notify::new()));
        state.line.push_back(Waiter {
            id,
            tokens,
            first: first.clone(),
        });
        let expected = state.expected(rate, now);
        if full && !expected.is_zero() {
            state.line.pop_back();
            return None;
        }
        Some(Place {
            limiter: self.clone(),
            id,
            first,
            expected,
        })
    }

    /// Corrects what a request was thought to take.
    pub(super) fn settle(&self, id: u64, tokens: u64) {
        let mut state = self.state();
        if let Some(sent) = state.sent.iter_mut().find(|sent| sent.id == id) {
            sent.tokens = tokens;
        }
    }

    /// Lets nobody through for so long.
    pub(super) fn close(&self, time: Duration, now: Timestamp) {
        let mut state = self.state();
        let until = state
            .closed
            .map_or(now, |(_, until)| until)
            .max(now.after(time));
        state.closed = Some((now, until));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Forgets what is over a minute ago. A clock that was set back must not make anybody wait
    /// until it has caught up, so nothing was sent later than now.
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
        self.closed = self
            .closed
            .filter(|(noted, until)| *noted <= now && *until > now);
    }

    /// The first moment from `now` on at which a request of so many tokens may be sent.
    fn opens(&self, tokens: u64, rate: &Rate, now: Timestamp) -> Timestamp {
        let gap = self.last.map(|last| last.after(rate.gap));
        let mut opens = now
            .max(gap.unwrap_or(now))
            .max(self.closed.map_or(now, |(_, until)| until));
        if let Some(most) = rate.requests {
            let most = usize::try_from(most.max(1)).unwrap_or(usize::MAX);
            let nth = self
                .sent
                .len()
                .checked_sub(most)
                .and_then(|at| self.sent.get(at));
            opens = opens.max(nth.map_or(now, |sent| sent.at.after(WINDOW)));
        }
        match rate.tokens {
            Some(most) => opens.max(self.room(tokens, most, now)),
            None => opens,
        }
    }

    /// When enough tokens have left the window. A request that is larger than the whole window is
    /// let through once the window is empty.
    fn room(&self, tokens: u64, most: u64, now: Timestamp) -> Timestamp {
        let mut used = self.sent.iter().fold(tokens.min(most), |sum, sent| {
            sum.saturating_add(sent.tokens)
        });
        let mut opens = now;
        for sent in &self.sent {
            if used <= most {
                break;
            }
            used = used.saturating_sub(sent.tokens);
            opens = sent.at.after(WINDOW);
        }
        opens
    }

    fn send(&mut self, id: u64, tokens: u64, at: Timestamp) {
        self.sent.push_back(Sent { id, at, tokens });
        self.last = Some(at);
    }

    /// How long the last in line will wait if all before it send as soon as they may.
    fn expected(&self, rate: &Rate, now: Timestamp) -> Duration {
        let (sent, last, closed) = (self.sent.clone(), self.last, self.closed);
        let mut then = Self {
            sent,
            last,
            closed,
            ..Self::default()
        };
        let mut at = now;
        for waiter in &self.line {
            then.prune(at);
            at = then.opens(waiter.tokens, rate, at);
            then.send(waiter.id, waiter.tokens, at);
        }
        at.since(now)
    }

    /// Takes somebody out of the line and calls the one who is first then.
    fn leave(&mut self, id: u64) {
        self.line.retain(|waiter| waiter.id != id);
        if let Some(waiter) = self.line.front() {
            waiter.first.notify_one();
        }
    }
}

/// A place in line; dropping it gives it up.
#[derive(Debug)]
pub(super) struct Place {
    limiter: Arc<Limiter>,
    id: u64,
    first: Arc<Notify>,
    expected: Duration,
}

impl Place {
    /// How long it will take, as things stood.
    pub(super) fn expected(&self) -> Duration {
        self.expected
    }

    /// Waits for its turn; the request is then taken for sent. Returns its number.
    pub(super) async fn pass(self, rate: &Rate, world: &dyn World) -> u64 {
        loop {
            match self.try_pass(rate, world.now()) {
                Try::Pass => return self.id,
                Try::Sleep(time) => world.sleep(time).await,
                Try::InLine => self.first.notified().await,
            }
        }
    }

    fn try_pass(&self, rate: &Rate, now: Timestamp) -> Try {
        let mut state = self.limiter.state();
        let Some(waiter) = state.line.front().filter(|waiter| waiter.id == self.id) else {
            return Try::InLine;
        };
        let tokens = waiter.tokens;
        state.prune(now);
        let opens = state.opens(tokens, rate, now);
        if opens > now {
            return Try::Sleep(opens.since(now));
        }
        state.send(self.id, tokens, now);
        Try::Pass
    }
}

enum Try {
    Pass,
    Sleep(Duration),
    InLine,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.limiter.state().leave(self.id);
    }
}
