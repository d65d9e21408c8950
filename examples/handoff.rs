//! A conversation that is passed on from desk to desk, with a filter on what goes along, and goes
//! on in a second run.
//!
//! ```text
//! cargo run --example handoff
//! ```

use levity::prelude::*;
use levity::runtime::Run;
use levity::swarm::{Handoff, HandoffHistory, Swarm, SwarmInput, SwarmNotice, Worker};
use levity::test::{ScriptedModel, Turn};
use serde_json::json;

fn pass(to: &str, note: &str) -> Turn {
    Turn::new().call("transfer_to", json!({"to": to, "note": note}))
}

fn agent(model: ScriptedModel, instructions: &str) -> Result<Agent, Box<dyn std::error::Error>> {
    Ok(Agent::builder(model).instructions(instructions).build()?)
}

/// Says what happens while the conversation goes around.
fn shown(run: Run<Swarm>) -> Run<Swarm> {
    run.on_event(|event| match SwarmNotice::of(&event.kind) {
        Some(SwarmNotice::Began { worker, .. }) => println!("  {worker} has the conversation"),
        Some(SwarmNotice::HandedOff { from, to, note }) => {
            println!("  {from} passes it on to {to}: {note}");
        }
        Some(SwarmNotice::LoopFound { from, to, why }) => {
            println!("  {from} keeps it from {to}: {why}");
        }
        _ => {}
    })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("(scripted models replace real ones)\n");
    let triage = ScriptedModel::new().turn(pass("billing", "Asks why the March bill is higher."));
    // The second question is none for the till.
    let billing = ScriptedModel::new()
        .reply("In March you had two visits; the second was for the pump.")
        .turn(pass(
            "repairs",
            "Wants to know whether the pump is under warranty.",
        ));
    let repairs = ScriptedModel::new().reply("It is, until next March. We come for nothing.");

    // Anybody may pass on to anybody, but triage only to these two; repairs need not see what tools
    // said.
    let handoff = Handoff::starting_with("triage")
        .to("triage", ["billing", "repairs"])
        .carry_to("repairs", HandoffHistory::Words)
        .max_handoffs(6);
    let swarm = Swarm::builder(handoff)
        .worker(Worker::new(
            "triage",
            "Finds out what a caller wants.",
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
            agent(repairs, "You mend boilers.")?,
        ))
        .build()?;

    let question = "Why is my bill for March so high?";
    println!("{question}");
    let first = shown(swarm.run(question)).await?;
    println!(
        "{}: {}\n",
        first.last_speaker().unwrap_or_default(),
        first.text()
    );
    assert_eq!(first.last_speaker(), Some("billing"));

    // The next question goes to whoever had the conversation last, who knows what was said.
    let question = "Is the pump not under warranty?";
    println!("{question}");
    let second = shown(swarm.run(SwarmInput::from(question).after(&first))).await?;
    println!(
        "{}: {}",
        second.last_speaker().unwrap_or_default(),
        second.text()
    );
    assert_eq!(second.last_speaker(), Some("repairs"));
    assert_eq!(
        second.text(),
        "It is, until next March. We come for nothing."
    );
    let legs: Vec<&str> = second.reports().iter().map(|leg| &*leg.worker).collect();
    assert_eq!(legs, ["billing", "repairs"]);
    Ok(())
}
