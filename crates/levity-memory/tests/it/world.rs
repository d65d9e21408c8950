//! The real world, for tests between processes.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use levity_core::{Timestamp, World};

pub(crate) struct Real;

#[async_trait]
impl World for Real {
    fn now(&self) -> Timestamp {
        #[expect(clippy::disallowed_methods, reason = "this is the clock")]
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Timestamp::default().after(since.unwrap_or_default())
    }

    fn random(&self) -> u64 {
        RandomState::new().build_hasher().finish()
    }

    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}
