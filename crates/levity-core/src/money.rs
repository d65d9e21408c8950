use std::fmt;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use crate::Usage;

/// An amount of money, in billionths of a dollar; written down as that number.
///
/// ```
/// # use levity_core::Money;
/// let limit = Money::from_dollars(0.5);
/// assert_eq!(limit.to_string(), "$0.50");
/// assert_eq!(limit.nanos(), 500_000_000);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Money(u64);

impl Money {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// More than anybody has: about 18 billion dollars.
    pub const MAX: Self = Self(u64::MAX);

    /// So many dollars, to the nearest billionth. What is negative or no number is nothing, and what is too
    /// much is [`MAX`](Self::MAX).
    pub fn from_dollars(dollars: f64) -> Self {
        Self((dollars * 1e9).round() as u64)
    }

    /// So many billionths of a dollar.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// How many billionths of a dollar.
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// Both together, and no more than [`MAX`](Self::MAX).
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// What is left, and no less than nothing.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// So many times as much, and no more than [`MAX`](Self::MAX).
    #[must_use]
    pub const fn saturating_mul(self, times: u64) -> Self {
        Self(self.0.saturating_mul(times))
    }
}

impl AddAssign for Money {
    fn add_assign(&mut self, other: Self) {
        *self = self.saturating_add(other);
    }
}

/// Exact, with two decimals at least.
impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cents = format!("{:09}", self.0 % NANOS);
        let (always, more) = cents.split_at(2);
        write!(f, "${}.{always}{}", self.0 / NANOS, more.trim_end_matches('0'))
    }
}

const NANOS: u64 = 1_000_000_000;

/// What a model costs, per million tokens.
///
/// ```
/// # use levity_core::{Price, Usage};
/// let price = Price::new(3.0, 15.0).with_cached(0.3);
/// let mut usage = Usage::new(10_000, 500);
/// usage.cached = Some(8_000);
/// assert_eq!(price.cost(&usage).to_string(), "$0.0159");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Price {
    /// A million tokens sent.
    pub input: Money,
    /// A million tokens received.
    pub output: Money,
    /// A million tokens sent that the provider had in its cache; as other input unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<Money>,
    /// A million tokens sent that the provider put into its cache; as other input unless set. Where money is
    /// limited and it is set, input counts at the dearest rate when the provider does not say how much of
    /// it that was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<Money>,
    /// Other rates for long requests, where the provider has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long: Option<LongPrice>,
}

/// What a model costs once a request is long, per million tokens: all of the call has these rates then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LongPrice {
    /// Requests of more tokens than this are long.
    pub over: u64,
    /// A million tokens sent.
    pub input: Money,
    /// A million tokens received.
    pub output: Money,
    /// A million tokens sent that the provider had in its cache; as other input unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<Money>,
    /// A million tokens sent that the provider put into its cache; as other input unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<Money>,
}

impl Price {
    /// So many dollars per million tokens sent and received. What is negative or no number is taken for more
    /// than anybody can pay, never for nothing.
    pub fn new(input: f64, output: f64) -> Self {
        Self { input: rate(input), output: rate(output), cached: None, cache_write: None, long: None }
    }

    /// So many dollars per million tokens that the provider had in its cache.
    #[must_use]
    pub fn with_cached(mut self, dollars: f64) -> Self {
        self.cached = Some(rate(dollars));
        self
    }

    /// So many dollars per million tokens that the provider put into its cache.
    #[must_use]
    pub fn with_cache_write(mut self, dollars: f64) -> Self {
        self.cache_write = Some(rate(dollars));
        self
    }

    /// Other rates for requests of more than `over` tokens.
    ///
    /// ```
    /// # use levity_core::{Price, Usage};
    /// let price = Price::new(1.25, 10.0).with_long(200_000, Price::new(2.5, 15.0));
    /// assert_eq!(price.cost(&Usage::new(200_000, 0)).to_string(), "$0.25");
    /// assert_eq!(price.cost(&Usage::new(400_000, 0)).to_string(), "$1.00");
    /// ```
    #[must_use]
    pub fn with_long(mut self, over: u64, price: Self) -> Self {
        let Self { input, output, cached, cache_write, .. } = price;
        self.long = Some(LongPrice { over, input, output, cached, cache_write });
        self
    }

    /// The rates for a request of so many tokens.
    fn at(&self, input: u64) -> Self {
        match self.long {
            Some(LongPrice { over, input: sent, output, cached, cache_write }) if input > over => {
                Self { input: sent, output, cached, cache_write, long: None }
            }
            _ => *self,
        }
    }

    /// The dearest input and output of a request of up to so many tokens.
    fn dearest(&self, input: u64) -> (Money, Money) {
        let long = self.at(input);
        (self.dearest_input().max(long.dearest_input()), self.output.max(long.output))
    }

    /// What this much costs, rounded up; a count that is not known adds nothing.
    pub fn cost(&self, usage: &Usage) -> Money {
        let input = usage.input.unwrap_or(0);
        let cached = usage.cached.unwrap_or(0).min(input);
        let written = usage.cache_written.unwrap_or(0).min(input - cached);
        let plain = input - cached - written;
        let rates = self.at(input);
        to_money(
            times(plain, rates.input)
                .saturating_add(times(cached, rates.cached.unwrap_or(rates.input)))
                .saturating_add(times(written, rates.cache_write.unwrap_or(rates.input)))
                .saturating_add(times(usage.output.unwrap_or(0), rates.output)),
        )
    }

    /// The most that so many tokens sent and received can cost, whatever the provider's cache does.
    pub fn most(&self, input: u64, output: u64) -> Money {
        let (sent, received) = self.dearest(input);
        to_money(times(input, sent).saturating_add(times(output, received)))
    }

    /// How many tokens may be received beside so many tokens sent, at [most](Self::most), for this much
    /// money; `None` when what is sent costs more already.
    pub fn affords(&self, input: u64, money: Money) -> Option<u64> {
        let all = u128::from(money.0).saturating_mul(MILLION);
        let (sent, received) = self.dearest(input);
        let left = all.checked_sub(times(input, sent))?;
        let tokens = left.checked_div(u128::from(received.0));
        Some(tokens.map_or(u64::MAX, |tokens| u64::try_from(tokens).unwrap_or(u64::MAX)))
    }

    fn dearest_input(&self) -> Money {
        self.input.max(self.cached.unwrap_or_default()).max(self.cache_write.unwrap_or_default())
    }
}

const MILLION: u128 = 1_000_000;

fn rate(dollars: f64) -> Money {
    if dollars >= 0.0 { Money((dollars * 1e9).ceil() as u64) } else { Money::MAX }
}

fn times(tokens: u64, rate: Money) -> u128 {
    u128::from(tokens) * u128::from(rate.0)
}

fn to_money(millionths: u128) -> Money {
    Money(u64::try_from(millionths.div_ceil(MILLION)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
