//! A clock that stops during a login.
//!
//! A start, a call and a ping have timeouts of seconds, and a person needs minutes to log in. With
//! this clock, the server's timeouts do not elapse in the meantime, without any of them knowing
//! about logins. Sleeps that began before a pause are extended by its length.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use levity_core::{Timestamp, World};
use tokio::sync::watch;

/// A clock that stops during a login. No timeout of the server elapses while a person types or an
/// authorization server is slow; a login has its own timeouts.
pub(crate) struct PausableClock {
    world: Arc<dyn World>,
    pauses: Mutex<Pauses>,
    paused: watch::Sender<bool>,
}

/// The pauses so far. Several logins may overlap; the clock stops while one of them is active.
#[derive(Default)]
struct Pauses {
    /// The total time of all pauses.
    total: Duration,
    /// The start of the current pause.
    since: Option<Timestamp>,
    /// The number of active pauses.
    count: usize,
}

/// A pause of the clock, which ends when this is dropped.
pub(crate) struct Pause<'a>(&'a PausableClock);

impl PausableClock {
    pub(crate) fn new(world: Arc<dyn World>) -> Self {
        Self {
            world,
            pauses: Mutex::default(),
            paused: watch::Sender::new(false),
        }
    }

    /// Pauses the clock from now on.
    pub(crate) fn pause(&self) -> Pause<'_> {
        let mut pauses = self.pauses();
        pauses.count += 1;
        pauses.since.get_or_insert_with(|| self.world.now());
        self.paused.send_replace(true);
        Pause(self)
    }

    /// Locks the state of the pauses.
    fn pauses(&self) -> MutexGuard<'_, Pauses> {
        self.pauses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        let mut pauses = self.0.pauses();
        pauses.count -= 1;
        if pauses.count == 0
            && let Some(since) = pauses.since.take()
        {
            pauses.total += self.0.world.now().since(since);
            self.0.paused.send_replace(false);
        }
    }
}

#[async_trait]
impl World for PausableClock {
    fn now(&self) -> Timestamp {
        let pauses = self.pauses();
        let now = pauses.since.unwrap_or_else(|| self.world.now());
        let total = u64::try_from(pauses.total.as_millis()).unwrap_or(u64::MAX);
        Timestamp::from_millis(now.as_millis().saturating_sub(total))
    }

    fn random(&self) -> u64 {
        self.world.random()
    }

    async fn sleep(&self, time: Duration) {
        let end = self.now().after(time);
        let mut paused = self.paused.subscribe();
        // A clock counts whole milliseconds, and a sleep must not be shorter than requested.
        self.world.sleep(time).await;
        loop {
            let _ = paused.wait_for(|paused| !paused).await;
            match end.since(self.now()) {
                Duration::ZERO => return,
                remaining => self.world.sleep(remaining).await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use levity_test::ManualWorld;

    use super::*;

    #[tokio::test]
    async fn clock_stops_during_login() {
        let (minute, clock) = (Duration::from_secs(60), Arc::new(ManualWorld::new()));
        let pausable = PausableClock::new(clock.clone());
        let begin = pausable.now();
        let mut sleep = pausable.sleep(minute).boxed();
        assert!(sleep.as_mut().now_or_never().is_none());
        let pause = pausable.pause();
        clock.advance(minute * 5);
        drop(pausable.pause());
        clock.advance(minute * 5);
        assert_eq!(pausable.now(), begin);
        assert!(sleep.as_mut().now_or_never().is_none());
        drop(pause);
        assert!(sleep.as_mut().now_or_never().is_none());
        clock.advance(minute / 2);
        assert!(sleep.as_mut().now_or_never().is_none());
        clock.advance(minute / 2);
        assert!(sleep.as_mut().now_or_never().is_some());
        assert_eq!(pausable.now().since(begin), minute);
    }
}
