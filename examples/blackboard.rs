//! Agents who share a board: each adds what it knows, and one of them answers when it has what it
//! needs.
//!
//! ```text
//! cargo run --example blackboard
//! ```

use levity::prelude::*;
use levity::swarm::{Blackboard, Swarm, SwarmNotice, Worker};
use levity::test::{ScriptedModel, Turn};
use serde_json::json;

/// An agent that writes this on the board when it is first asked, and has nothing to add after
/// that.
fn writes(key: &str, content: &str) -> levity::Result<Agent> {
    let wrote = Turn::new().call("write_board", json!({"key": key, "content": content}));
    let model = ScriptedModel::new()
        .turn(wrote)
        .reply("It is on the board.")
        .reply("Nothing to add.");
    Agent::builder(model).build()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("(scripted models replace real ones)\n");
    let closing = ScriptedModel::new().reply("We sail at six, before the wind is up.");

    // The mate is asked only when the tide or the wind is new on the board, so not in the first
    // round.
    let swarm = Swarm::builder(Blackboard::new(closing).reads("mate", ["tide", "wind"]))
        .worker(Worker::new(
            "pilot",
            "Knows the tides.",
            writes("tide", "High water is at six.")?,
        ))
        .worker(Worker::new(
            "watch",
            "Looks at the sky.",
            writes("wind", "Weak until eight.")?,
        ))
        .worker(Worker::new(
            "mate",
            "Decides.",
            writes("answer", "At six: high water, weak wind.")?,
        ))
        .build()?;

    let finished = swarm
        .run("When do we sail?")
        .on_event(|event| match SwarmNotice::of(&event.kind) {
            Some(SwarmNotice::RoundBegan { round, .. }) => println!("Round {round}"),
            Some(SwarmNotice::Began { worker, .. }) => println!("  {worker} looks at the board"),
            Some(SwarmNotice::Written { key, by, .. }) => println!("  {by} has written `{key}`"),
            _ => {}
        })
        .await?;

    let board = finished.board().expect("it is a blackboard");
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
