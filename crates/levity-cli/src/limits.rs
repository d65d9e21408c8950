//! Limits on the money, tokens, calls and time of a run.
//!
//! The options become `Limits`, which the runtime enforces for a run with all its child runs. Calls
//! have defaults of 1000 model calls and 10000 tool calls; money, tokens and time are unlimited
//! unless given.
//!
//! A limit on money is only useful if prices are known. Commands therefore check the price of the
//! model before the start and refuse a limit that cannot hold, instead of running without it.

use std::time::Duration;

use clap::Args;
use levity::core::{Entry, Limits, Model, Money, Price, Record};

use crate::settings;

/// The options for limits on a run.
#[derive(Args)]
pub(crate) struct LimitArgs {
    /// Maximum cost of model calls in one run. The maximum cost of a call is reserved before the
    /// call.
    #[arg(long, value_name = "DOLLARS", value_parser = dollars, help_heading = "Limits")]
    limit_cost: Option<f64>,
    /// Assume this price for models with an unknown price: dollars per million tokens of input and
    /// of output, such as `0.5:2`.
    #[arg(
        long,
        value_name = "INPUT:OUTPUT",
        value_parser = price,
        requires = "limit_cost",
        help_heading = "Limits"
    )]
    assume_price: Option<Price>,
    /// Maximum number of tokens that one run may send and receive.
    #[arg(long, value_name = "N", help_heading = "Limits")]
    limit_tokens: Option<u64>,
    /// Maximum number of model calls in one run [default: 1000].
    #[arg(long, value_name = "N", help_heading = "Limits")]
    limit_calls: Option<u64>,
    /// Maximum number of tool calls in one run [default: 10000].
    #[arg(long, value_name = "N", help_heading = "Limits")]
    limit_tool_calls: Option<u64>,
    /// Maximum duration of one run.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, help_heading = "Limits")]
    limit_time: Option<Duration>,
}

/// Accepts a finite number of at least 0, with blanks around it.
fn amount(text: &str) -> Option<f64> {
    text.trim()
        .parse()
        .ok()
        .filter(|dollars: &f64| dollars.is_finite() && *dollars >= 0.0)
}

/// Zero is valid: it allows only calls that cost nothing.
fn dollars(text: &str) -> Result<f64, String> {
    amount(text).ok_or_else(|| "use an amount of dollars, 0 or more, such as 0.25".to_owned())
}

/// Parses `INPUT:OUTPUT` in dollars per million tokens, such as `0.5:2`.
fn price(text: &str) -> Result<Price, String> {
    let both = text
        .split_once(':')
        .and_then(|(input, output)| Some((amount(input)?, amount(output)?)));
    let (input, output) =
        both.ok_or("use two amounts of dollars per million tokens, such as 0.5:2")?;
    Ok(Price::new(input, output))
}

/// Fractions are accepted; zero, negative, infinite or too large numbers are not. A run without any
/// time could still end before the limit is checked.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text
        .trim()
        .parse()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .filter(|seconds| !seconds.is_zero());
    seconds.ok_or_else(|| "use a number of seconds greater than 0, such as 90".to_owned())
}

impl LimitArgs {
    /// Starts from the library's defaults, so options that were not given keep them.
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

    /// The limits of a resumed run, if the call changes one; the others are those of the journal.
    ///
    /// Settings do not count, because a run keeps the limits with which it was started.
    pub(crate) fn resumed(&self, records: &[Record]) -> Option<Limits> {
        let Some(Entry::Opened(header)) = records.first().map(|record| &record.entry) else {
            return None;
        };
        let stored = &*header.limits;
        let (given, mut limits) = (self.limits(), *stored);
        if is_given(self.limit_cost.is_some(), "limit_cost") {
            (limits.money, limits.assumed_price) = (given.money, given.assumed_price);
        }
        if is_given(self.limit_tokens.is_some(), "limit_tokens") {
            limits.tokens = given.tokens;
        }
        if is_given(self.limit_calls.is_some(), "limit_calls") {
            limits.model_calls = given.model_calls;
        }
        if is_given(self.limit_tool_calls.is_some(), "limit_tool_calls") {
            limits.tool_calls = given.tool_calls;
        }
        if is_given(self.limit_time.is_some(), "limit_time") {
            limits.wall_time = given.wall_time;
        }
        (limits != *stored).then_some(limits)
    }

    /// Checks that the limit on money can be enforced for this model.
    ///
    /// # Errors
    /// Returns an error if `--limit-cost` is given, the model has no price, and `--assume-price` is
    /// missing.
    pub(crate) fn check(&self, model: &dyn Model) -> Result<(), String> {
        let card = model.card();
        if self.limit_cost.is_none() || self.assume_price.is_some() || card.price.is_some() {
            return Ok(());
        }
        Err(format!(
            "the price of the model `{}` is unknown, so `--limit-cost` cannot be enforced; set a \
                price with `--assume-price INPUT:OUTPUT`, in dollars per million tokens",
            card.id
        ))
    }
}

/// Returns `true` if the user gave the option in the call.
fn is_given(is_set: bool, id: &str) -> bool {
    is_set && !settings::is_supplied(id)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use levity::core::{MachineKind, RunHeader, Timestamp};
    use serde_json::json;

    use super::*;

    #[derive(Parser)]
    struct Options {
        #[command(flatten)]
        limits: LimitArgs,
    }

    #[test]
    fn resumed_run_keeps_limits_that_call_does_not_give() {
        let mut stored = Limits::new();
        (stored.tokens, stored.model_calls) = (Some(500), Some(7));
        let header = RunHeader::new(MachineKind::new("agent", 1), json!({}), stored);
        let records = [Record::new(
            0,
            Timestamp::from_millis(0),
            Entry::Opened(header),
        )];
        let resumed = |args: &[&str]| {
            let args = [&["levity"], args].concat();
            Options::parse_from(args).limits.resumed(&records)
        };
        assert_eq!(resumed(&[]), None);
        assert_eq!(resumed(&["--limit-calls", "7"]), None);
        // A limit that equals the default is a limit.
        stored.model_calls = Some(Limits::DEFAULT_MODEL_CALLS);
        assert_eq!(resumed(&["--limit-calls", "1000"]), Some(stored));
        stored.wall_time = Some(Duration::from_secs(9));
        let both = ["--limit-calls", "1000", "--limit-time", "9"];
        assert_eq!(resumed(&both), Some(stored));
    }
}
