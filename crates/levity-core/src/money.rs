use std::fmt;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use crate::Usage;

/// An amount of money in billionths of a dollar; serialized as that number.
///
/// ```
/// # use levity_core::Money;
/// let limit = Money::from_dollars(0.5);
/// assert_eq!(limit.to_string(), "$0.50");
/// assert_eq!(limit.nanos(), 500_000_000);
/// ```
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Money(u64);

impl Money {
    /// The amount of zero dollars.
    pub const ZERO: Self = Self(0);
    /// The largest amount, about 18 billion dollars.
    pub const MAX: Self = Self(u64::MAX);

    /// Creates an amount from dollars, rounded to the nearest billionth. Negative values and NaN
    /// become zero; values that are too large become [`MAX`](Self::MAX).
    ///
    /// ```
    /// # use levity_core::Money;
    /// assert_eq!(Money::from_dollars(0.25).nanos(), 250_000_000);
    /// assert_eq!(Money::from_dollars(-1.0), Money::ZERO);
    /// ```
    pub fn from_dollars(dollars: f64) -> Self {
        Self((dollars * 1e9).round() as u64)
    }

    /// Creates an amount from billionths of a dollar.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the amount in billionths of a dollar.
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// Adds two amounts, up to [`MAX`](Self::MAX).
    ///
    /// ```
    /// # use levity_core::Money;
    /// let sum = Money::from_dollars(0.5).saturating_add(Money::from_dollars(0.25));
    /// assert_eq!(sum.to_string(), "$0.75");
    /// assert_eq!(sum.saturating_add(Money::MAX), Money::MAX);
    /// ```
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Subtracts an amount, down to zero.
    ///
    /// ```
    /// # use levity_core::Money;
    /// let (limit, spent) = (Money::from_dollars(0.5), Money::from_dollars(0.75));
    /// assert_eq!(limit.saturating_sub(spent), Money::ZERO);
    /// ```
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Multiplies the amount, up to [`MAX`](Self::MAX).
    ///
    /// ```
    /// # use levity_core::Money;
    /// assert_eq!(Money::from_dollars(0.25).saturating_mul(3).to_string(), "$0.75");
    /// ```
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

/// Shows the exact amount with at least two decimals.
impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cents = format!("{:09}", self.0 % NANOS);
        let (always, more) = cents.split_at(2);
        write!(
            f,
            "${}.{always}{}",
            self.0 / NANOS,
            more.trim_end_matches('0')
        )
    }
}

const NANOS: u64 = 1_000_000_000;

/// The price of a model per million tokens.
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
    /// The price of a million tokens sent.
    pub input: Money,
    /// The price of a million tokens received.
    pub output: Money,
    /// The price of a million tokens sent that the provider had in its cache; `input` unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<Money>,
    /// The price of a million tokens sent that the provider wrote to its cache; `input` unless set.
    /// If it is set, money is limited and the provider does not report that count, all input counts
    /// at the highest rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<Money>,
    /// The price of a million tokens that the provider caches for an hour. Unless set, it is twice
    /// `input` or `cache_write`, whichever is higher.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_hour: Option<Money>,
    /// The price of priority requests, in percent of these rates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// The fees of tools that the provider runs, per use.
    #[serde(default, skip_serializing_if = "Fees::is_empty")]
    pub fees: Fees,
    /// Other rates for long requests, if the provider has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long: Option<LongPrice>,
}

/// The fees of tools that the provider runs, per use. A fee that is not set is unknown: if money is
/// limited, a request that includes such a tool is not sent.
///
/// ```
/// # use levity_core::Fees;
/// let fees = Fees::new().with_search(0.01).with_max_uses(5);
/// assert!(fees.session.is_none(), "the fee of a session is unknown");
/// assert_eq!(fees.search.map(|fee| fee.to_string()).as_deref(), Some("$0.01"));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Fees {
    /// The fee of one web search, or of one query of a grounded reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<Money>,
    /// The fee of one code execution session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Money>,
    /// The maximum number of uses per request, if the request itself does not limit it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "most_uses")]
    pub max_uses: Option<u64>,
}

impl Fees {
    /// The amount assumed for an unknown fee if money is limited: more than any published fee.
    pub const UNKNOWN: Money = Money(50_000_000);

    /// Creates fees that are all unknown.
    pub const fn new() -> Self {
        Self {
            search: None,
            session: None,
            max_uses: None,
        }
    }

