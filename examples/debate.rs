//! Two agents debate in rounds, and a judge decides when the debate ends.
//!
//! ```text
//! cargo run --example debate
//! ```

use levity::prelude::*;
use levity::swarm::{Debate, MessageKind, Swarm, SwarmNotice, Worker};
use levity::test::ScriptedModel;

/// The first verdict of the judge: the debate continues.
const NOT_YET: &str =
    r#"{"done": false, "reason": "No one has explained how the wind affects the tide."}"#;
/// The second verdict of the judge: the answer.
const ENOUGH: &str = r#"{"done": true,
    "answer": "Sail at six: the water is high and the wind still weak.",
    "reason": "The watch has given up eight o'clock."}"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("(scripted models replace real ones)\n");
    let agent = |turns: [&str; 2]| {
        let model = turns
            .into_iter()
            .fold(ScriptedModel::new(), ScriptedModel::reply);
        Agent::builder(model).build()
    };
    let pilot = agent([
        "At six, when the water is high.",
        "A west wind only makes the tide higher. Six.",
    ])?;
    let watch = agent([
        "At eight, when it is light.",
        "Then the wind is up by eight. Six will do.",
    ])?;
    let judge = ScriptedModel::new().reply(NOT_YET).reply(ENOUGH);

    // The judge decides after each round, and ends the debate after the second of four.
    let swarm = Swarm::builder(Debate::new(judge).rounds(4).judge_each_round())
        .worker(Worker::new("pilot", "Knows the tides.", pilot))
        .worker(Worker::new("watch", "Watches the sky.", watch))
        .build()?;

    let finished = swarm
        .run("When do we sail?")
        .on_event(|event| match SwarmNotice::of(&event.kind) {
            Some(SwarmNotice::RoundBegan { round, of }) => {
                println!("Round {round} of at most {of}");
            }
            Some(SwarmNotice::Message(message)) if message.kind != MessageKind::Answer => {
                println!("  {}: {}", message.from, message.content);
            }
            _ => {}
        })
        .await?;

    println!("\n{}", finished.text());
    assert_eq!(
        finished.text(),
        "Sail at six: the water is high and the wind still weak."
    );
    let turns: Vec<&str> = finished
        .reports()
        .iter()
        .map(|report| &*report.id)
        .collect();
    assert_eq!(
        turns,
        [
            "round1.pilot",
            "round1.watch",
            "round2.pilot",
            "round2.watch"
        ]
    );
    Ok(())
}
