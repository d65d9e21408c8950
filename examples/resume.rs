//! A run that is stopped half-way and goes on from its journal: what was done is not done again.
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
    /** To whom. */
    to: String,
) -> String {
    println!("   a letter goes to {to}");
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
            "{} records in the journal tell {} events again",
            records.len(),
            replayed.events.len()
        );
    }
    Ok(())
}
