//! A custom pattern: four agents answer, three of them vote, and the answer with the most votes
//! wins.
//!
//! ```text
//! cargo run --example pattern
//! ```

use std::collections::BTreeMap;

use levity::core::ToolSpec;
use levity::prelude::*;
use levity::swarm::{Coordinator, Delegation, Move, Swarm, SwarmProgress, Worker};
use levity::test::ScriptedModel;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The settings and the state of a run; levity saves it as JSON and restores it.
#[derive(Clone, Serialize, Deserialize)]
struct Vote {
    /// Workers that may not vote.
    guests: Vec<String>,
}

impl Coordinator for Vote {
    fn name(&self) -> &str {
        "vote"
    }

    /// Returns the next move: at the start, and after all work of a round is done.
    fn next(&mut self, progress: &SwarmProgress<'_>) -> Move {
        match progress.round() {
            0 => Move::Work(
                progress
                    .workers()
                    .map(|name| Delegation::new(name, name, progress.goal()))
                    .collect(),
            ),
            1 => {
                let answers: Vec<_> = progress
                    .last_round()
                    .iter()
                    .filter(|report| report.is_done())
                    .collect();
                let voters = progress
                    .workers()
                    .filter(|name| !self.guests.iter().any(|guest| guest == name));
                let vote = |name: &str| {
                    let task = "Call `vote` with the name of the colleague whose answer is best.";
                    // Each voter receives the answers.
                    let ids = answers.iter().map(|report| report.id.clone());
                    Delegation::new(format!("vote of {name}"), name, task).after(ids)
                };
                Move::Work(voters.map(vote).collect())
            }
            _ => {
                let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
                for report in progress.last_round() {
                    let voted = progress
                        .signals(&report.id)
                        .iter()
                        .filter_map(|vote| vote.args["for"].as_str());
                    voted.for_each(|choice| *votes.entry(choice).or_default() += 1);
                }
                let winner = votes.into_iter().max_by_key(|(_, votes)| *votes);
                match winner.and_then(|(choice, votes)| Some((progress.report(choice)?, votes))) {
                    Some((report, votes)) => Move::Answer(format!(
                        "{} ({}, {votes} votes)",
                        report.text, report.worker
                    )),
                    None => Move::Fail("no worker voted".to_owned()),
                }
            }
        }
    }

    /// Offers a tool to the voters. levity collects its calls and executes nothing.
    fn tools(&self, _: &str) -> Vec<ToolSpec> {
        let choice = json!({
            "type": "object",
            "properties": {"for": {"type": "string"}},
            "required": ["for"],
        });
        vec![ToolSpec::new("vote", "Votes for a colleague's answer.").with_input(choice)]
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("(scripted models replace real ones)\n");
    let agent = |answer: &str, choice: &str| {
        let votes = ScriptedModel::new()
            .reply(answer)
            .call("vote", json!({"for": choice}))
            .reply("I have voted.");
        Agent::builder(votes).build()
    };
    let swarm = Swarm::builder(Vote {
        guests: vec!["guest".to_owned()],
    })
    .worker(Worker::new(
        "cook",
        "Knows the kitchen.",
        agent("Fish stew.", "pilot")?,
    ))
    .worker(Worker::new(
        "pilot",
        "Knows the sea.",
        agent("Bread, we are late.", "cook")?,
    ))
    .worker(Worker::new(
        "watch",
        "Knows the hour.",
        agent("Nothing, it is night.", "cook")?,
    ))
    .worker(Worker::new(
        "guest",
        "Is new here.",
        agent("Cake!", "guest")?,
    ))
    .build()?;

    let finished = swarm.run("What do we eat?").await?;
    for report in finished.reports() {
        println!("{}: {}", report.id, report.text);
    }
    println!("\n{}", finished.text());
    assert_eq!(finished.text(), "Fish stew. (cook, 2 votes)");
    Ok(())
}
