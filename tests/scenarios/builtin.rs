//! Agents with the built-in tools of levity.

use std::sync::{Arc, Mutex};

use levity::core::{Event, FileChange, ToolSource as _};
use levity::observe::Artifacts;
use levity::prelude::*;
use levity::runtime::MemoryJournal;
use levity::sandbox::{CommandPolicy, Level, Sandbox, Workspace};
use levity::test::ScriptedModel;
use levity::tools::{FileTools, FolderTools, Now, Policy, RunCommand};
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
        .runtime(Runtime::new().with_journal(MemoryJournal::new()))
        .tools(FileTools::new(workspace))
        .build()
        .unwrap();
    agent.run("Write").id("r1").await.unwrap();
    // The changes follow from the records, so a replay has them as well.
    let events = agent.replay(&"r1".into()).await.unwrap().events;
    let changes: Vec<_> = events.into_iter().filter_map(change).collect();
    let written = |content| FileChange::written("a/b.txt").with_content(content);
    assert_eq!(changes, [written(b"one"), written(b"two")]);
    assert_eq!(
        std::fs::read_to_string(folder.0.join("a/b.txt")).unwrap(),
        "two"
    );
}

fn change(event: Event) -> Option<FileChange> {
    match event.kind {
        EventKind::FileChanged { change, .. } => Some(change),
        _ => None,
    }
}

#[tokio::test]
async fn changes_of_command_are_events_and_artifacts() {
    let folder = TemporaryFolder::new("observe");
    let write = |name: &str, text: &str| std::fs::write(folder.0.join(name), text).unwrap();
    write("same.txt", "1");
    write("gone.txt", "1");
    write(".gitignore", "artifacts/\n*.log\n");
    let line = "echo 2 > same.txt; rm gone.txt; mkdir artifacts; echo r > artifacts/report.md; \
        echo x > debug.log; echo x > .hidden";
    let model = ScriptedModel::new()
        .call("run_command", json!({"command": line}))
        .call("run_command", json!({"command": "cat same.txt"}))
        .reply("Done.");
    let workspace = Workspace::open(&folder.0).unwrap();
    let sandbox = Sandbox::builder(workspace.clone())
        .require_level(Level::Open)
        .build()
        .unwrap();
    let agent = Agent::builder(model)
        .tools(FileTools::new(workspace))
        .tool(RunCommand::new(sandbox).policy(CommandPolicy::new()))
        .policy(Policy::allow_all())
        .build()
        .unwrap();
    let events = Arc::new(Mutex::new(Vec::new()));
    let seen = events.clone();
    let run = agent
        .run("Make it")
        .on_event(move |event| seen.lock().unwrap().push(event.clone()));
    let answer = run.await.unwrap();
    let events = events.lock().unwrap().clone();
    let mut artifacts = Artifacts::new("agent");
    events.iter().for_each(|event| artifacts.apply(event));
    let changes: Vec<_> = events.into_iter().filter_map(change).collect();
    let written = |path, content| FileChange::written(path).with_content(content);
    let expected = [
        written("artifacts/report.md", b"r\n"),
        FileChange::removed("gone.txt"),
        written("same.txt", b"2\n"),
    ];
    assert_eq!(changes, expected);
    let paths: Vec<_> = artifacts.iter().map(|one| one.file.path.as_str()).collect();
    assert_eq!(paths, ["artifacts/report.md", "same.txt"]);
    let by = artifacts.iter().next().unwrap();
    assert_eq!(by.origin.to_string(), "agent › run_command");
    assert_eq!(by.call.as_ref().unwrap().args["command"], line);
    // The model learns it as well.
    let history = format!("{:?}", answer.history());
    let note = "[files changed: wrote `artifacts/report.md`, removed `gone.txt`, wrote `same.txt`]";
    assert!(history.contains(note), "{history}");
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
