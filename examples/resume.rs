//! A run that stops half-way and resumes from its journal, without repeating finished calls.
//!
//! ```text
//! cargo run --example resume
//! ```

use levity::core::RunId;
use levity::prelude::*;
use levity::runtime::{MemoryJournal, replay};
use levity::test::{FaultyJournal, ScriptedModel, Turn};
use serde_json::json;

/// Sends a letter.
#[tool]
async fn send(
    /** The recipient. */
    to: String,
) -> String {
    println!("   sending a letter to {to}");
    format!("sent to {to}")
}

#[tokio::main]
async fn main() -> levity::Result<()> {
    println!("(a scripted model replaces a real one)\n");
    let model = ScriptedModel::new()
        .turn(
            Turn::new()
                .call("send", json!({"to": "Paris"}))
                .call("send", json!({"to": "Rome"})),
        )
        .reply("Both letters are on their way.");
    let agent = |runtime| {
        Agent::builder(model.clone())
            .tool(send)
            .runtime(runtime)
            .build()
    };
    let journal = MemoryJournal::new();

    println!("the first process:");
    // The power fails after five records: the first letter is sent, the second is not.
    let failing = FaultyJournal::new(journal.clone()).stop_after_records(5);
    let first = agent(Runtime::new().with_journal(failing))?;
    if let Err(error) = first.run("Write to Paris and Rome.").id("letters").await {
        println!("   {error}");
    }

    println!("the second process:");
    let second = agent(Runtime::new().with_journal(journal.clone()))?;
    let run = RunId::new("letters");
    println!("   {}\n", second.resume(run.clone()).await?);

    let records = journal.records(&run);
    if let Ok(replayed) = replay(&run, &records, |_, state| second.restore(state)) {
        println!(
            "{} records in the journal replay {} events",
            records.len(),
            replayed.events.len()
        );
    }
    Ok(())
}
