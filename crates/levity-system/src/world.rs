//! The one place of levity that reads the clock, sleeps and asks for randomness.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use levity_core::{Timestamp, World};

/// The real clock and the system's randomness.
///
/// ```
/// # use levity_core::World;
/// # use levity_system::SystemWorld;
/// assert_ne!(SystemWorld.random(), SystemWorld.random());
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemWorld;

#[async_trait]
impl World for SystemWorld {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the clock"
    )]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    fn random(&self) -> u64 {
        // Without the system's randomness, fall back to the clock and the keys of a new hasher.
        getrandom::u64().unwrap_or_else(|_| {
            use std::hash::{BuildHasher, RandomState};
            RandomState::new().hash_one(self.now())
        })
    }

    #[expect(clippy::disallowed_methods, reason = "the one place that sleeps")]
    async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}
