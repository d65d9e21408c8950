//! An agent that works on the files of one folder and runs commands there, and cannot access
//! anything else.

use levity::core::FileChangeKind;
use levity::prelude::*;
use levity::sandbox::{CommandPolicy, Level, Sandbox, Workspace};
use levity::test::ScriptedModel;
use levity::tools::{FileTools, RunCommand};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::temp_dir().join(format!("levity-example-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("greeting.txt"), "Hello, wrold!\n")?;
    std::fs::write(folder.join(".env"), "KEY=hush\n")?;

    let workspace = Workspace::open(&folder)?;
    // Without `require_level`, `build` fails on a system that cannot keep commands from files and
    // the network.
    let sandbox = Sandbox::builder(&workspace)
        .require_level(Level::Open)
        .build()?;
    println!("limits on commands:\n{}\n", sandbox.report());

    let model = ScriptedModel::new()
        .call("search_files", json!({"pattern": "wrold"}))
        .call(
            "edit_file",
            json!({"path": "greeting.txt", "old": "wrold", "new": "world"}),
        )
        .call("read_file", json!({"path": ".env"}))
        .call(
            "run_command",
            json!({"command": "cat greeting.txt | wc -w"}),
        )
        .call("run_command", json!({"command": "rm greeting.txt"}))
        .reply("The typo is fixed.");
    let policy = CommandPolicy::new()
        .allow("cat")
        .allow("wc")
        .deny("rm", "files must not be removed")
        .with_workspace(&workspace);
    let agent = Agent::builder(model)
        .tools(FileTools::new(workspace))
        .tool(RunCommand::new(sandbox).policy(policy))
        .build()?;

    let mut run = agent.start("Fix the typo in the greeting.");
    let mut events = run.events();
    while let Some(event) = events.next().await {
        match event.kind {
            EventKind::ToolStarted { call, .. } => println!("calls   {} {}", call.name, call.args),
            EventKind::ToolFinished { result, .. } => {
                println!("gets    {}", result.text().trim_end());
            }
            EventKind::Denied { reason, .. } => println!("denied  {reason}"),
            EventKind::FileChanged { change, .. } if change.kind == FileChangeKind::Written => {
                println!("written {}", change.path);
            }
            _ => {}
        }
    }
    println!("\nanswer: {}", run.await?);
    assert_eq!(
        std::fs::read_to_string(folder.join("greeting.txt"))?,
        "Hello, world!\n"
    );
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
