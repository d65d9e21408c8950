//! A conversation that agents hand off to each other, with a filter on the history. A second run
//! continues the conversation.
//!
//! ```text
//! cargo run --example handoff
//! ```

use levity::prelude::*;
use levity::runtime::Run;
use levity::swarm::{Handoff, HandoffHistory, Swarm, SwarmInput, SwarmNotice, Worker};
use levity::test::{ScriptedModel, Turn};
use serde_json::json;

fn transfer(to: &str, note: &str) -> Turn {
    Turn::new().call("transfer_to", json!({"to": to, "note": note}))
}

fn agent(model: ScriptedModel, instructions: &str) -> Result<Agent, Box<dyn std::error::Error>> {
    Ok(Agent::builder(model).instructions(instructions).build()?)
}

/// Prints the handoffs of a run.
fn with_printed_handoffs(run: Run<Swarm>) -> Run<Swarm> {
    run.on_event(|event| match SwarmNotice::of(&event.kind) {
        Some(SwarmNotice::Began { worker, .. }) => println!("  {worker} has the conversation"),
        Some(SwarmNotice::HandedOff { from, to, note }) => {
            println!("  {from} hands off to {to}: {note}");
        }
        Some(SwarmNotice::LoopFound {
            from,
            to,
            reason: why,
        }) => {
            println!("  {from} may not hand off to {to}: {why}");
        }
        _ => {}
    })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("(scripted models replace real ones)\n");
    let triage = ScriptedModel::new().turn(transfer(
        "billing",
        "Asks why the March bill is \
        higher.",
    ));
    // The second question does not belong to billing.
    let billing = ScriptedModel::new()
        .reply("In March you had two visits; the second was for the pump.")
        .turn(transfer(
            "repairs",
            "Asks whether the pump is under warranty.",
        ));
    let repairs = ScriptedModel::new().reply("It is, until next March. The repair is free.");

    // By default, every agent may hand off to every other one. Triage is limited to these two, and
    // repairs does not receive tool results.
    let handoff = Handoff::starting_with("triage")
        .allow_transfers("triage", ["billing", "repairs"])
        .history_for("repairs", HandoffHistory::TextOnly)
        .max_handoffs(6);
    let swarm = Swarm::builder(handoff)
        .worker(Worker::new(
            "triage",
            "Finds out what a caller needs.",
            agent(triage, "You answer the phone.")?,
        ))
        .worker(Worker::new(
            "billing",
            "Knows bills and payments.",
            agent(billing, "You keep the books.")?,
        ))
        .worker(Worker::new(
            "repairs",
            "Knows boilers and pumps.",
            agent(repairs, "You repair boilers.")?,
        ))
        .build()?;

    let question = "Why is my bill for March so high?";
    println!("{question}");
    let first = with_printed_handoffs(swarm.run(question)).await?;
    println!(
        "{}: {}\n",
        first.last_speaker().unwrap_or_default(),
        first.text()
    );
    assert_eq!(first.last_speaker(), Some("billing"));

    // The next question goes to the last speaker, who has the history of the conversation.
    let question = "Is the pump not under warranty?";
    println!("{question}");
    let second = with_printed_handoffs(swarm.run(SwarmInput::from(question).after(&first))).await?;
    println!(
        "{}: {}",
        second.last_speaker().unwrap_or_default(),
        second.text()
    );
    assert_eq!(second.last_speaker(), Some("repairs"));
    assert_eq!(
        second.text(),
        "It is, until next March. The repair is free."
    );
    let legs: Vec<&str> = second.reports().iter().map(|leg| &*leg.worker).collect();
    assert_eq!(legs, ["billing", "repairs"]);
    Ok(())
}
