//! The log files of a program that uses the facade.

use std::fs;
use std::path::Path;
use std::time::Duration;

use levity::core::Secrets;
use levity::log::LogFiles;
use levity::memory::InMemory;
use levity::prelude::*;
use levity::test::{ScriptedModel, Turn};
use serde_json::json;

use crate::support::{add, broken};

const FLUSH_TIMEOUT: Duration = Duration::from_secs(60);

fn lead() -> Agent {
    let helper = ScriptedModel::new()
        .call("add", json!({"a": 2, "b": 5}))
        .reply("7");
    let helper = Agent::builder(helper).tool(add).build().unwrap();
    let model = ScriptedModel::new()
        .turn(
            Turn::new()
                .thinking("Somebody else adds better.")
                .call("adder", json!({"task": "2 + 5"}))
                .usage(50, 5),
        )
        .turn(Turn::new().call("broken", json!({})).usage(60, 5))
        .turn(Turn::new().text("7, says canary-4711.").usage(70, 5))
        .turn(Turn::new().text("Still 7.").usage(80, 5));
    let agent = Agent::builder(model)
        .tool(broken)
        .agent("adder", "Adds numbers.", helper);
    agent.memory(InMemory::new()).build().unwrap()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[tokio::test]
async fn conversation_with_tools_and_child_is_logged_in_two_files() {
    let dir = tempfile::tempdir().unwrap();
    let secrets = Secrets::new().known("canary-4711");
    let logs = LogFiles::builder(dir.path())
        .secrets(secrets)
        .open()
        .unwrap();
    let agent = lead();
    for goal in ["What is 2 + 5?", "Sure?"] {
        agent
            .run(goal)
            .conversation("sums/1")
            .on_event(logs.session("sums/1"))
            .await
            .unwrap();
    }
    assert!(logs.flush(FLUSH_TIMEOUT));
    let folder = logs.session_folder("sums/1");
    assert_eq!(
        folder.parent(),
        Some(dir.path()),
        "an id must not be used as a path"
    );
    let general = read(&folder.join("general.log"));
    let at = |part: &str| {
        general
            .find(part)
            .unwrap_or_else(|| panic!("no `{part}` in\n{general}"))
    };
    let story = [
        "goal text=\"What is 2 + 5?\"",
        "model replied slot=main",
        "agent called agent=adder",
        "tool called tool=add",
        "tool answered tool=add",
        "agent finished agent=adder",
        "tool failed tool=broken",
        "answer=\"7, says [secret: known].\"",
        "goal text=Sure?",
        "answer=\"Still 7.\"",
    ];
    let places: Vec<usize> = story.iter().map(|part| at(part)).collect();
    assert!(places.is_sorted(), "the lines must be in order: {places:?}");
    let reasoning = read(&folder.join("reasoning.log"));
    assert_eq!(reasoning.lines().count(), 1);
    assert!(
        reasoning
            .trim_end()
            .ends_with("thought text=\"Somebody else adds better.\""),
        "{reasoning}"
    );
    assert!(!general.contains("canary-4711") && !general.contains("Somebody else"));
}

#[tokio::test]
async fn parallel_runs_log_to_separate_folders() {
    let dir = tempfile::tempdir().unwrap();
    let logs = LogFiles::open(dir.path()).unwrap();
    let model = ScriptedModel::looping(Turn::new().text("Hi."));
    let agent = Agent::builder(model).build().unwrap();
    let runs: Vec<_> = (0..50)
        .map(|n| {
            agent
                .run("Hello")
                .id(format!("r{n}"))
                .on_event(logs.runs())
                .start()
        })
        .collect();
    for run in runs {
        run.await.unwrap();
    }
    assert!(logs.flush(FLUSH_TIMEOUT));
    assert_eq!(logs.dropped(), 0);
    for n in 0..50 {
        let general = read(&dir.path().join(format!("r{n}/general.log")));
        assert!(
            general
                .lines()
                .all(|line| line.contains(&format!(" r{n} "))),
            "{general}"
        );
        assert!(general.contains("run ended status=complete"));
    }
}

#[tokio::test]
async fn missing_log_folder_does_not_stop_run() {
    let dir = tempfile::tempdir().unwrap();
    let logs = LogFiles::open(dir.path().join("logs")).unwrap();
    fs::remove_dir_all(dir.path().join("logs")).unwrap();
    fs::write(dir.path().join("logs"), "a file is in the way").unwrap();
    let agent = Agent::builder(ScriptedModel::new().reply("Hi."))
        .build()
        .unwrap();
    assert_eq!(
        agent
            .run("Hello")
            .on_event(logs.runs())
            .await
            .unwrap()
            .text(),
        "Hi."
    );
    assert!(logs.flush(FLUSH_TIMEOUT));
    assert!(logs.dropped() > 0);
}
