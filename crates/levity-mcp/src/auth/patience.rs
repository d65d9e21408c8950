use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use levity_core::{Timestamp, World};
use tokio::sync::watch;

/// A clock that stands still while a person logs in, so that no limit of the server runs out meanwhile.
pub(crate) struct Patience {
    world: Arc<dyn World>,
    pauses: Mutex<Pauses>,
    paused: watch::Sender<bool>,
}

#[derive(Default)]
struct Pauses {
    /// How long it stood still, in all.
    total: Duration,
    since: Option<Timestamp>,
}

/// The time that a person takes; it ends when this is dropped.
pub(crate) struct Pause<'a>(&'a Patience);

impl Patience {
    pub(crate) fn new(world: Arc<dyn World>) -> Self {
        Self { world, pauses: Mutex::default(), paused: watch::Sender::new(false) }
    }

    /// Stands still from now on.
    pub(crate) fn pause(&self) -> Pause<'_> {
        self.pauses().since = Some(self.world.now());
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
        if let Some(since) = pauses.since.take() {
            pauses.total += self.0.world.now().since(since);
        }
        self.0.paused.send_replace(false);
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
        // The moments of a clock are whole milliseconds, and a sleep is not to be shorter than asked for.
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
    async fn no_time_passes_while_a_person_logs_in() {
        let (minute, clock) = (Duration::from_secs(60), Arc::new(ManualWorld::new()));
        let patience = Patience::new(clock.clone());
        let begin = patience.now();
        let mut sleep = patience.sleep(minute).boxed();
        assert!(sleep.as_mut().now_or_never().is_none());
        let pause = patience.pause();
        clock.advance(minute * 10);
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
