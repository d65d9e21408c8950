//! The estimate of a plan's tokens and cost: `levity plan --estimate`.
//!
//! The planner makes the plan in an ordinary run of the team, which ends before its first step: the
//! approver takes the plan and denies it. A plan from a file needs no run. The computation is
//! `Team::estimate` of the library; this module only prints it.

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use levity::core::{Approver, Ask, Decision, Money, Price, Usage};
use levity::dag::{APPROVE_PLAN_TOOL, EstimateRange, Plan, PlanEstimate, StepEstimate};
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::terminal::{print_json, print_text};

/// The cost of a step whose model has no known price.
const UNKNOWN: &str = "unknown";

/// The plan that a planner made and that is not carried out.
#[derive(Clone, Default)]
pub(crate) struct PlanDraft(Arc<Mutex<Option<Plan>>>);

impl PlanDraft {
    /// Takes the plan, if the planner made a valid one.
    pub(super) fn take(&self) -> Option<Plan> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[async_trait]
impl Approver for PlanDraft {
    /// Everything is denied: nothing runs for an estimate.
    async fn decide(&self, ask: &Ask) -> Decision {
        if ask.call.name == APPROVE_PLAN_TOOL
            && let Ok(plan) = Plan::deserialize(&ask.call.args)
        {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(plan);
        }
        Decision::deny("only an estimate was requested")
    }
}

/// Prints an estimate. `planning` is the usage of the planner, if it was called.
pub(super) fn print(
    plan: &Plan,
    estimate: &PlanEstimate,
    planning: Option<Usage>,
    as_json: bool,
) -> ExitCode {
    match as_json {
        true => print_json(&object(plan, estimate, planning)),
        false => print_text(&table(estimate, planning)),
    }
    ExitCode::SUCCESS
}

/// Returns the estimate with the price of `--assume-price` for models without a price.
pub(super) fn with_assumed_price(mut estimate: PlanEstimate, price: Option<Price>) -> PlanEstimate {
    let Some(price) = price else { return estimate };
    for step in estimate.steps.iter_mut().filter(|step| step.cost.is_none()) {
        let cost = |input, output| price.cost(&Usage::new(input, output));
        let low = cost(step.input.low, step.output.low);
        step.cost = Some(EstimateRange::new(
            low,
            cost(step.input.high, step.output.high),
        ));
    }
    estimate
}

/// The names of the fields are an interface for programs. Money is in dollars.
fn object(plan: &Plan, estimate: &PlanEstimate, planning: Option<Usage>) -> Value {
    let money = |range: EstimateRange<Money>| {
        let (low, high) = (dollars(range.low), dollars(range.high));
        json!({"low": low, "high": high})
    };
    let step = |step: &StepEstimate| {
        json!({
            "step": step.step,
            "agent": step.agent,
            "model": step.model,
            "calls": step.calls,
            "input": step.input,
            "output": step.output,
            "cost": step.cost.map(money),
        })
    };
    json!({
        "estimate": true,
        "steps": estimate.steps.iter().map(step).collect::<Vec<_>>(),
        "total": {
            "tokens": estimate.tokens(),
            "known_cost": money(estimate.known_cost()),
            "unpriced_models": estimate.unpriced_models(),
        },
        "planning": planning,
        "plan": plan,
    })
}

/// Converts money to a number for JSON, as in the other outputs of the command.
fn dollars(money: Money) -> f64 {
    money.nanos() as f64 / 1e9
}

/// Formats the estimate as a table, with its limits below.
fn table(estimate: &PlanEstimate, planning: Option<Usage>) -> String {
    let head = ["step", "agent", "model", "calls", "tokens", "cost"].map(str::to_owned);
    let mut rows = vec![head];
    rows.extend(estimate.steps.iter().map(row));
    let unpriced = estimate.unpriced_models();
    let known = estimate.known_cost();
    let cost = match (unpriced.is_empty(), known.high == Money::ZERO) {
        (true, _) => cost(known),
        (false, true) => UNKNOWN.to_owned(),
        (false, false) => format!("{} + {UNKNOWN}", cost(known)),
    };
    let tokens = count(estimate.tokens());
    let total = ["total", "", "", "", &tokens, &cost].map(str::to_owned);
    rows.push(total);
    let mut text = aligned(&rows);
    text += "\nThis is an estimate, not a limit: agents can take more or fewer turns, and changes \
        of the plan\nadd steps. Use `--limit-cost` or `--limit-tokens` for a limit.\n";
    if !unpriced.is_empty() {
        text += &format!(
            "The price of these models is unknown: {}.\n",
            unpriced.join(", ")
        );
    }
    if let Some(usage) = planning {
        text += &format!("Making the plan took {usage}.\n");
    }
    text
}

/// Formats a step. A step of code has no agent, and a step without model calls has no model.
fn row(step: &StepEstimate) -> [String; 6] {
    let tokens = EstimateRange::new(
        step.input.low.saturating_add(step.output.low),
        step.input.high.saturating_add(step.output.high),
    );
    let agent = match &*step.agent {
        "" => "(code)",
        agent => agent,
    };
    [
        step.step.to_string(),
        agent.to_owned(),
        step.model.clone().unwrap_or_else(|| "none".to_owned()),
        count(step.calls),
        count(tokens),
        step.cost.map_or_else(|| UNKNOWN.to_owned(), cost),
    ]
}

/// Formats a range of numbers, with one number if both ends are equal.
fn count(range: EstimateRange<u64>) -> String {
    match range.low == range.high {
        true => grouped(range.low),
        false => format!("{} to {}", grouped(range.low), grouped(range.high)),
    }
}

/// Formats a number with a comma after each group of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a range of money, with one amount if both ends are equal.
fn cost(range: EstimateRange<Money>) -> String {
    match range.low == range.high {
        true => rounded(range.low),
        false => format!("{} to {}", rounded(range.low), rounded(range.high)),
    }
}

/// Rounds up, because more digits would promise more than an estimate knows.
fn rounded(money: Money) -> String {
    /// A hundredth of a cent, in billionths of a dollar.
    const UNIT: u64 = 100_000;
    let up = money.nanos().div_ceil(UNIT).saturating_mul(UNIT);
    Money::from_nanos(up).to_string()
}

/// Aligns the columns, with two blanks between them.
fn aligned(rows: &[[String; 6]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..6).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths);
        let line: Vec<_> = cells
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        text += line.join("  ").trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_money_are_grouped_and_rounded_up() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(rounded(Money::from_nanos(1)), "$0.0001");
        assert_eq!(rounded(Money::from_dollars(0.25)), "$0.25");
        assert_eq!(count(EstimateRange::new(2, 2)), "2");
    }
}
