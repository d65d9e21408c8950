//! A limit on money, for an agent and its child runs. The run never exceeds the limit, and switches
//! to a cheaper model when little money remains.
//!
//! ```text
//! cargo run --example budget
//! ```

use levity::agent::LowBudgetAction;
use levity::core::{ModelCard, Money, Price};
use levity::prelude::*;
use levity::test::{ScriptedModel, Turn};
use serde_json::json;

/// Looks something up.
#[tool(read_only)]
async fn look_up(
    /** what */
    what: String,
) -> String {
    format!("{what}: see elsewhere")
}

#[tokio::main]
async fn main() -> levity::Result<()> {
    println!("(scripted models replace real ones)\n");
    // The first model never stops calling the tool, at 3 dollars per million input tokens and 15
    // per million output tokens.
    let expensive = ModelCard::new("test", "expensive")
        .with_price(Price::new(3.0, 15.0))
        .with_max_output(1_000);
    let turn = Turn::new()
        .call("look_up", json!({"what": "levity"}))
        .usage(2_000, 100);
    let cheap = ModelCard::new("test", "cheap")
        .with_price(Price::new(0.1, 0.4))
        .with_max_output(1_000);
    let answer = Turn::new()
        .text("It is the opposite of gravity.")
        .usage(2_400, 20);

    let agent = Agent::builder(ScriptedModel::looping(turn).with_card(expensive))
        .tool(look_up)
        .model_for("cheap", ScriptedModel::looping(answer).with_card(cheap))
        .on_low_budget(LowBudgetAction::Switch)
        .limits(Limits::new().money(Money::from_dollars(0.1)).low(75))
        .build()?;

    let answer = agent
        .run("What is levity?")
        .on_event(|event| match &event.kind {
            EventKind::ModelStarted { slot, .. } => println!("calls `{slot}`"),
            EventKind::ModelFinished { usage, .. } => println!("  {usage}"),
            EventKind::LimitLow(limit) => println!("little remains of the limit on {limit}"),
            _ => {}
        })
        .await?;
    println!("\n{answer} ({})", answer.usage());
    Ok(())
}
