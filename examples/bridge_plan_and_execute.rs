//! Plan and execute: one agent delegates planning to another, and follows the plan file.
//!
//! Host and client run in one program here. `levity bridge host` and `levity bridge stdio` run them
//! as two programs.

use levity::prelude::*;
use levity::runtime::MemoryJournal;
use levity::sandbox::Workspace;
use levity::serve::bridge::{BridgeClient, BridgeHost};
use levity::serve::{AccessControl, Listener, Runs, Token};
use levity::test::ScriptedModel;
use levity::tools::FileTools;
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::temp_dir().join(format!("levity-plan-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let workspace = Workspace::open(&folder)?;

    // The commander: an agent that works on the files of the workspace.
    let model = ScriptedModel::new()
        .call(
            "write_file",
            json!({"path": "ARCHITECTURE.md", "content": "# Parts\n- `greet`: says hello\n"}),
        )
        .reply("The architecture is in ARCHITECTURE.md.");
    let commander = Agent::builder(model)
        .instructions("You plan. Write your decisions to files.")
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
        done = implement(&client) => done?,
    }
    std::fs::remove_dir_all(folder)?;
    Ok(())
}

/// The client side. It can be any program that connects to a host.
async fn implement(client: &BridgeClient) -> Result<(), levity::serve::bridge::Error> {
    let prompt = "Work out the requirements of this project, and write them to ARCHITECTURE.md.";
    let task = client.dispatch(prompt, Some("DONE_planning")).await?;
    println!("client: task {} is in progress", task["task"]);

    let glob = "{DONE_planning,FAILED_*}";
    let found = client
        .request("fs/wait", json!({"glob": glob, "timeout": 30}))
        .await?;
    println!("client: found {}", found["found"][0]);

    let plan = client
        .request("fs/read", json!({"path": "ARCHITECTURE.md"}))
        .await?;
    println!("client: the plan is {}", plan["content"]);
    let code = "pub fn greet() -> &'static str {\n    \"hello\"\n}\n";
    client
        .request("fs/write", json!({"path": "src/greet.rs", "content": code}))
        .await?;
    let files = client
        .request("fs/list", json!({"recursive": true}))
        .await?;
    for entry in files["entries"].as_array().into_iter().flatten() {
        println!("client: {}", entry["path"]);
    }
    Ok(())
}
