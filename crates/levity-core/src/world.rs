use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

/// The source of time and randomness, passed in so that any run can be repeated.
///
/// `levity-runtime` has the real implementation; `levity-test` has one with a manual clock.
///
/// # Contract
/// - `sleep` ends once `now` has advanced by the given duration, and not before.
/// - Dropping the future of `sleep` cancels it.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use std::time::Duration;
///
/// use async_trait::async_trait;
/// use levity_core::{Timestamp, World};
///
/// /// A world in which each sleep moves the clock.
/// struct Jumping(AtomicU64);
///
/// #[async_trait]
/// impl World for Jumping {
///     fn now(&self) -> Timestamp {
///         Timestamp::from_millis(self.0.load(Ordering::SeqCst))
///     }
///
///     fn random(&self) -> u64 {
///         7 // repeatable, as a test needs it
///     }
///
///     async fn sleep(&self, time: Duration) {
///         self.0.fetch_add(time.as_millis() as u64, Ordering::SeqCst);
///     }
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let world = Jumping(AtomicU64::new(0));
/// world.sleep(Duration::from_secs(60)).await;
/// assert_eq!(world.now(), Timestamp::from_millis(60_000));
/// # }
/// ```
#[async_trait]
pub trait World: Send + Sync {
    /// Returns the current time.
    fn now(&self) -> Timestamp;
    /// Returns 64 random bits that are suitable for unguessable ids.
    fn random(&self) -> u64;
    /// Waits for the given duration.
    async fn sleep(&self, time: Duration);
}

#[async_trait]
impl<W: World + ?Sized> World for Arc<W> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }

    fn random(&self) -> u64 {
        (**self).random()
    }

    async fn sleep(&self, time: Duration) {
        (**self).sleep(time).await;
    }
}

/// A point in time: milliseconds since the start of 1970, UTC.
///
/// It is serialized as that number and displayed in RFC 3339 format.
///
/// ```
/// # use levity_core::Timestamp;
/// assert_eq!(Timestamp::from_millis(951_782_400_123).to_string(), "2000-02-29T00:00:00.123Z");
/// ```
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(u64);

impl Timestamp {
    /// Creates the time this many milliseconds after the start of 1970.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Returns the milliseconds since the start of 1970.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Returns the duration since `earlier`, or zero if the clock went backwards.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use levity_core::Timestamp;
    /// let (earlier, later) = (Timestamp::from_millis(1_000), Timestamp::from_millis(4_000));
    /// assert_eq!(later.since(earlier), Duration::from_secs(3));
    /// assert_eq!(earlier.since(later), Duration::ZERO);
    /// ```
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// Returns the point in time `time` later.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use levity_core::Timestamp;
    /// let moment = Timestamp::from_millis(1_000).after(Duration::from_secs(3));
    /// assert_eq!(moment.as_millis(), 4_000);
    /// ```
    #[must_use]
    pub fn after(self, time: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        )
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, millis) = (self.0 / 86_400_000, self.0 % 86_400_000);
        let (year, month, day) = civil(days);
        let (hour, minute, second) = (millis / 3_600_000, millis / 60_000 % 60, millis / 1000 % 60);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z",
            millis % 1000
        )
    }
}

/// Converts days since 1970 to a date by counting 400-year cycles that begin in March.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}
