//! The current time for `tracing` events and spans, which have no timestamp.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use levity_core::Timestamp;

/// Returns the time since the start of 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "a span's time is not part of a run, and a `World` counts in milliseconds"
)]
pub(crate) fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

pub(crate) fn timestamp() -> Timestamp {
    Timestamp::from_millis(u64::try_from(now().as_millis()).unwrap_or(u64::MAX))
}
