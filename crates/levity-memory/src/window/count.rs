use serde::{Deserialize, Serialize};

/// How few tokens say nothing of how a provider counts.
const TOO_FEW: u64 = 256;
/// How many tokens are remembered: providers and languages change.
const MANY: u64 = 1 << 20;

/// Counts tokens as a provider does, from what it said of earlier requests.
///
/// An estimate of the messages is made without a tokeniser
/// ([`estimate_tokens`](levity_core::estimate_tokens)). What the provider counted for earlier
/// requests says how far off that is, and how much is sent beside the messages.
///
/// ```
/// use levity_memory::Counter;
///
/// let mut counter = Counter::new();
/// assert_eq!(counter.count(1_000), 1_000);
/// counter.learn(1_000, 1_700); // 700 of them are instructions and tools, as far as can be told
/// counter.learn(2_000, 3_200); // and 1,000 of ours are 1,500 of theirs
/// assert_eq!(counter.count(3_000), 4_700);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    /// The last estimate, and what the provider counted.
    last: Option<(u64, u64)>,
    /// What was added between requests, as estimated and as counted.
    estimated: u64,
    counted: u64,
    /// What is sent beside the messages, as estimated.
    beside: u64,
}

impl Counter {
    /// Knows nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Says about how many tokens are sent beside the messages: instructions, tools. The provider's
    /// own counts are gone by as soon as there is one.
    #[must_use]
    pub fn beside(mut self, tokens: u64) -> Self {
        self.beside = tokens;
        self
    }

    /// Takes in what a provider counted for a request whose messages were estimated at `estimate`.
    pub fn learn(&mut self, estimate: u64, counted: u64) {
        if let Some((before, then)) = self.last
            && estimate > before
            && counted > then
        {
            self.estimated = self.estimated.saturating_add(estimate - before);
            self.counted = self.counted.saturating_add(counted - then);
            while self.estimated > MANY || self.counted > MANY {
                (self.estimated, self.counted) = (self.estimated / 2, self.counted / 2);
            }
        }
        self.last = Some((estimate, counted));
    }

    /// How many tokens a provider counts for a request whose messages are estimated at `estimate`,
    /// as far as can be told.
    pub fn count(&self, estimate: u64) -> u64 {
        match self.last {
            Some((then, counted)) if estimate >= then => {
                counted.saturating_add(self.scale_up(estimate - then))
            }
            Some((then, counted)) => {
                let (theirs, ours) = self.least_ratio(then, counted);
                counted.saturating_sub(scale(then - estimate, theirs, ours, 0))
            }
            None => self.scale_up(estimate.saturating_add(self.beside)),
        }
    }

    /// The most that the messages may be estimated at when a provider is to count no more than
    /// `tokens`.
    pub fn room(&self, tokens: u64) -> u64 {
        let (theirs, ours) = self.ratio();
        let convert = |tokens: u64| scale(tokens, ours, theirs, 0);
        match self.last {
            Some((then, counted)) if tokens >= counted => {
                then.saturating_add(convert(tokens - counted))
            }
            Some((then, counted)) => {
                let (theirs, ours) = self.least_ratio(then, counted);
                then.saturating_sub(
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

    /// How many of theirs are gone at least when so many of ours are: the messages were no more
    /// than all of what was counted.
    fn least_ratio(&self, then: u64, counted: u64) -> (u64, u64) {
        let (theirs, ours) = self.ratio();
        let of_all = (counted.max(1), then.max(1));
        let is_less =
            u128::from(of_all.0) * u128::from(ours) < u128::from(theirs) * u128::from(of_all.1);
        if is_less { of_all } else { (theirs, ours) }
    }

    /// How many of theirs are how many of ours; neither is 0.
    fn ratio(&self) -> (u64, u64) {
        if self.estimated < TOO_FEW {
            return (1, 1);
        }
        // Further off than that, it is not the tokens that were counted.
        (
            self.counted
                .clamp(self.estimated / 4, self.estimated.saturating_mul(4)),
            self.estimated,
        )
    }
}

/// `(value * by + plus) / of`, without an overflow.
fn scale(value: u64, by: u64, of: u64, plus: u64) -> u64 {
    let scaled = (u128::from(value) * u128::from(by) + u128::from(plus)) / u128::from(of.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}