    /// Sets the fee of one search, in dollars.
    #[must_use]
    pub fn with_search(mut self, dollars: f64) -> Self {
        self.search = Some(rate_from_dollars(dollars));
        self
    }

    /// Sets the fee of one code execution session, in dollars.
    #[must_use]
    pub fn with_session(mut self, dollars: f64) -> Self {
        self.session = Some(rate_from_dollars(dollars));
        self
    }

    /// Sets the maximum number of uses per request.
    #[must_use]
    pub const fn with_max_uses(mut self, uses: u64) -> Self {
        self.max_uses = Some(uses);
        self
    }

    /// Returns `true` if no fee is known.
    pub fn is_empty(&self) -> bool {
        *self == Self::new()
    }

    /// Returns the fees of these uses; an unknown fee counts as `unknown`.
    fn of(&self, usage: &Usage, unknown: Money) -> Money {
        let fee = |fee: Option<Money>, uses: Option<u64>| {
            fee.unwrap_or(unknown).saturating_mul(uses.unwrap_or(0))
        };
        fee(self.search, usage.searches).saturating_add(fee(self.session, usage.sessions))
    }
}

/// The price of a model for long requests, per million tokens; it applies to the whole call.
///
/// ```
/// # use levity_core::Price;
/// let price = Price::new(1.25, 10.0).with_long(200_000, Price::new(2.5, 15.0));
/// assert_eq!(price.long.map(|long| long.over), Some(200_000));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LongPrice {
    /// Requests of more tokens than this are long.
    pub over: u64,
    /// The price of a million tokens sent.
    pub input: Money,
    /// The price of a million tokens received.
    pub output: Money,
    /// The price of a million tokens sent that the provider had in its cache; `input` unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<Money>,
    /// The price of a million tokens sent that the provider wrote to its cache; `input` unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<Money>,
    /// The price of a million tokens that the provider caches for an hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_hour: Option<Money>,
}

impl Price {
    /// The percentage assumed for priority requests of unknown price: more than any published one.
    const UNKNOWN_PRIORITY: u32 = 300;

    /// Creates a price in dollars per million tokens sent and received. Negative values and NaN
    /// become the highest possible price, never zero.
    pub fn new(input: f64, output: f64) -> Self {
        Self {
            input: rate_from_dollars(input),
            output: rate_from_dollars(output),
            cached: None,
            cache_write: None,
            cache_write_hour: None,
            priority: None,
            fees: Fees::new(),
            long: None,
        }
    }

    /// Sets the dollars per million tokens that the provider caches for an hour.
    ///
    /// ```
    /// # use levity_core::{Price, Usage};
    /// let price = Price::new(3.0, 15.0).with_cache_write(3.75).with_cache_write_hour(6.0);
    /// let mut usage = Usage::new(1_000_000, 0);
    /// (usage.cache_written, usage.cache_written_hour) = (Some(1_000_000), Some(400_000));
    /// assert_eq!(price.cost(&usage).to_string(), "$4.65");
    /// ```
    #[must_use]
    pub fn with_cache_write_hour(mut self, dollars: f64) -> Self {
        self.cache_write_hour = Some(rate_from_dollars(dollars));
        self
    }

    /// Sets the price of priority requests, in percent of the usual rates.
    ///
    /// ```
    /// # use levity_core::{Price, Usage};
    /// let price = Price::new(2.0, 8.0).with_priority(150);
    /// let mut usage = Usage::new(1_000_000, 0);
    /// usage.priority = true;
    /// assert_eq!(price.cost(&usage).to_string(), "$3.00");
    /// ```
    #[must_use]
    pub const fn with_priority(mut self, percent: u32) -> Self {
        self.priority = Some(percent);
        self
    }

    /// Sets the fees of tools that the provider runs.
    ///
    /// ```
    /// # use levity_core::{Fees, Price, Usage};
    /// let price = Price::new(3.0, 15.0).with_fees(Fees::new().with_search(0.01));
    /// let mut usage = Usage::new(0, 0);
    /// usage.searches = Some(3);
    /// assert_eq!(price.cost(&usage).to_string(), "$0.03");
    /// ```
    #[must_use]
    pub const fn with_fees(mut self, fees: Fees) -> Self {
        self.fees = fees;
        self
    }

