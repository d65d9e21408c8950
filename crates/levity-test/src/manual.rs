//! A clock that a test controls, and the random numbers that go with it.
//!
//! Sleepers are sorted by their wake-up time and, for equal times, by the order in which they fell
//! asleep. So a test sees the same order of wake-ups each time. Wakers are called and dropped
//! outside the lock, because both can run code that uses the same clock.
//!
//! In the automatic mode a sleeper wakes itself once after it is registered. Its second poll
//! therefore comes after all other tasks that were ready had theirs, and only then moves the clock.

use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use levity_core::{Timestamp, World};

/// A world whose clock stops until a test advances it. Clones share it.
///
/// ```
/// use levity_core::World;
/// use levity_test::ManualWorld;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let world = ManualWorld::new();
/// let start = world.now();
/// let turn = async {
///     world.until_sleeping(1).await;
///     world.advance(Duration::from_secs(60));
/// };
/// tokio::join!(world.sleep(Duration::from_secs(60)), turn);
/// assert_eq!(world.now().since(start), Duration::from_secs(60));
/// # }
/// ```
#[derive(Clone)]
pub struct ManualWorld {
    is_auto: bool,
    state: Arc<Mutex<State>>,
}

/// The clock, its sleepers and the state of the random sequence; shared by all clones.
struct State {
    /// The time since the start of 1970. Finer than a [`Timestamp`], so that short sleeps are not
    /// rounded to zero.
    now: Duration,
    random: u64,
    /// The number of sleepers so far, which makes each place unique.
    next: u64,
    sleepers: BTreeMap<Place, Waker>,
    /// The tasks that wait in `until_sleeping`.
    watchers: Vec<Waker>,
}

/// The wake-up time of a sleeper; simultaneous ones wake in the order in which they fell asleep.
type Place = (Duration, u64);

impl ManualWorld {
    /// The start of the clock: 2025-01-01T00:00:00Z.
    pub const START: Timestamp = Timestamp::from_millis(1_735_689_600_000);

