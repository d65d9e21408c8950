//! An agent that delegates work to another. The child run shares the event stream and the limits.
//!
//! ```text
//! cargo run --example delegate
//! ```

use levity::prelude::*;
use levity::test::{ScriptedModel, Turn};
use serde_json::json;

/// Multiplies two numbers.
#[tool(read_only)]
async fn multiply(
    /** left */
    a: f64,
    /** right */
    b: f64,
) -> f64 {
    a * b
}

#[tokio::main]
async fn main() -> levity::Result<()> {
    println!("(scripted models replace real ones)\n");
    let calculator = Agent::builder(
        ScriptedModel::new()
            .turn(
                Turn::new()
                    .call("multiply", json!({"a": 12, "b": 7}))
                    .usage(40, 9),
            )
            .reply("84"),
    )
    .instructions("You calculate.")
    .tool(multiply)
    .build()?;

    let lead = Agent::builder(
        ScriptedModel::new()
            .turn(
                Turn::new()
                    .call("calculator", json!({"task": "What is 12 * 7?"}))
                    .usage(50, 12),
            )
            .reply("A dozen weeks are 84 days."),
    )
    .agent("calculator", "Works out sums.", calculator)
    .limits(Limits::new().model_calls(10)) // for both runs together
    .build()?;

    let answer = lead
        .run("How many days are a dozen weeks?")
        .on_event(|event| {
            let indent = "  ".repeat(event.run.depth());
            match &event.kind {
                EventKind::ChildStarted { agent, .. } => println!("{indent}delegates to {agent}"),
                EventKind::Goal { text } => println!("{indent}goal: {text}"),
                EventKind::ToolFinished { result, .. } => {
                    println!("{indent}{} returned {}", result.name, result.text());
                }
                EventKind::RunEnded(ending) => {
                    println!("{indent}{}: {}", ending.status, ending.text);
                }
                _ => {}
            }
        })
        .await?;
    println!("\n{answer} ({})", answer.usage());
    Ok(())
}
