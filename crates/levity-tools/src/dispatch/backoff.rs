//! The pauses between attempts: exponential, with full jitter.

use std::time::Duration;

/// The pauses between attempts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backoff {
    base: Duration,
    max: Duration,
}

impl Backoff {
    pub(super) fn new(base: Duration, max: Duration) -> Self {
        Self { base, max }
    }

    /// Returns the pause after this attempt: a random part of the whole, so that calls which failed
    /// together are not retried together.
    pub(super) fn pause(self, attempt: u32, random: u64) -> Duration {
        let factor = 1_u32
            .checked_shl(attempt.saturating_sub(1))
            .unwrap_or(u32::MAX);
        let whole = self.base.saturating_mul(factor).min(self.max);
        let nanos = u64::try_from(whole.as_nanos()).unwrap_or(u64::MAX);
        // The high half of the product scales `nanos` by `random` as a fraction of all 64-bit
        // numbers.
        let part = (u128::from(nanos) * u128::from(random)) >> 64;
        Duration::from_nanos(u64::try_from(part).unwrap_or(nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(attempt: u32, random: u64, millis: u128) {
        let backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(10));
        let pause = backoff.pause(attempt, random).as_nanos();
        assert_eq!((pause + 500_000) / 1_000_000, millis);
    }

    #[test]
    fn pause_doubles_up_to_its_limit() {
        check(1, u64::MAX, 200);
        check(1, u64::MAX / 2, 100);
        check(2, u64::MAX, 400);
        check(3, u64::MAX / 4, 200);
        check(9, u64::MAX, 10_000);
        check(1000, u64::MAX, 10_000);
        check(5, 0, 0);
    }

    #[test]
    fn extreme_settings_do_no_harm() {
        let backoff = Backoff::new(Duration::MAX, Duration::MAX);
        assert!(backoff.pause(u32::MAX, u64::MAX) > Duration::from_secs(1 << 30));
        assert_eq!(
            Backoff::new(Duration::ZERO, Duration::MAX).pause(7, u64::MAX),
            Duration::ZERO
        );
    }
}