    /// Creates a stopped clock at [`START`](Self::START).
    pub fn new() -> Self {
        let state = State {
            now: since_1970(Self::START),
            random: 0,
            next: 0,
            sleepers: BTreeMap::new(),
            watchers: Vec::new(),
        };
        Self {
            is_auto: false,
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Creates a clock that advances automatically, without real time passing.
    ///
    /// When every sleeper has been polled, the clock jumps to the first wake-up. A timeout around
    /// work that waits for anything but this clock therefore elapses at once.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use levity_core::World;
    /// use levity_test::ManualWorld;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let world = ManualWorld::auto();
    /// world.sleep(Duration::from_secs(86_400)).await; // returns at once
    /// assert_eq!(world.now().to_string(), "2025-01-02T00:00:00.000Z");
    /// # }
    /// ```
    pub fn auto() -> Self {
        Self {
            is_auto: true,
            ..Self::new()
        }
    }

    /// Sets the seed of [`random`](World::random); 0 by default.
    ///
    /// Two worlds with the same seed return the same numbers.
    ///
    /// ```
    /// use levity_core::World;
    /// use levity_test::ManualWorld;
    ///
    /// let (one, other) = (ManualWorld::new().with_seed(7), ManualWorld::new().with_seed(7));
    /// assert_eq!(one.random(), other.random());
    /// assert_ne!(one.random(), ManualWorld::new().with_seed(8).random());
    /// ```
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        self.state().random = seed;
        self
    }

    /// Advances the time and wakes the sleepers that are due, in the order of their times.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use levity_core::World;
    /// use levity_test::ManualWorld;
    ///
    /// let world = ManualWorld::new();
    /// world.advance(Duration::from_millis(1_500));
    /// assert_eq!(world.now().since(ManualWorld::START), Duration::from_millis(1_500));
    /// ```
    pub fn advance(&self, time: Duration) {
        let now = self.state().now.saturating_add(time);
        self.set_time(now);
    }

    /// Sets the clock. If it is set back, sleepers wait until it reaches their time; those already
    /// woken stay awake.
    pub fn set(&self, now: Timestamp) {
        self.set_time(since_1970(now));
    }

    /// Returns the number of sleepers.
    pub fn sleepers(&self) -> usize {
        self.state().sleepers.len()
    }

    /// Waits until there are at least `count` sleepers.
    ///
    /// A sleeper counts from its first poll until it is woken or dropped. The call waits forever if
    /// too few tasks sleep.
    pub async fn until_sleeping(&self, count: usize) {
        poll_fn(|cx| {
            let mut state = self.state();
            if state.sleepers.len() >= count {
                return Poll::Ready(());
            }
            if !state
                .watchers
                .iter()
                .any(|watcher| watcher.will_wake(cx.waker()))
            {
                state.watchers.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    fn set_time(&self, now: Duration) {
        let due = self.state().set_time(now);
        // Wakers are called outside the lock, since a waker may run anything.
        due.into_iter().for_each(Waker::wake);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a sleeper, or checks if it is due.
    ///
    /// Returns `Ready` as soon as the place of the sleeper is no longer in the list, whatever
    /// removed it. A sleep of zero is never registered.
    fn poll_sleep(&self, time: Duration, sleeper: &mut Sleeper<'_>, waker: &Waker) -> Poll<()> {
        let mut state = self.state();
        let Some(place) = sleeper.place else {
            if time.is_zero() {
                return Poll::Ready(());
            }
            sleeper.place = Some(state.register_sleeper(time, waker.clone()));
            let watchers = std::mem::take(&mut state.watchers);
            drop(state);
            watchers.into_iter().for_each(Waker::wake);
            if self.is_auto {
                waker.wake_by_ref();
            }
            return Poll::Pending;
        };
        if self.is_auto {
            let first = state.sleepers.keys().next().map(|(time, _)| *time);
            let due = first.map(|first| state.set_time(first)).unwrap_or_default();
            drop(state);
            due.into_iter().for_each(Waker::wake);
            state = self.state();
        }
        match state.sleepers.get_mut(&place) {
            None => Poll::Ready(()),
            Some(kept) => {
                kept.clone_from(waker);
                if self.is_auto {
                    waker.wake_by_ref();
                }
                Poll::Pending
            }
        }
    }
}

impl State {
    fn register_sleeper(&mut self, time: Duration, waker: Waker) -> Place {
        self.next += 1;
        let place = (self.now.saturating_add(time), self.next);
        self.sleepers.insert(place, waker);
        place
    }

    /// Sets the clock and returns the due sleepers, the first to wake first.
    fn set_time(&mut self, now: Duration) -> Vec<Waker> {
        self.now = now;
        let later = self
            .sleepers
            .split_off(&(now.saturating_add(Duration::from_nanos(1)), 0));
        std::mem::replace(&mut self.sleepers, later)
            .into_values()
            .collect()
    }
}

fn since_1970(moment: Timestamp) -> Duration {
    Duration::from_millis(moment.as_millis())
}

#[async_trait]
impl World for ManualWorld {
    fn now(&self) -> Timestamp {
        Timestamp::default().after(self.state().now)
    }

    fn random(&self) -> u64 {
        splitmix(&mut self.state().random)
    }

    async fn sleep(&self, time: Duration) {
        let mut sleeper = Sleeper {
            world: self,
            place: None,
        };
        poll_fn(|cx| self.poll_sleep(time, &mut sleeper, cx.waker())).await;
    }
}

/// Removes the sleeper when the sleep is dropped.
struct Sleeper<'a> {
    world: &'a ManualWorld,
    place: Option<Place>,
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            let kept = self.world.state().sleepers.remove(&place);
            // The waker is dropped outside the lock, since that may drop a whole task.
            drop(kept);
        }
    }
}

/// Returns the next number of the splitmix64 sequence: small, well mixed, and not secret.
pub(crate) fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Default for ManualWorld {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ManualWorld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (now, sleepers) = (self.now(), self.sleepers());
        f.debug_struct("ManualWorld")
            .field("now", &now)
            .field("sleepers", &sleepers)
            .finish()
    }
}
