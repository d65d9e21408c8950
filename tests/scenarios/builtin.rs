//! Agents with the built-in tools of levity.

use levity::core::{FileChange, ToolSource as _};
use levity::prelude::*;
use levity::sandbox::{CommandPolicy, Level, Sandbox, Workspace};
use levity::test::ScriptedModel;
use levity::tools::{FileTools, FolderTools, Now, RunCommand};
use serde_json::json;

/// A temporary folder that is removed after the test.
struct TemporaryFolder(std::path::PathBuf);

impl TemporaryFolder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("levity-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn file_tools_emit_event_for_each_change() {
    let folder = TemporaryFolder::new("watch");
    let model = ScriptedModel::new()
        .call("write_file", json!({"path": "a/b.txt", "content": "one"}))
        .call(
            "edit_file",
            json!({"path": "a/b.txt", "old": "one", "new": "two"}),
        )
        .reply("Done.");
    let workspace = Workspace::open(&folder.0).unwrap();
    let agent = Agent::builder(model)
        .tools(FileTools::new(workspace))
        .build()
        .unwrap();
    let mut run = agent.start("Write");
    let (mut events, mut changes) = (run.events(), Vec::new());
    while let Some(event) = events.next().await {
        if let EventKind::FileChanged { change, .. } = event.kind {
            changes.push(change);
        }
    }
    run.await.unwrap();
    assert_eq!(
        changes,
        [
            FileChange::written("a/b.txt"),
            FileChange::written("a/b.txt")
        ]
    );
    assert_eq!(
        std::fs::read_to_string(folder.0.join("a/b.txt")).unwrap(),
        "two"
    );
}

#[tokio::test]
async fn writing_command_waits_for_approval() {
    let folder = TemporaryFolder::new("leave");
    let model = ScriptedModel::new()
        .call("run_command", json!({"command": "pwd"}))
        .call("run_command", json!({"command": "echo hi > made"}))
        .call("now", json!({}))
        .reply("Done.");
    // `Level::Open` makes the questions the same on every system.
    let sandbox = Sandbox::builder(Workspace::open(&folder.0).unwrap())
        .require_level(Level::Open)
        .build()
        .unwrap();
    let agent = Agent::builder(model)
        .tool(RunCommand::new(sandbox).policy(CommandPolicy::new()))
        .tool(Now::new())
        .build()
        .unwrap();
    let mut run = agent.start("Make it");
    let (mut events, mut asked) = (run.events(), Vec::new());
    while let Some(event) = events.next().await {
        if let EventKind::Asked(ask) = &event.kind {
            assert!(!folder.0.join("made").exists());
            asked.push(ask.reason.clone());
            run.approve(ask).await.unwrap();
        }
    }
    run.await.unwrap();
    assert_eq!(asked, ["it writes to a file"]);
    assert_eq!(
        std::fs::read_to_string(folder.0.join("made")).unwrap(),
        "hi\n"
    );
}

#[test]
fn folder_tools_report_manifest_without_executable() {
    let folder = TemporaryFolder::new("folder");
    std::fs::write(
        folder.0.join("count.tool.json"),
        r#"{"description": "Counts."}"#,
    )
    .unwrap();
    let problems = FolderTools::open(&folder.0).unwrap().problems();
    let [problem] = &*problems else {
        panic!("{problems:?}")
    };
    assert!(
        problem.starts_with("`count.tool.json`: no executable `count` is next to the manifest"),
        "{problem}"
    );
}
