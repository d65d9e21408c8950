use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use levity_core::{Timestamp, World};
use tokio::sync::watch;

/// A clock that stands still during a login, so that no limit of the server runs out while a person
/// types, or while an authorization server takes its time. A login has limits of its own.
pub(crate) struct Patience {
    world: Arc<dyn World>,
    pauses: Mutex<Pauses>,
    paused: watch::Sender<bool>,
}

#[derive(Default)]
struct Pauses {
    /// How long it stood still, in all.
    total: Duration,
    /// Since when it stands still.
    since: Option<Timestamp>,
    /// How many keep it from going on.
    count: usize,
}

/// The time that a login takes; it ends when this is dropped.
pub(crate) struct Pause<'a>(&'a Patience);

impl Patience {
    pub(crate) fn new(world: Arc<dyn World>) -> Self {
        Self {
            world,
            pauses: Mutex::default(),
            paused: watch::Sender::new(false),
        }
    }

    /// Stands still from now on.
    pub(crate) fn pause(&self) -> Pause<'_> {
        let mut pauses = self.pauses();
        pauses.count += 1;
        pauses.since.get_or_insert_with(|| self.world.now());
        self.paused.send_replace(true);
        Pause(self)
    }

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
impl World for Patience {
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
        // The moments of a clock are whole milliseconds, and a sleep is not to be shorter than
        // asked for.
        self.world.sleep(time).await;
        loop {
            let _ = paused.wait_for(|paused| !paused).await;
            match end.since(self.now()) {
                Duration::ZERO => return,
                left => self.world.sleep(left).await,
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
    async fn no_time_passes_during_a_login() {
        let (minute, clock) = (Duration::from_secs(60), Arc::new(ManualWorld::new()));
        let patience = Patience::new(clock.clone());
        let begin = patience.now();
        let mut sleep = patience.sleep(minute).boxed();
        assert!(sleep.as_mut().now_or_never().is_none());
        let pause = patience.pause();
        clock.advance(minute * 5);
        drop(patience.pause());
        clock.advance(minute * 5);
        assert_eq!(patience.now(), begin);
        assert!(sleep.as_mut().now_or_never().is_none());
        drop(pause);
        assert!(sleep.as_mut().now_or_never().is_none());
        clock.advance(minute / 2);
        assert!(sleep.as_mut().now_or_never().is_none());
        clock.advance(minute / 2);
        assert!(sleep.as_mut().now_or_never().is_some());
        assert_eq!(patience.now().since(begin), minute);
    }
}
