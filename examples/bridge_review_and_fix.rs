//! Review and fix: one agent writes a file, and another reviews and fixes it, then creates a file
//! that reports the end.
//!
//! The client is an agent, too. It has the tools that `levity bridge stdio` offers over MCP.

use levity::prelude::*;
use levity::runtime::MemoryJournal;
use levity::sandbox::Workspace;
use levity::serve::bridge::{BridgeClient, BridgeHost, BridgeTools};
use levity::serve::{AccessControl, Listener, Runs, Token};
use levity::test::ScriptedModel;
use levity::tools::FileTools;
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::temp_dir().join(format!("levity-review-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let workspace = Workspace::open(&folder)?;

    // The commander detects that the button is wider than the page.
    let model = ScriptedModel::new()
        .call("read_file", json!({"path": "button.css"}))
        .call(
            "edit_file",
            json!({"path": "button.css", "old": "width: 120%", "new": "width: 100%"}),
        )
        .reply("The button was wider than the page.");
    let commander = Agent::builder(model)
        .tools(FileTools::new(workspace.clone()))
        .runtime(Runtime::new().with_journal(MemoryJournal::new()))
        .build()?;

    let token = Token::generate()?;
    let listener = Listener::bind("127.0.0.1:0", AccessControl::new(token.clone())).await?;
    let client = BridgeClient::new(&format!("ws://{}", listener.address()), token)?;
    let host = BridgeHost::builder(workspace)
        .on_notice(|notice| println!("host: {notice}"))
        .build()?;
    host.commander(Runs::new(commander)).await?;

    tokio::select! {
        served = host.serve(listener) => served?,
        done = implement(client) => println!("client: {}", done?),
    }
    println!("{}", std::fs::read_to_string(folder.join("button.css"))?);
    std::fs::remove_dir_all(folder)?;
    Ok(())
}

/// Runs an agent that writes the component, requests a review and reads the result.
async fn implement(client: BridgeClient) -> levity::Result<String> {
    let review = "Review the layout of button.css, and fix what is broken.";
    let model = ScriptedModel::new()
        .call(
            "write_file",
            json!({"path": "button.css", "content": ".button { width: 120%; }\n"}),
        )
        .call(
            "dispatch_agent_task",
            json!({"prompt": review, "done": "UI_FIXED"}),
        )
        .call(
            "wait_for_file",
            json!({"glob": "{UI_FIXED,FAILED_*}", "timeout": 30}),
        )
        .call("read_file", json!({"path": "button.css"}))
        .reply("The button fits the page now.");
    let agent = Agent::builder(model)
        .tools(BridgeTools::new(client))
        .build()?;
    let answer = agent.run("Make a button.").await?;
    for (call, result) in answer.history().calls() {
        println!(
            "client: {} -> {}",
            call.name,
            result.text().lines().next().unwrap_or_default()
        );
    }
    Ok(answer.text().to_owned())
}
