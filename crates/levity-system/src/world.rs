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
    #[expect(clippy::disallowed_methods, reason = "this is where time comes in")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    fn random(&self) -> u64 {
        // Without the system's randomness, the clock and a fresh hasher's keys are the best there
        // is.
        getrandom::u64().unwrap_or_else(|_| {
            use std::hash::{BuildHasher, RandomState};
            RandomState::new().hash_one(self.now())
        })
    }

    #[expect(clippy::disallowed_methods, reason = "this is where time comes in")]
    async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}
