//! Structured output: an answer as a Rust value. The type defines the schema, and levity asks again
//! after an invalid answer.
//!
//! ```text
//! cargo run --example typed
//! ```

use levity::prelude::*;
use levity::test::ScriptedModel;
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Debug, Deserialize, JsonSchema)]
struct Review {
    /// Why, in a few words. Models fill fields in order, so the reason comes before the verdict.
    reason: String,
    /// From 1 to 5.
    #[schemars(range(min = 1, max = 5))]
    stars: u8,
}

#[tokio::main]
async fn main() -> levity::Result<()> {
    println!(
        "(a scripted model replaces a real one; its first answer does not match the \
        schema)\n"
    );
    let model = ScriptedModel::new()
        .reply(r#"{"reason": "crisp and sweet", "stars": 11}"#)
        .reply("Sorry! ```json\n{\"reason\": \"crisp and sweet\", \"stars\": 5}\n```");
    let agent = Agent::builder(model).build()?;

    let run = agent.run("How are the pears?").on_event(|event| {
        if let EventKind::Note { text } = &event.kind {
            println!("note to the model: {text}\n");
        }
    });
    let review: Review = run.typed().await?;
    println!("{} stars: {}", review.stars, review.reason);
    Ok(())
}