    /// Removes the price of caching for an hour, for a request that does not use it.
    #[must_use]
    pub const fn without_hour(mut self) -> Self {
        self.cache_write_hour = None;
        if let Some(mut long) = self.long {
            long.cache_write_hour = None;
            self.long = Some(long);
        }
        self
    }

    /// Sets the price of caching for an hour, known or else assumed.
    #[must_use]
    pub fn with_hour(mut self) -> Self {
        self.cache_write_hour = Some(self.hour());
        if let Some(mut long) = self.long {
            long.cache_write_hour = Some(self.at(u64::MAX).hour());
            self.long = Some(long);
        }
        self
    }

    fn hour(&self) -> Money {
        let twice = self.input.saturating_mul(2);
        self.cache_write_hour
            .unwrap_or_else(|| twice.max(self.cache_write.unwrap_or_default()))
    }

    /// Returns the rates of priority requests.
    #[must_use]
    pub fn prioritised(mut self) -> Self {
        // Set the percentage to 100, so that applying it again changes nothing.
        let percent = u64::from(self.priority.replace(100).unwrap_or(Self::UNKNOWN_PRIORITY));
        let scale = |rate: Money| Money(rate.0.saturating_mul(percent).div_ceil(100));
        let option = |rate: Option<Money>| rate.map(scale);
        (self.input, self.output) = (scale(self.input), scale(self.output));
        (self.cached, self.cache_write) = (option(self.cached), option(self.cache_write));
        self.cache_write_hour = option(self.cache_write_hour);
        self.long = self.long.map(|long| LongPrice {
            over: long.over,
            input: scale(long.input),
            output: scale(long.output),
            cached: option(long.cached),
            cache_write: option(long.cache_write),
            cache_write_hour: option(long.cache_write_hour),
        });
        self
    }

    /// Sets the dollars per million tokens that the provider had in its cache.
    ///
    /// ```
    /// # use levity_core::{Price, Usage};
    /// let price = Price::new(3.0, 15.0).with_cached(0.3);
    /// let mut usage = Usage::new(1_000_000, 0);
    /// usage.cached = Some(1_000_000);
    /// assert_eq!(price.cost(&usage).to_string(), "$0.30");
    /// ```
    #[must_use]
    pub fn with_cached(mut self, dollars: f64) -> Self {
        self.cached = Some(rate_from_dollars(dollars));
        self
    }

    /// Sets the dollars per million tokens that the provider wrote to its cache.
    #[must_use]
    pub fn with_cache_write(mut self, dollars: f64) -> Self {
        self.cache_write = Some(rate_from_dollars(dollars));
        self
    }

    /// Sets other rates for requests of more than `over` tokens.
    ///
    /// ```
    /// # use levity_core::{Price, Usage};
    /// let price = Price::new(1.25, 10.0).with_long(200_000, Price::new(2.5, 15.0));
    /// assert_eq!(price.cost(&Usage::new(200_000, 0)).to_string(), "$0.25");
    /// assert_eq!(price.cost(&Usage::new(400_000, 0)).to_string(), "$1.00");
    /// ```
    #[must_use]
    pub fn with_long(mut self, over: u64, price: Self) -> Self {
        let Self {
            input,
            output,
            cached,
            cache_write,
            cache_write_hour,
            ..
        } = price;
        self.long = Some(LongPrice {
            over,
            input,
            output,
            cached,
            cache_write,
            cache_write_hour,
        });
        self
    }

    /// Returns the rates for a request of this many tokens.
    fn at(&self, input: u64) -> Self {
        match self.long {
            Some(LongPrice {
                over,
                input: sent,
                output,
                cached,
                cache_write,
                cache_write_hour,
            }) if input > over => Self {
                input: sent,
                output,
                cached,
                cache_write,
                cache_write_hour,
                long: None,
                ..*self
            },
            _ => *self,
        }
    }

    /// Returns the highest input and output rates of a request of up to this many tokens.
    fn dearest(&self, input: u64) -> (Money, Money) {
        let long = self.at(input);
        (
            self.dearest_input().max(long.dearest_input()),
            self.output.max(long.output),
        )
    }

    /// Returns the cost of this usage, rounded up; unknown counts and fees add nothing.
    ///
    /// ```
    /// # use levity_core::{Price, Usage};
    /// let price = Price::new(3.0, 15.0);
    /// assert_eq!(price.cost(&Usage::new(100_000, 20_000)).to_string(), "$0.60");
    /// ```
    pub fn cost(&self, usage: &Usage) -> Money {
        self.tokens(usage)
            .saturating_add(self.fees.of(usage, Money::ZERO))
    }

