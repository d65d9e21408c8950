//! Agents that share a blackboard: each one adds entries, and one of them answers once it has the
//! entries that it needs.
//!
//! ```text
//! cargo run --example blackboard
//! ```

use levity::prelude::*;
use levity::swarm::{Blackboard, Swarm, SwarmNotice, Worker};
use levity::test::{ScriptedModel, Turn};
use serde_json::json;

/// Creates an agent that agent_that_writes this entry in its first turn, and adds nothing after
/// that.
fn agent_that_writes(key: &str, content: &str) -> levity::Result<Agent> {
    let write = Turn::new().call("write_board", json!({"key": key, "content": content}));
    let model = ScriptedModel::new()
        .turn(write)
        .reply("It is on the board.")
        .reply("Nothing to add.");
    Agent::builder(model).build()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("(scripted models replace real ones)\n");
    let closing = ScriptedModel::new().reply("We sail at six, before the wind is up.");

    // The mate runs only when `tide` or `wind` is new on the board, so it does not run in the first
    // round.
    let swarm = Swarm::builder(Blackboard::new(closing).reads("mate", ["tide", "wind"]))
        .worker(Worker::new(
            "pilot",
            "Knows the tides.",
            agent_that_writes("tide", "High water is at six.")?,
        ))
        .worker(Worker::new(
            "watch",
            "Watches the sky.",
            agent_that_writes("wind", "Weak until eight.")?,
        ))
        .worker(Worker::new(
            "mate",
            "Decides.",
            agent_that_writes("answer", "At six: high water, weak wind.")?,
        ))
        .build()?;

    let finished = swarm
        .run("When do we sail?")
        .on_event(|event| match SwarmNotice::of(&event.kind) {
            Some(SwarmNotice::RoundBegan { round, .. }) => println!("Round {round}"),
            Some(SwarmNotice::Began { worker, .. }) => println!("  {worker} reads the board"),
            Some(SwarmNotice::Written { key, by, .. }) => println!("  {by} wrote `{key}`"),
            _ => {}
        })
        .await?;

    let board = finished.board().expect("the pattern is a blackboard");
    println!("\n{board}\n\n{}", finished.text());
    assert_eq!(finished.text(), "We sail at six, before the wind is up.");
    let written: Vec<_> = board
        .iter()
        .map(|entry| (&*entry.key, &*entry.by, entry.round))
        .collect();
    assert_eq!(
        written,
        [
            ("tide", "pilot", 1),
            ("wind", "watch", 1),
            ("answer", "mate", 2)
        ]
    );
    Ok(())
}
