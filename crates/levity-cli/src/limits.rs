//! Limits on the money, tokens, calls and time of a run.

use std::time::Duration;

use clap::Args;
use levity::core::{Limits, Model, Money, Price};

/// The limits of a run.
#[derive(Args)]
pub(crate) struct LimitArgs {
    /// Spend no more than this on models in one run. The most that a call can cost is reserved
    /// before it is made.
    #[arg(long, value_name = "DOLLARS", value_parser = dollars, help_heading = "Limits")]
    limit_cost: Option<f64>,
    /// Count this price for models whose price is not known: dollars for a million tokens of input
    /// and of output, such as `0.5:2`.
    #[arg(long, value_name = "INPUT:OUTPUT", value_parser = price, requires = "limit_cost", help_heading = "Limits")]
    assume_price: Option<Price>,
    /// Send and receive no more tokens than this in one run.
    #[arg(long, value_name = "N", help_heading = "Limits")]
    limit_tokens: Option<u64>,
    /// Call models no more often than this in one run [default: 1000].
    #[arg(long, value_name = "N", help_heading = "Limits")]
    limit_calls: Option<u64>,
    /// Call tools no more often than this in one run [default: 10000].
    #[arg(long, value_name = "N", help_heading = "Limits")]
    limit_tool_calls: Option<u64>,
    /// Take no longer than this for one run.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, help_heading = "Limits")]
    limit_time: Option<Duration>,
}

fn amount(text: &str) -> Option<f64> {
    text.trim()
        .parse()
        .ok()
        .filter(|dollars: &f64| dollars.is_finite() && *dollars >= 0.0)
}

fn dollars(text: &str) -> Result<f64, String> {
    amount(text)
        .ok_or_else(|| "it must be an amount of dollars, 0 or more, such as 0.25".to_owned())
}

fn price(text: &str) -> Result<Price, String> {
    let both = text
        .split_once(':')
        .and_then(|(input, output)| Some((amount(input)?, amount(output)?)));
    let (input, output) =
        both.ok_or("write two amounts of dollars for a million tokens, such as 0.5:2")?;
    Ok(Price::new(input, output))
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text
        .trim()
        .parse()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| "it must be a number of seconds, 0 or more, such as 90".to_owned())
}

impl LimitArgs {
    pub(crate) fn limits(&self) -> Limits {
        let mut limits = Limits::new();
        limits.money = self.limit_cost.map(Money::from_dollars);
        limits.assumed_price = self.assume_price;
        limits.tokens = self.limit_tokens;
        limits.model_calls = self.limit_calls.or(limits.model_calls);
        limits.tool_calls = self.limit_tool_calls.or(limits.tool_calls);
        limits.wall_time = self.limit_time;
        limits
    }

    /// The limits, if some were given: a run that goes on keeps its own otherwise.
    pub(crate) fn given(&self) -> Option<Limits> {
        Some(self.limits()).filter(|limits| *limits != Limits::new())
    }

    /// Checks that the limit on money can be enforced for this model.
    pub(crate) fn check(&self, model: &dyn Model) -> Result<(), String> {
        let card = model.card();
        if self.limit_cost.is_none() || self.assume_price.is_some() || card.price.is_some() {
            return Ok(());
        }
        Err(format!(
            "the price of the model `{}` is not known, so `--limit-cost` cannot be kept; say what \
                to count with `--assume-price \
             INPUT:OUTPUT`, in dollars for a million tokens",
            card.id
        ))
    }
}
