//! Token counts without a tokenizer, calibrated by the provider.
//!
//! Two requests of one conversation give two equations: a fixed part for instructions and tools,
//! and a factor between estimated and counted tokens. The factor is used from 256 tokens of growth
//! on, and limited to a quarter up to four times.

use serde::{Deserialize, Serialize};

/// The minimum number of tokens from which a ratio can be derived.
const MIN_SAMPLE: u64 = 256;
/// The maximum number of tokens in the sample, since providers and languages change.
const MAX_SAMPLE: u64 = 1 << 20;

/// A token counter that adapts to the counts that a provider reported.
///
/// It estimates messages without a tokenizer ([`estimate_tokens`](levity_core::estimate_tokens)).
/// The provider's counts for earlier requests correct the estimate, and show how much is sent
/// beside the messages.
///
/// ```
/// use levity_memory::Counter;
///
/// let mut counter = Counter::new();
/// assert_eq!(counter.count(1_000), 1_000);
/// counter.record(1_000, 1_700); // 700 of them are instructions and tools, as far as known
/// counter.record(2_000, 3_200); // and 1,000 of ours are 1,500 of theirs
/// assert_eq!(counter.count(3_000), 4_700);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    /// The last estimate, and the provider's count for it.
    last: Option<(u64, u64)>,
    /// The growth between requests, as estimated and as counted.
    estimated: u64,
    counted: u64,
    /// The estimated tokens that are sent beside the messages.
    beside: u64,
}

impl Counter {
    /// Creates a counter without samples.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the approximate number of tokens sent beside the messages: instructions and tools. The
    /// first count of the provider replaces it.
    ///
    /// ```
    /// # use levity_memory::Counter;
    /// let mut counter = Counter::new().with_overhead(300);
    /// assert_eq!(counter.count(1_000), 1_300);
    /// counter.record(1_000, 1_200); // the provider knows better
    /// assert_eq!(counter.count(1_000), 1_200);
    /// ```
    #[must_use]
    pub fn with_overhead(mut self, tokens: u64) -> Self {
        self.beside = tokens;
        self
    }

    /// Records the provider's count for a request whose messages were estimated at `estimate`.
    pub fn record(&mut self, estimate: u64, counted: u64) {
        if let Some((before, last_estimate)) = self.last
            && estimate > before
            && counted > last_estimate
        {
            self.estimated = self.estimated.saturating_add(estimate - before);
            self.counted = self.counted.saturating_add(counted - last_estimate);
            while self.estimated > MAX_SAMPLE || self.counted > MAX_SAMPLE {
                (self.estimated, self.counted) = (self.estimated / 2, self.counted / 2);
            }
        }
        self.last = Some((estimate, counted));
    }

    /// Returns the expected provider count for a request whose messages are estimated at
    /// `estimate`.
    pub fn count(&self, estimate: u64) -> u64 {
        match self.last {
            Some((last_estimate, counted)) if estimate >= last_estimate => {
                counted.saturating_add(self.scale_up(estimate - last_estimate))
            }
            Some((last_estimate, counted)) => {
                let (theirs, ours) = self.min_ratio(last_estimate, counted);
                counted.saturating_sub(scale(last_estimate - estimate, theirs, ours, 0))
            }
            None => self.scale_up(estimate.saturating_add(self.beside)),
        }
    }

    /// Returns the maximum estimate of the messages for which the provider counts no more than
    /// `tokens`.
    ///
    /// ```
    /// # use levity_memory::Counter;
    /// let mut counter = Counter::new();
    /// counter.record(1_000, 1_700);
    /// let most = counter.max_estimate(5_000);
    /// assert!(counter.count(most) <= 5_000);
    /// ```
    pub fn max_estimate(&self, tokens: u64) -> u64 {
        let (theirs, ours) = self.ratio();
        let convert = |tokens: u64| scale(tokens, ours, theirs, 0);
        match self.last {
            Some((last_estimate, counted)) if tokens >= counted => {
                last_estimate.saturating_add(convert(tokens - counted))
            }
            Some((last_estimate, counted)) => {
                let (theirs, ours) = self.min_ratio(last_estimate, counted);
                last_estimate.saturating_sub(
                    scale(counted - tokens, ours, theirs, theirs - 1).saturating_add(1),
                )
            }
            None => convert(tokens).saturating_sub(self.beside),
        }
    }

    fn scale_up(&self, estimate: u64) -> u64 {
        let (theirs, ours) = self.ratio();
        scale(estimate, theirs, ours, ours - 1)
    }

    /// Returns the lowest plausible ratio of provider tokens to estimated tokens, as (theirs,
    /// ours). The messages made up at most all of the counted tokens.
    ///
    /// It is used for shrinking: a request that gets shorter must not be expected to shrink by more
    /// than it can.
    fn min_ratio(&self, last_estimate: u64, counted: u64) -> (u64, u64) {
        let (theirs, ours) = self.ratio();
        let total_ratio = (counted.max(1), last_estimate.max(1));
        let is_less = u128::from(total_ratio.0) * u128::from(ours)
            < u128::from(theirs) * u128::from(total_ratio.1);
        if is_less { total_ratio } else { (theirs, ours) }
    }

    /// Returns the ratio of provider tokens to estimated tokens, as (theirs, ours); neither is 0.
    fn ratio(&self) -> (u64, u64) {
        if self.estimated < MIN_SAMPLE {
            return (1, 1);
        }
        // A larger deviation means that the provider counted something other than tokens.
        (
            self.counted
                .clamp(self.estimated / 4, self.estimated.saturating_mul(4)),
            self.estimated,
        )
    }
}

/// Returns `(value * by + plus) / of`, without an overflow.
fn scale(value: u64, by: u64, of: u64, plus: u64) -> u64 {
    let scaled = (u128::from(value) * u128::from(by) + u128::from(plus)) / u128::from(of.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}