    /// Returns the cost of this usage if money is limited: an unknown fee counts as
    /// [`Fees::UNKNOWN`].
    ///
    /// ```
    /// # use levity_core::{Price, Usage};
    /// let price = Price::new(3.0, 15.0);
    /// let mut usage = Usage::new(100_000, 0);
    /// usage.searches = Some(2);
    /// assert_eq!(price.cost(&usage).to_string(), "$0.30"); // the fee of a search is unknown
    /// assert_eq!(price.cost_at_most(&usage).to_string(), "$0.40");
    /// ```
    pub fn cost_at_most(&self, usage: &Usage) -> Money {
        self.tokens(usage).saturating_add(self.max_fees(usage))
    }

    /// Returns the fees of the provider's tools if money is limited.
    pub fn max_fees(&self, usage: &Usage) -> Money {
        self.fees.of(usage, Fees::UNKNOWN)
    }

    fn tokens(&self, usage: &Usage) -> Money {
        if usage.priority {
            let mut usual = *usage;
            usual.priority = false;
            return self.with_hour().prioritised().tokens(&usual);
        }
        let input = usage.input.unwrap_or(0);
        let cached = usage.cached.unwrap_or(0).min(input);
        let written = usage.cache_written.unwrap_or(0).min(input - cached);
        let hour = usage.cache_written_hour.unwrap_or(0).min(written);
        let plain = input - cached - written;
        let rates = self.at(input);
        to_money(
            cost_in_millionths(plain, rates.input)
                .saturating_add(cost_in_millionths(
                    cached,
                    rates.cached.unwrap_or(rates.input),
                ))
                .saturating_add(cost_in_millionths(
                    written - hour,
                    rates.cache_write.unwrap_or(rates.input),
                ))
                .saturating_add(cost_in_millionths(hour, rates.hour()))
                .saturating_add(cost_in_millionths(usage.output.unwrap_or(0), rates.output)),
        )
    }

    /// Returns the maximum cost of this many tokens sent and received, whatever the provider's
    /// cache does.
    ///
    /// ```
    /// # use levity_core::Price;
    /// let price = Price::new(3.0, 15.0).with_cached(0.3).with_cache_write(3.75);
    /// // Every token sent may have to be written to the provider's cache.
    /// assert_eq!(price.max_cost(1_000_000, 0).to_string(), "$3.75");
    /// ```
    pub fn max_cost(&self, input: u64, output: u64) -> Money {
        let (sent, received) = self.dearest(input);
        to_money(
            cost_in_millionths(input, sent).saturating_add(cost_in_millionths(output, received)),
        )
    }

    /// Returns the number of tokens that may be received besides `input` tokens sent, at
    /// [`max_cost`](Self::max_cost), for this money. Returns `None` if the input alone costs more.
    ///
    /// ```
    /// # use levity_core::{Money, Price};
    /// let price = Price::new(1.0, 4.0);
    /// assert_eq!(price.affords(1_000, Money::from_dollars(0.002)), Some(250));
    /// assert_eq!(price.affords(1_000, Money::from_dollars(0.0005)), None);
    /// ```
    pub fn affords(&self, input: u64, money: Money) -> Option<u64> {
        let all = u128::from(money.0).saturating_mul(MILLION);
        let (sent, received) = self.dearest(input);
        let rest = all.checked_sub(cost_in_millionths(input, sent))?;
        let tokens = rest.checked_div(u128::from(received.0));
        Some(tokens.map_or(u64::MAX, |tokens| u64::try_from(tokens).unwrap_or(u64::MAX)))
    }

    fn dearest_input(&self) -> Money {
        let writes = self
            .cache_write
            .max(self.cache_write_hour)
            .unwrap_or_default();
        self.input.max(self.cached.unwrap_or_default()).max(writes)
    }
}

const MILLION: u128 = 1_000_000;

fn rate_from_dollars(dollars: f64) -> Money {
    if dollars >= 0.0 {
        Money((dollars * 1e9).ceil() as u64)
    } else {
        Money::MAX
    }
}

fn cost_in_millionths(tokens: u64, rate: Money) -> u128 {
    u128::from(tokens) * u128::from(rate.0)
}

fn to_money(millionths: u128) -> Money {
    Money(u64::try_from(millionths.div_ceil(MILLION)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
