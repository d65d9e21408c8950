//! Human in the loop: destructive calls wait for the decision of a person.
//!
//! ```text
//! cargo run --example approve
//! ```

use levity::prelude::*;
use levity::test::{ScriptedModel, Turn};
use levity::tools::{Policy, Rule};
use serde_json::json;

/// Deletes a file.
#[tool(destructive)]
async fn delete(
    /** The file. */
    path: String,
) -> String {
    format!("deleted {path}")
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("(a scripted model replaces a real one)\n");
    let model = ScriptedModel::new()
        .turn(
            Turn::new()
                .call("delete", json!({"path": "draft.txt"}))
                .call("delete", json!({"path": "thesis.txt"})),
        )
        .reply("The draft is deleted; you wanted to keep the thesis.");
    // The policy checks its rules in order. Without rules, it asks for approval of destructive
    // calls.
    let policy = Policy::new().rule(Rule::tool("delete").ask("deletions need approval"));
    let agent = Agent::builder(model).tool(delete).policy(policy).build()?;

    let mut run = agent.start("Tidy up.");
    let mut events = run.events();
    while let Some(event) = events.next().await {
        match event.kind {
            EventKind::Asked(ask) if ask.call.args["path"] == "draft.txt" => {
                println!("{} {} ? yes", ask.call.name, ask.call.args);
                run.approve(&ask).await?;
            }
            EventKind::Asked(ask) => {
                println!("{} {} ? no", ask.call.name, ask.call.args);
                run.deny(&ask, "it took three years to write").await?;
            }
            EventKind::ToolFinished { result, .. } => println!("   {}", result.text()),
            _ => {}
        }
    }
    println!("\n{}", run.await?);
    Ok(())
}
