//! A team writes a plan, executes its steps in parallel, and changes the plan after a failure. The
//! example then prints the plan as a tree, and a summary.
//!
//! ```text
//! cargo run --example graph
//! ```

use std::sync::{Arc, Mutex};

use levity::dag::{PlanNotice, StepInput, Team};
use levity::observe::{PlanView, SessionFolder, TreeOptions};
use levity::prelude::*;
use levity::test::{ScriptedModel, Turn};
use serde_json::json;

/// The plan that a planner model would write.
const PLAN: &str = r#"{"steps": [
  {"id": "tides",   "agent": "almanac",    "inputs": {"place": "Brest"},  "writes": ["tides"]},
  {"id": "weather", "agent": "Retriever",  "prompt": "Find the weather in Brest by month.",
      "writes": ["weather"]},
  {"id": "crowds",  "agent": "Retriever",  "prompt": "Find how many people walk there by month.",
      "writes": ["crowds"]},
  {"id": "choose",  "agent": "Thinker",    "prompt": "Choose a month.",
      "reads": ["tides", "weather", "crowds"], "writes": ["month"]}
]}"#;

/// The change that the planner would write after the almanac fails.
const CHANGE: &str = r#"{"reason": "the almanac is closed, so the tides are searched elsewhere",
    "add": [
  {"id": "tides_found", "agent": "Retriever", "prompt": "Find the tides in Brest.",
      "writes": ["tides"], "instead_of": "tides"}
]}"#;

fn reply(text: &str) -> Turn {
    Turn::new().text(text).usage(120, 40)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("(scripted models replace real ones)\n");
    let planner = ScriptedModel::new().turn(reply(PLAN)).turn(reply(CHANGE));
    // The three steps run in any order, so each reply contains the variables of all of them.
    let found =
        r#"{"weather": "mild in May", "crowds": "few in May", "tides": "low at noon in May"}"#;
    let retriever = ScriptedModel::new()
        .turn(reply(found))
        .turn(reply(found))
        .turn(reply(found));
    let thinker = ScriptedModel::new().turn(reply(
        r#"{"month": "May: mild, quiet, and low tide at noon."}"#,
    ));

    let team = Team::builder()
        .agent("Planner", "Writes plans.", Agent::builder(planner).build()?)
        .agent(
            "Retriever",
            "Finds facts.",
            Agent::builder(retriever).build()?,
        )
        .agent(
            "Thinker",
            "Weighs the facts.",
            Agent::builder(thinker).build()?,
        )
        .function("almanac", |_: StepInput| async {
            Err(ToolError::failed("the almanac is closed"))
        })
        .observe(SessionFolder::open(
            std::env::temp_dir().join("levity-example-sessions"),
        ))
        .build()?;

    // The view is built from the events of the run. A terminal or a web page could draw it while
    // the run is in progress.
    let view = Arc::new(Mutex::new(PlanView::new()));
    let live_view = view.clone();
    let finished = team
        .run("When is the best time for a walk by the sea in Brest?")
        .on_event(move |event| {
            live_view
                .lock()
                .expect("the lock is not poisoned")
                .apply(event);
            match PlanNotice::of(&event.kind) {
                Some(PlanNotice::StepStarted { step, .. }) => println!("{step} started"),
                Some(PlanNotice::StepCompleted { step, .. }) => println!("{step} completed"),
                Some(PlanNotice::StepFailed { step, error, .. }) => {
                    println!("{step} failed: {error}");
                }
                Some(PlanNotice::Replanned { diff, .. }) => {
                    println!("the plan changed: {}", diff.reason);
                }
                _ => {}
            }
        })
        .await?;

    println!("\n{}\n", finished.text());
    assert_eq!(
        finished.variable("month"),
        Some(&json!("May: mild, quiet, and low tide at noon."))
    );
    let view = view.lock().expect("the lock is not poisoned");
    println!("{}\n{}", view.tree(TreeOptions::new()), view.summary());
    Ok(())
}
