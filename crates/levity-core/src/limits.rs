use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Money, Price};

/// The limits of a run and all its descendants together; `None` means unlimited.
///
/// ```
/// # use levity_core::Limits;
/// let limits = Limits::new().model_calls(20).tokens(100_000);
/// assert_eq!(limits.tool_calls, Some(Limits::DEFAULT_TOOL_CALLS));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Limits {
    /// The maximum number of model calls; [`DEFAULT_MODEL_CALLS`](Self::DEFAULT_MODEL_CALLS) by
    /// default.
    pub model_calls: Option<u64>,
    /// The maximum number of tool calls; [`DEFAULT_TOOL_CALLS`](Self::DEFAULT_TOOL_CALLS) by
    /// default.
    pub tool_calls: Option<u64>,
    /// The maximum of tokens sent and received; unlimited by default. The runtime reserves the
    /// upper bound of each call before it makes the call, so the limit is never exceeded.
    pub tokens: Option<u64>,
    /// The maximum amount of money; unlimited by default. The runtime reserves the upper bound of
    /// each call before it makes the call, so the limit is never exceeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub money: Option<Money>,
    /// The price assumed for a model whose card has no price. Without it, a run with a money limit
    /// does not call such a model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assumed_price: Option<Price>,
    /// The percentage of remaining money or tokens at which the run is warned that they are low; no
    /// warning by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low: Option<u8>,
    /// The maximum time from start to end; unlimited by default.
    pub wall_time: Option<Duration>,
    /// The maximum number of ancestors of a child run; [`DEFAULT_DEPTH`](Self::DEFAULT_DEPTH) by
    /// default.
    pub depth: usize,
}

impl Limits {
    /// The default limit of 1,000 model calls.
    pub const DEFAULT_MODEL_CALLS: u64 = 1_000;
    /// The default limit of 10,000 tool calls.
    pub const DEFAULT_TOOL_CALLS: u64 = 10_000;
    /// The default limit of eight nested child runs.
    pub const DEFAULT_DEPTH: usize = 8;

    /// Creates limits with the default values.
    pub const fn new() -> Self {
        Self {
            model_calls: Some(Self::DEFAULT_MODEL_CALLS),
            tool_calls: Some(Self::DEFAULT_TOOL_CALLS),
            tokens: None,
            money: None,
            assumed_price: None,
            low: None,
            wall_time: None,
            depth: Self::DEFAULT_DEPTH,
        }
    }

    /// Limits the number of model calls.
    #[must_use]
    pub const fn model_calls(mut self, calls: u64) -> Self {
        self.model_calls = Some(calls);
        self
    }

    /// Limits the number of tool calls.
    #[must_use]
    pub const fn tool_calls(mut self, calls: u64) -> Self {
        self.tool_calls = Some(calls);
        self
    }

    /// Limits the tokens sent and received.
    #[must_use]
    pub const fn tokens(mut self, tokens: u64) -> Self {
        self.tokens = Some(tokens);
        self
    }

    /// Limits the amount of money.
    #[must_use]
    pub const fn money(mut self, money: Money) -> Self {
        self.money = Some(money);
        self
    }

    /// Sets the price assumed for a model whose card has no price.
    #[must_use]
    pub const fn assumed_price(mut self, price: Price) -> Self {
        self.assumed_price = Some(price);
        self
    }

    /// Warns the run once only this percentage of its money or tokens remains; values above 100
    /// count as 100.
    ///
    /// ```
    /// # use levity_core::{Limits, Money};
    /// let limits = Limits::new().money(Money::from_dollars(2.0)).low(20); // warns at $0.40
    /// assert_eq!((limits.low, limits.low(200).low), (Some(20), Some(100)));
    /// ```
    #[must_use]
    pub const fn low(mut self, percent: u8) -> Self {
        self.low = Some(if percent > 100 { 100 } else { percent });
        self
    }

    /// Limits the time from start to end.
    #[must_use]
    pub const fn wall_time(mut self, time: Duration) -> Self {
        self.wall_time = Some(time);
        self
    }

    /// Returns the stricter of both limits for each setting.
    ///
    /// ```
    /// # use levity_core::Limits;
    /// let own = Limits::new().model_calls(20);
    /// let both = own.within(&Limits::new().model_calls(50).tokens(1_000));
    /// assert_eq!((both.model_calls, both.tokens), (Some(20), Some(1_000)));
    /// ```
    #[must_use]
    pub fn within(mut self, other: &Self) -> Self {
        fn less<T: Ord + Copy>(own: Option<T>, other: Option<T>) -> Option<T> {
            [own, other].into_iter().flatten().min()
        }
        self.model_calls = less(self.model_calls, other.model_calls);
        self.tool_calls = less(self.tool_calls, other.tool_calls);
        self.tokens = less(self.tokens, other.tokens);
        self.money = less(self.money, other.money);
        self.wall_time = less(self.wall_time, other.wall_time);
        self.assumed_price = self.assumed_price.or(other.assumed_price);
        self.low = self.low.or(other.low);
        self.depth = self.depth.min(other.depth);
        self
    }

    /// Limits how deep child runs may nest.
    #[must_use]
    pub const fn depth(mut self, depth: usize) -> Self {
        self.depth = depth;
        self
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::new()
    }
}

/// A limit that was reached.
///
/// ```
/// # use levity_core::{Limit, Status};
/// let status = Status::Partial(Limit::Turns);
/// assert_eq!(status.to_string(), "stopped: the limit on turns was reached");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Limit {
    /// The number of turns.
    Turns,
    /// The number of model calls.
    ModelCalls,
    /// The number of tool calls.
    ToolCalls,
    /// The tokens sent and received.
    Tokens,
    /// The amount of money.
    Money,
    /// The time from start to end.
    WallTime,
    /// The nesting depth of runs.
    Depth,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Turns => "turns",
            Self::ModelCalls => "model calls",
            Self::ToolCalls => "tool calls",
            Self::Tokens => "tokens",
            Self::Money => "money",
            Self::WallTime => "time",
            Self::Depth => "depth of child runs",
        })
    }
}
