use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use levity_core::{Timestamp, World};

/// The world that layers go by unless they are given another.
pub(super) fn system() -> Arc<dyn World> {
    Arc::new(Clock)
}

/// The real time. Its randomness is only good enough to spread waits.
#[derive(Debug)]
struct Clock;

#[async_trait]
impl World for Clock {
    #[expect(clippy::disallowed_methods, reason = "this is where time comes in")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    fn random(&self) -> u64 {
        RandomState::new().hash_one(self.now())
    }

    #[expect(clippy::disallowed_methods, reason = "this is where time comes in")]
    async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}
