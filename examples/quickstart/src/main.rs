//! A first agent: one tool, one question, and every event until the answer.
//!
//! ```text
//! cargo run -p quickstart
//! ```
//!
//! A scripted model replaces a real one. With `-F providers`, the program uses a real model if the
//! environment names one, by `GEMINI_API_KEY`, `OPENAI_API_KEY`, `ANTHROPIC_API_KEY` or
//! `LEVITY_MODEL`.

use std::io::Write as _;
use std::sync::Arc;

use levity::agent::RulePlanner;
use levity::core::Delta;
use levity::prelude::*;
use levity::test::{ScriptedModel, Turn};
use serde_json::json;

/// Adds two numbers.
#[tool(read_only)]
async fn add(
    /** left */
    a: f64,
    /** right */
    b: f64,
) -> f64 {
    a + b
}

#[tokio::main]
async fn main() -> levity::Result<()> {
    let model = match real_model()? {
        Some(model) => model,
        None => scripted_model(),
    };
    let agent = Agent::builder(model)
        .instructions("Be brief.")
        .tool(add)
        .planner(RulePlanner::new().when(
            "what is",
            ["work it out with a tool", "answer in one sentence"],
        ))
        .build()?;

    let mut run = agent.start("What is 2 + 5?");
    let mut events = run.events();
    while let Some(event) = events.next().await {
        show(&event.kind);
    }
    let answer = run.await?;
    println!("\nanswer: {answer}");
    println!(
        "usage:  {}, {} turns, {} tool call",
        answer.usage(),
        answer.stats().turns,
        answer.stats().tool_calls
    );
    Ok(())
}

/// Returns the model that the environment names, if it names one.
#[cfg(feature = "providers")]
fn real_model() -> levity::Result<Option<Arc<dyn Model>>> {
    match levity::llm::model_from_env() {
        Ok(chosen) => {
            println!("({chosen})\n");
            Ok(Some(chosen.into_model()))
        }
        Err(levity::llm::Error::NoModel { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns no model, because a real one needs the feature `providers`.
#[cfg(not(feature = "providers"))]
fn real_model() -> levity::Result<Option<Arc<dyn Model>>> {
    if std::env::var_os("LEVITY_MODEL").is_some() {
        println!("(to use the model in LEVITY_MODEL, run `cargo run -p quickstart -F providers`)");
    }
    Ok(None)
}

fn scripted_model() -> Arc<dyn Model> {
    println!("(no key, no network: a scripted model replaces a real one)\n");
    let model = ScriptedModel::new()
        .turn(
            Turn::new()
                .thinking("A sum: that is what `add` is for.")
                .call("add", json!({"a": 2, "b": 5}))
                .usage(61, 18),
        )
        .turn(
            Turn::new()
                .in_pieces(["2 + 5 ", "makes ", "7."])
                .usage(94, 7),
        );
    Arc::new(model)
}

fn show(event: &EventKind) {
    match event {
        EventKind::Goal { text } => println!("goal:   {text}"),
        EventKind::Plan { steps } => println!("plan:   {}", steps.join(", then ")),
        EventKind::TurnStarted { turn, of } => println!("turn {turn} of at most {of}"),
        EventKind::Delta {
            delta: Delta::Thinking(text),
            ..
        } => println!("  thinks: {text}"),
        EventKind::Delta {
            delta: Delta::Text(text),
            ..
        } => {
            // One line for each piece shows that the text streams.
            println!("  says:   {text:?}");
            let _ = std::io::stdout().flush();
        }
        EventKind::ToolStarted { call, .. } => println!("  calls:  {} {}", call.name, call.args),
        EventKind::ToolFinished { result, .. } => println!("  gets:   {}", result.text()),
        _ => {}
    }
}
