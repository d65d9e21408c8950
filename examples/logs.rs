//! Log files of an agent: `general.log` and `reasoning.log`, in a folder for the conversation.
//!
//! ```text
//! cargo run --example logs
//! ```

use std::time::Duration;

use levity::core::Secrets;
use levity::log::LogFiles;
use levity::memory::InMemory;
use levity::prelude::*;
use levity::test::{ScriptedModel, Turn};
use serde_json::json;

/// Looks up the weather of a city.
#[tool(read_only)]
async fn weather(city: String) -> String {
    format!("18 degrees and sunny in {city}")
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("(a scripted model replaces a real one)\n");
    let model = ScriptedModel::new()
        .turn(
            Turn::new()
                .thinking("I cannot know the weather.\nA tool does.")
                .call("weather", json!({"city": "Brest"}))
                .usage(120, 30),
        )
        .turn(Turn::new().text("It is sunny in Brest.").usage(170, 8));
    let agent = Agent::builder(model)
        .tool(weather)
        .memory(InMemory::new())
        .build()?;

    let folder = std::env::temp_dir().join(format!("levity-logs-{}", std::process::id()));
    let logs = LogFiles::builder(&folder)
        .secrets(Secrets::new().known("hunter2"))
        .open()?;
    let run = agent
        .run("I am hunter2. What is the weather in Brest?")
        .conversation("brest");
    println!("{}\n", run.on_event(logs.session("brest")).await?);

    // A run never waits for its log, so flush the log before you read it.
    logs.flush(Duration::from_secs(5));
    for file in ["general.log", "reasoning.log"] {
        println!("{file}:");
        print!(
            "{}",
            std::fs::read_to_string(logs.session_folder("brest").join(file))?
        );
    }
    std::fs::remove_dir_all(folder)?;
    Ok(())
}
