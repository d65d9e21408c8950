//! A limit on money, for an agent and all it hands work to: never passed, and a cheaper model near
//! its end.
//!
//! ```text
//! cargo run --example budget
//! ```

use levity::agent::Low;
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
    // The first would look things up for ever, at 3 dollars per million tokens sent and 15
    // received.
    let dear = ModelCard::new("test", "dear")
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

    let agent = Agent::builder(ScriptedModel::looping(turn).with_card(dear))
        .tool(look_up)
        .model_for("cheap", ScriptedModel::looping(answer).with_card(cheap))
        .when_low(Low::Switch)
        .limits(Limits::new().money(Money::from_dollars(0.1)).low(75))
        .build()?;

    let answer = agent
        .run("What is levity?")
        .on_event(|event| match &event.kind {
            EventKind::ModelStarted { slot, .. } => println!("calls `{slot}`"),
            EventKind::ModelFinished { usage, .. } => println!("  {usage}"),
            EventKind::LimitLow(limit) => println!("little is left of the limit on {limit}"),
            _ => {}
        })
        .await?;
    println!("\n{answer} ({})", answer.usage());
    Ok(())
}
