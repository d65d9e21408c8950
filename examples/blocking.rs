//! An agent in a program that is not async.
//!
//! ```text
//! cargo run --example blocking
//! ```

use levity::prelude::*;
use levity::test::ScriptedModel;
use serde_json::json;

/// Counts the words of a text. A tool that is not async may block, because it runs on a separate
/// thread.
#[tool(read_only)]
fn count_words(
    /** The text. */
    text: String,
) -> usize {
    text.split_whitespace().count()
}

fn main() -> levity::Result<()> {
    println!("(a scripted model replaces a real one)\n");
    let model = ScriptedModel::new()
        .call("count_words", json!({"text": "one two three"}))
        .reply("Three words.");
    let agent = Agent::builder(model).tool(count_words).build()?;
    let answer = agent
        .run("How many words are in 'one two three'?")
        .blocking()?;
    println!("{answer}");
    Ok(())
}
