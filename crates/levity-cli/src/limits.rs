//! What a run of several agents may use.

use std::time::Duration;

use clap::Args;
use levity::core::{Limits, Money};

/// What the whole run may use.
#[derive(Args)]
pub(crate) struct LimitArgs {
    /// Use no more money than this.
    #[arg(long, value_name = "DOLLARS", value_parser = dollars)]
    limit_cost: Option<f64>,
    /// Use no more tokens than this.
    #[arg(long, value_name = "N")]
    limit_tokens: Option<u64>,
    /// Call models no more often than this.
    #[arg(long, value_name = "N")]
    limit_calls: Option<u64>,
    /// Take no longer than this.
    #[arg(long, value_name = "SECONDS")]
    limit_time: Option<u64>,
}

fn dollars(text: &str) -> Result<f64, String> {
    let dollars = text.parse().ok().filter(|dollars: &f64| dollars.is_finite() && *dollars >= 0.0);
    dollars.ok_or_else(|| "it must be an amount of dollars, 0 or more".to_owned())
}

impl LimitArgs {
    pub(crate) fn limits(&self) -> Limits {
        let mut limits = Limits::new();
        limits.money = self.limit_cost.map(Money::from_dollars);
        limits.tokens = self.limit_tokens;
        limits.model_calls = self.limit_calls.or(limits.model_calls);
        limits.wall_time = self.limit_time.map(Duration::from_secs);
        limits
    }
}
