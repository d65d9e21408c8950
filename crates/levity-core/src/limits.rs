use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Money, Price};

/// How much a run and all its children may use together; what is `None` is not limited.
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
    /// Calls of a model; by default [`DEFAULT_MODEL_CALLS`](Self::DEFAULT_MODEL_CALLS).
    pub model_calls: Option<u64>,
    /// Calls of tools; by default [`DEFAULT_TOOL_CALLS`](Self::DEFAULT_TOOL_CALLS).
    pub tool_calls: Option<u64>,
    /// Tokens sent and received; not limited by default. What a call may take at most is reserved
    /// before it is made, so they are never more.
    pub tokens: Option<u64>,
    /// Money; not limited by default. What a call may cost at most is reserved before it is made,
    /// so it is never more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub money: Option<Money>,
    /// What a model is taken to cost whose card has no price. Without it, a run whose money is
    /// limited does not call such a model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assumed_price: Option<Price>,
    /// At how many percent left of its money or tokens the run is told that they are low; never by
    /// default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low: Option<u8>,
    /// Time from the start to the end; not limited by default.
    pub wall_time: Option<Duration>,
    /// How many runs may stand above a child; [`DEFAULT_DEPTH`](Self::DEFAULT_DEPTH) by default.
    pub depth: usize,
}

impl Limits {
    /// 1,000 calls of a model.
    pub const DEFAULT_MODEL_CALLS: u64 = 1_000;
    /// 10,000 calls of tools.
    pub const DEFAULT_TOOL_CALLS: u64 = 10_000;
    /// A child of a child … eight times.
    pub const DEFAULT_DEPTH: usize = 8;

    /// The defaults.
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

    /// Limits the calls of a model.
    #[must_use]
    pub const fn model_calls(mut self, calls: u64) -> Self {
        self.model_calls = Some(calls);
        self
    }

    /// Limits the calls of tools.
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

    /// Limits the money.
    #[must_use]
    pub const fn money(mut self, money: Money) -> Self {
        self.money = Some(money);
        self
    }

    /// Says what a model is taken to cost whose card has no price.
    #[must_use]
    pub const fn assumed_price(mut self, price: Price) -> Self {
        self.assumed_price = Some(price);
        self
    }

    /// Tells the run once only so many percent of its money or tokens are left; more than 100 is
    /// 100.
    #[must_use]
    pub const fn low(mut self, percent: u8) -> Self {
        self.low = Some(if percent > 100 { 100 } else { percent });
        self
    }

    /// Limits the time.
    #[must_use]
    pub const fn wall_time(mut self, time: Duration) -> Self {
        self.wall_time = Some(time);
        self
    }

    /// No more than another one allows, of each.
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

    /// Limits how deep children may nest.
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

/// Which limit was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Limit {
    /// Turns of the loop.
    Turns,
    /// Calls of a model.
    ModelCalls,
    /// Calls of tools.
    ToolCalls,
    /// Tokens.
    Tokens,
    /// Money.
    Money,
    /// Time.
    WallTime,
    /// Nesting of runs.
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
